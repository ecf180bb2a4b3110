#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/utf8.h"

namespace pop {
namespace {

// GPT-2's byte alphabet: a token is written with one visible character per byte. Bytes that print in Latin-1 stand for
// themselves, the other 68 are U+0100 and up in their order (0x20 is U+0120).
bool prints(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

std::array<uint32_t, 256> byte_alphabet() {
  std::array<uint32_t, 256> out{};
  uint32_t shifted = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) out[byte] = prints(byte) ? byte : shifted++;
  return out;
}

// The bytes that a token's text in the alphabet stands for; nothing if it holds any other character.
std::optional<std::string> alphabet_decode(std::string_view text, const std::array<uint32_t, 256>& alphabet) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_char_length(text.substr(at));
    if (length == 0) return std::nullopt;
    const uint32_t code = utf8_decode(text.substr(at), length);
    if (code < 0x100 && prints(code)) {
      out += static_cast<char>(code);
    } else {
      const auto found = std::find(alphabet.begin(), alphabet.end(), code);
      if (found == alphabet.end()) return std::nullopt;
      out += static_cast<char>(found - alphabet.begin());
    }
    at += length;
  }
  return out;
}

// Marks that end a turn or a text in published chat formats (Llama-3, ChatML, GPT-2, Phi-3, Gemma, Falcon, Mistral).
constexpr std::string_view kEndMarks[] = {"<|eot_id|>",    "<|eom_id|>",    "<|end_of_text|>",
                                          "<|im_end|>",    "<|endoftext|>", "<|end|>",
                                          "<end_of_turn>", "<|eot|>",       "</s>"};

// Ids by text, unused tokens left out.
using TextIds = std::unordered_map<std::string_view, int32_t>;

TextIds ids_by_text(const TokenizerData& data) {
  TextIds out;
  out.reserve(data.tokens.size());
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.token_types[id] == static_cast<int32_t>(TokenType::kUnused)) continue;
    const auto [known, added] = out.emplace(data.tokens[id], static_cast<int32_t>(id));
    if (!added)
      fail("tokenizer.ggml.tokens: expected every text once, found \"{}\" as {} and {}", printable(data.tokens[id]),
           known->second, id);
  }
  return out;
}

}  // namespace

BosMode parse_bos_mode(std::string_view text) {
  if (text == "auto") return BosMode::kAuto;
  if (text == "never") return BosMode::kNever;
  if (text == "always") return BosMode::kAlways;
  fail("bos: expected auto, never or always, found \"{}\"", printable(text));
}

Tokenizer::Tokenizer(const TokenizerData& data) : pre_((data.model == "gpt2") ? std::string_view(data.pre) : "gpt-2") {
  if (data.model != "gpt2")
    fail("tokenizer.ggml.model: expected \"gpt2\" (byte-level BPE), found \"{}\"", printable(data.model));
  if (data.tokens.empty()) fail("tokenizer.ggml.tokens: expected a vocabulary, found no tokens");
  if (data.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail("tokenizer.ggml.tokens: expected fewer than 2^31 tokens, found {}", data.tokens.size());
  if (data.token_types.size() != data.tokens.size())
    fail("tokenizer.ggml.token_type: expected one per token ({}), found {}", data.tokens.size(),
         data.token_types.size());
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const int32_t type = data.token_types[id];
    if (type < 1 || type > 6 || type == static_cast<int32_t>(TokenType::kByte))
      fail("tokenizer.ggml.token_type: expected 1 to 5 for token {}, found {}{}", id, type,
           type == 6 ? " (byte tokens are SentencePiece's)" : "");
  }
  add_pieces(data);
  add_merges(data);
  add_special_ids(data);
}

void Tokenizer::add_pieces(const TokenizerData& data) {
  const auto alphabet = byte_alphabet();
  std::vector<bool> encodable(data.tokens.size());
  offsets_.assign(1, 0);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const auto type = static_cast<TokenType>(data.token_types[id]);
    types_.push_back(type);
    std::string_view piece = data.tokens[id];
    std::optional<std::string> decoded;
    if (type == TokenType::kNormal) decoded = alphabet_decode(piece, alphabet);
    // A normal token outside the alphabet cannot come out of encode; it decodes to its text, as in Hugging Face
    // tokenizers.
    encodable[id] = decoded.has_value();
    if (decoded) piece = *decoded;
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    if (bytes_.size() > std::numeric_limits<uint32_t>::max()) fail("tokenizer.ggml.tokens: more than 4 GiB of text");
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string_view bytes = piece(id);
    const TokenType type = types_[static_cast<size_t>(id)];
    if (type == TokenType::kNormal) {
      if (!encodable[static_cast<size_t>(id)]) continue;
      normal_by_bytes_.emplace(bytes, id);
      if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
    } else if (type != TokenType::kUnused) {
      if (bytes.empty())
        fail("tokenizer.ggml.tokens: expected a text for control or user-defined token {}, found none", id);
      other_by_bytes_.emplace(bytes, id);
      added_.add(bytes, id);
    }
  }
  for (int byte = 0; byte < 256; ++byte)
    if (byte_ids_[static_cast<size_t>(byte)] < 0) missing_bytes_ += static_cast<char>(byte);
}

void Tokenizer::add_merges(const TokenizerData& data) {
  const TextIds ids = ids_by_text(data);
  if (data.merges.size() > std::numeric_limits<uint32_t>::max()) fail("tokenizer.ggml.merges: too many");
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string& merge = data.merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos)
      fail("tokenizer.ggml.merges: expected \"left right\" as merge {}, found \"{}\"", rank, printable(merge));
    const auto id_of = [&](const std::string& text) {
      const auto found = ids.find(text);
      // Only normal tokens: a merge that made a control token would let plain text forge one.
      if (found == ids.end() || types_[static_cast<size_t>(found->second)] != TokenType::kNormal)
        fail("tokenizer.ggml.merges: merge {} (\"{}\") needs a normal token \"{}\", the vocabulary has {}", rank,
             printable(merge), printable(text), found == ids.end() ? "none" : "another type");
      return found->second;
    };
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    const int32_t left_id = id_of(left), right_id = id_of(right);
    if (!merges_.add(left_id, right_id, id_of(left + right)))
      fail("tokenizer.ggml.merges: expected every pair once, found \"{}\" again as merge {}", printable(merge), rank);
  }
}

void Tokenizer::add_special_ids(const TokenizerData& data) {
  const auto checked = [&](const char* key, int32_t id) {
    if (id < -1 || id >= vocab_size())
      fail("tokenizer.ggml.{}: expected an id below {}, found {}", key, vocab_size(), id);
    return id;
  };
  bos_ = checked("bos_token_id", data.bos);
  eos_ = checked("eos_token_id", data.eos);
  pad_ = checked("padding_token_id", data.pad);
  checked("unknown_token_id", data.unk);
  std::vector<int32_t> ends = {eos_, checked("eot_token_id", data.eot), checked("eom_token_id", data.eom)};
  for (const std::string_view mark : kEndMarks) {
    const auto found = other_by_bytes_.find(mark);
    if (found != other_by_bytes_.end() && is_special(found->second)) ends.push_back(found->second);
  }
  std::erase(ends, -1);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  end_of_generation_ = std::move(ends);
  if (data.add_bos.value_or(false) && bos_ < 0)
    fail("tokenizer.ggml.add_bos_token: true, but there is no bos_token_id");
  if (data.add_eos.value_or(false) && eos_ < 0)
    fail("tokenizer.ggml.add_eos_token: true, but there is no eos_token_id");
  add_bos_ = data.add_bos.value_or(pre_.adds_bos_by_default() && bos_ >= 0);
  add_eos_ = data.add_eos.value_or(false);
}

void Tokenizer::check_id(int32_t id) const {
  if (id < 0 || id >= vocab_size()) fail("token id: expected 0 to {}, found {}", vocab_size() - 1, id);
}

std::string_view Tokenizer::piece(int32_t id) const {
  check_id(id);
  const auto at = static_cast<size_t>(id);
  return {bytes_.data() + offsets_[at], offsets_[at + 1] - offsets_[at]};
}

TokenType Tokenizer::type(int32_t id) const {
  check_id(id);
  return types_[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  const TokenType kind = type(id);
  return kind == TokenType::kControl || kind == TokenType::kUnknown;
}

std::optional<int32_t> Tokenizer::find(std::string_view bytes) const {
  for (const auto* ids : {&other_by_bytes_, &normal_by_bytes_}) {
    const auto found = ids->find(bytes);
    if (found != ids->end()) return found->second;
  }
  return std::nullopt;
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

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special,
                                       std::span<const Range> literal) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail("text to tokenize: expected less than 2 GiB, found {} bytes", text.size());
  std::vector<int32_t> out;
  BpeScratch scratch;
  size_t plain = 0;  // where the text since the last added token begins
  for (size_t at = 0; at < text.size();) {
    const auto [id, length] = added_.match(text.substr(at));
    if (id < 0) {
      ++at;
      continue;
    }
    while (!literal.empty() && literal.front().end <= at) literal = literal.subspan(1);
    const bool is_literal = !literal.empty() && literal.front().begin < at + length;
    // A control token that is not to be parsed is plain text, and no other token is looked for inside it.
    if ((parse_special && !is_literal) || !is_special(id)) {
      encode_plain(text.substr(plain, at - plain), scratch, out);
      out.push_back(id);
      plain = at + length;
    }
    at += length;
  }
  encode_plain(text.substr(plain), scratch, out);
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

void Tokenizer::encode_plain(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (text.empty()) return;
  const std::string normal = pre_.normalise(text);
  for (const std::string_view piece : pre_.split(normal)) {
    if (pre_.ignore_merges()) {
      const auto whole = normal_by_bytes_.find(piece);
      if (whole != normal_by_bytes_.end()) {
        out.push_back(whole->second);
        continue;
      }
    }
    scratch.symbols.clear();
    for (const char byte : piece) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
      if (id >= 0) scratch.symbols.push_back({id, 0, 0});
    }
    merges_.merge(scratch, out);
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids)
    if (!skip_special || !is_special(id)) out += piece(id);
  return out;
}

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  waiting_ += tokenizer_.piece(id);
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
