#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace pop {
namespace {

// Marks that end a turn or a text in published chat formats (Llama-3, ChatML, GPT-2, Phi-3, Gemma, Falcon, Mistral).
constexpr std::string_view kEndMarks[] = {"<|eot_id|>",    "<|eom_id|>",    "<|end_of_text|>",
                                          "<|im_end|>",    "<|endoftext|>", "<|end|>",
                                          "<end_of_turn>", "<|eot|>",       "</s>"};

// SentencePiece's vocabularies spell spaces with a mark, and most want one in front of a text.
TextSteps space_marks(bool prefix) {
  TextSteps steps;
  if (prefix) steps.normal.push_back({NormalStep::Kind::kPrepend, "", kSpaceMark});
  steps.normal.push_back({NormalStep::Kind::kReplace, " ", kSpaceMark});
  return steps;
}

PreTokenizer pre_tokenizer(const TokenizerData& data) {
  if (data.steps) return PreTokenizer(*data.steps);
  if (data.model == "llama") return PreTokenizer(space_marks(data.add_space_prefix.value_or(true)));
  return PreTokenizer(data.model == "gpt2" ? std::string_view(data.pre) : "gpt-2");
}

}  // namespace

BosMode parse_bos_mode(std::string_view text) {
  if (text == "auto") return BosMode::kAuto;
  if (text == "never") return BosMode::kNever;
  if (text == "always") return BosMode::kAlways;
  fail("bos: expected auto, never or always, found \"{}\"", printable(text));
}

Tokenizer::Tokenizer(const TokenizerData& data)
    : vocabulary_(std::make_unique<Vocabulary>(data)),
      pre_(pre_tokenizer(data)),
      model_(make_token_model(data, *vocabulary_, pre_.ignore_merges())),
      adds_space_(data.strips_space.value_or(data.model == "llama" && data.add_space_prefix.value_or(true))) {
  if (data.model == "gpt2")
    for (int byte = 0; byte < 256; ++byte)
      if (vocabulary_->byte_ids()[static_cast<size_t>(byte)] < 0) missing_bytes_ += static_cast<char>(byte);
  add_added_tokens(data);
  add_special_ids(data);
}

void Tokenizer::add_added_tokens(const TokenizerData& data) {
  std::vector<AddedToken> tokens = data.added;
  if (!data.huggingface)
    for (int32_t id = 0; id < vocab_size(); ++id) {
      // SentencePiece looks for user-defined tokens in the text with marks: its model does that.
      const bool found_in_text = type(id) == TokenType::kUserDefined && data.model == "gpt2";
      if (is_special(id) || found_in_text) tokens.push_back({id});
    }
  for (const AddedToken& token : tokens) {
    if (token.single_word || token.lstrip || token.rstrip) rules_.emplace(token.id, token);
    // Control tokens are looked for in the text as it is even if the file asks for the normalised one: what a chat
    // template writes must be found, and what a user writes must be seen.
    if (token.normalized && !is_special(token.id) && pre_.normalises())
      normalised_added_.add(pre_.normalise(piece(token.id)), token.id);
    else
      added_.add(piece(token.id), token.id);
  }
}

void Tokenizer::add_special_ids(const TokenizerData& data) {
  const auto checked = [&](const char* key, int32_t id) {
    if (id < -1 || id >= vocab_size())
      fail("{}{}: expected an id below {}, found {}", data.keys, key, vocab_size(), id);
    return id;
  };
  bos_ = checked("bos_token_id", data.bos);
  eos_ = checked("eos_token_id", data.eos);
  pad_ = checked("padding_token_id", data.pad);
  checked("unknown_token_id", data.unk);
  std::vector<int32_t> ends = {eos_, checked("eot_token_id", data.eot), checked("eom_token_id", data.eom)};
  for (const int32_t id : data.ends) ends.push_back(checked("eos_token_id", id));
  for (const std::string_view mark : kEndMarks) {
    const auto found = find(mark);
    if (found && is_special(*found)) ends.push_back(*found);
  }
  std::erase(ends, -1);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  end_of_generation_ = std::move(ends);
  if (data.add_bos.value_or(false) && bos_ < 0) fail("{}add_bos_token: true, but there is no bos_token_id", data.keys);
  if (data.add_eos.value_or(false) && eos_ < 0) fail("{}add_eos_token: true, but there is no eos_token_id", data.keys);
  add_bos_ = data.add_bos.value_or((pre_.adds_bos_by_default() || data.model == "llama") && bos_ >= 0);
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

bool Tokenizer::apply_bos(std::vector<int32_t>& ids, BosMode mode) const {
  if (mode == BosMode::kNever || (mode == BosMode::kAuto && !add_bos_)) return false;
  if (bos_ < 0) fail("bos: this vocabulary has no beginning-of-sequence token");
  if (!ids.empty() && ids.front() == bos_) return false;
  ids.insert(ids.begin(), bos_);
  return true;
}

// Calls plain(begin, end) for what lies between added tokens and token(id) for each of them, in order; accept(id, begin,
// end) says whether one counts. One that does not is plain text, and no other token is looked for inside it.
template <class Accept, class Plain, class Token>
void Tokenizer::each_added(const AddedTokens& tokens, std::string_view text, Accept accept, Plain plain,
                           Token token) const {
  size_t from = 0;  // where the text since the last added token begins
  for (size_t at = 0; at < text.size();) {
    const auto [id, length] = tokens.match(text.substr(at));
    if (id < 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const auto rule = rules_.find(id);
    const bool inside_word = rule != rules_.end() && rule->second.single_word &&
                             (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)));
    if (inside_word || !accept(id, begin, end)) continue;
    if (rule != rules_.end() && rule->second.lstrip) begin -= trailing_space(text.substr(from, begin - from));
    if (rule != rules_.end() && rule->second.rstrip) end += leading_space(text.substr(end));
    plain(from, begin);
    token(id);
    from = at = end;
  }
  plain(from, text.size());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special,
                                       std::span<const Range> literal) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail("text to tokenize: expected less than 2 GiB, found {} bytes", text.size());
  std::vector<int32_t> out;
  BpeScratch scratch;
  const auto counts = [&](int32_t id, size_t begin, size_t end) {
    while (!literal.empty() && literal.front().end <= begin) literal = literal.subspan(1);
    const bool is_literal = !literal.empty() && literal.front().begin < end;
    return (parse_special && !is_literal) || !is_special(id);
  };
  each_added(
      added_, text, counts,
      [&](size_t begin, size_t end) { encode_plain(text.substr(begin, end - begin), begin == 0, scratch, out); },
      [&](int32_t id) { out.push_back(id); });
  return out;
}

std::vector<Tokenizer::Range> Tokenizer::control_ranges(std::string_view text) const {
  std::vector<Range> ranges;
  for (size_t at = 0; at < text.size();) {
    const auto [id, length] = added_.match(text.substr(at));
    if (id >= 0 && is_special(id)) ranges.push_back({at, at + length});
    at += id < 0 ? 1 : length;
  }
  return ranges;
}

void Tokenizer::encode_plain(std::string_view text, bool begins_input, BpeScratch& scratch,
                             std::vector<int32_t>& out) const {
  if (text.empty()) return;
  const std::string normal = pre_.normalise(text);
  each_added(
      normalised_added_, normal, [](int32_t, size_t, size_t) { return true; },
      [&](size_t begin, size_t end) {
        if (begin == end) return;
        const std::string part = pre_.prepare(normal.substr(begin, end - begin), begins_input && begin == 0);
        for (const std::string_view piece : pre_.split(part)) model_->encode(piece, scratch, out);
      },
      [&](int32_t id) { out.push_back(id); });
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special, bool whole) const {
  std::string out;
  bool at_start = whole && adds_space_;
  for (const int32_t id : ids) {
    std::string_view bytes = piece(id);
    if (skip_special && is_special(id)) continue;
    if (at_start && bytes.starts_with(' ') && type(id) != TokenType::kByte) bytes.remove_prefix(1);
    at_start = false;
    out += bytes;
  }
  return out;
}

bool Tokenizer::shows_text(std::span<const int32_t> ids) const {
  return std::any_of(ids.begin(), ids.end(), [&](int32_t id) {
    return id >= 0 && id < vocab_size() && !is_special(id) && !decode(std::span(&id, 1)).empty();
  });
}

std::string StreamDecoder::push(int32_t id) {
  std::string_view bytes = tokenizer_.piece(id);
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  if (at_start_ && bytes.starts_with(' ') && tokenizer_.type(id) != TokenType::kByte) bytes.remove_prefix(1);
  at_start_ = false;
  waiting_ += bytes;
  // A cut character can only be in the last three bytes.
  for (size_t kept = std::min<size_t>(3, waiting_.size()); kept > 0; --kept) {
    const size_t ready = waiting_.size() - kept;
    if (!utf8_is_cut_char(std::string_view(waiting_).substr(ready))) continue;
    std::string out = waiting_.substr(0, ready);
    waiting_.erase(0, ready);
    return out;
  }
  return std::exchange(waiting_, {});
}

std::string StreamDecoder::flush() { return std::exchange(waiting_, {}); }

}  // namespace pop
