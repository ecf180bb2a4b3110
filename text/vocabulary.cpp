#include "text/vocabulary.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace pop {
namespace {

// Of tokens that are looked for at every place of a text, which may cost so many steps at each. Published ones have below 100.
constexpr size_t kMostLookedFor = 1024;

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

// The byte of "<0xHH>"; nothing for any other text.
std::optional<uint8_t> byte_of(std::string_view text) {
  const auto digit = [&](size_t at) -> int {
    const char c = text[at];
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>' || digit(3) < 0 || digit(4) < 0)
    return std::nullopt;
  return static_cast<uint8_t>(digit(3) * 16 + digit(4));
}

std::string spaces_for_marks(std::string_view text) { return replace_all(text, kSpaceMark, " "); }
std::string marks_for_spaces(std::string_view text) { return replace_all(text, " ", kSpaceMark); }

}  // namespace

Vocabulary::Vocabulary(const TokenizerData& data) : keys_(data.keys), byte_level_(data.model == "gpt2") {
  if (!byte_level_ && data.model != "llama" && data.model != "unigram" && data.model != "bpe")
    fail("{}model: expected \"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE), found \"{}\"", keys_,
         printable(data.model));
  if (data.tokens.empty()) fail("{}tokens: expected a vocabulary, found no tokens", keys_);
  if (data.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail("{}tokens: expected fewer than 2^31 tokens, found {}", keys_, data.tokens.size());
  if (data.token_types.size() != data.tokens.size())
    fail("{}token_type: expected one per token ({}), found {}", keys_, data.tokens.size(), data.token_types.size());
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const int32_t type = data.token_types[id];
    if (type < 1 || type > (byte_level_ ? 5 : 6))
      fail("{}token_type: expected 1 to {} for token {}, found {}{}", keys_, byte_level_ ? 5 : 6, id, type,
           type == 6 ? " (byte tokens are SentencePiece's)" : "");
    types_.push_back(static_cast<TokenType>(type));
  }
  byte_ids_.fill(-1);
  add_texts(data);
  if (byte_level_)
    add_byte_level(data);
  else
    add_spelt(data);
}

void Vocabulary::add_texts(const TokenizerData& data) {
  texts_ = data.tokens;
  by_text_.reserve(texts_.size());
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (types_[id] == TokenType::kUnused) continue;
    const bool plain = types_[id] == TokenType::kNormal || types_[id] == TokenType::kByte;
    if (!plain && texts_[id].empty())
      fail("{}tokens: expected a text for control or user-defined token {}, found none", keys_, id);
    if ((!plain || data.model == "unigram") && texts_[id].size() > kMostLookedFor)
      fail("{}tokens: expected at most {} bytes in token {}, which is looked for in texts, found {}", keys_,
           kMostLookedFor, id, texts_[id].size());
    const auto [known, added] = by_text_.emplace(texts_[id], static_cast<int32_t>(id));
    if (!added)
      fail("{}tokens: expected every text once, found \"{}\" as {} and {}", keys_, printable(texts_[id]), known->second,
           id);
  }
}

void Vocabulary::append(std::string_view bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  offsets_.push_back(bytes_.size());
}

void Vocabulary::add_byte_level(const TokenizerData& data) {
  const auto alphabet = byte_alphabet();
  std::vector<bool> encodable(data.tokens.size());
  offsets_.assign(1, 0);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    std::optional<std::string> decoded;
    if (types_[id] == TokenType::kNormal) decoded = alphabet_decode(data.tokens[id], alphabet);
    // A normal token outside the alphabet cannot come out of encode; it decodes to its text, as in Hugging Face
    // tokenizers.
    encodable[id] = decoded.has_value();
    append(decoded ? *decoded : data.tokens[id]);
  }
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view bytes = piece(id);
    const TokenType type = types_[static_cast<size_t>(id)];
    if (type == TokenType::kNormal) {
      if (!encodable[static_cast<size_t>(id)]) continue;
      by_key_.emplace(bytes, id);
      if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
    } else if (type != TokenType::kUnused) {
      other_.emplace(bytes, id);
    }
  }
}

void Vocabulary::add_spelt(const TokenizerData& data) {
  offsets_.assign(1, 0);
  for (size_t id = 0; id < texts_.size(); ++id) {
    const TokenType type = types_[id];
    if (type == TokenType::kByte) {
      const auto byte = byte_of(texts_[id]);
      if (!byte) fail("{}tokens: expected \"<0xHH>\" as byte token {}, found \"{}\"", keys_, id, printable(texts_[id]));
      byte_ids_[*byte] = static_cast<int32_t>(id);
      append(std::string(1, static_cast<char>(*byte)));
    } else if (type == TokenType::kControl || type == TokenType::kUnknown) {
      append(texts_[id]);
    } else {
      append(spaces_for_marks(texts_[id]));
    }
  }
  const auto bytes = std::count_if(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
  if (bytes != 0 && bytes != 256) fail("{}token_type: expected no byte tokens or all 256, found {}", keys_, bytes);
  if (bytes == 0 && data.unk < 0 && !data.huggingface)
    fail("{}unknown_token_id: expected one, since there are no byte tokens, found none", keys_);
  std::vector<bool> beside(texts_.size());
  for (const AddedToken& token : data.added) beside.at(static_cast<size_t>(token.id)) = !token.in_model;
  for (int32_t id = 0; id < size(); ++id) {
    const TokenType type = types_[static_cast<size_t>(id)];
    if (type == TokenType::kUnused) continue;
    const bool plain = type == TokenType::kNormal || type == TokenType::kUserDefined;
    if (plain && !beside[static_cast<size_t>(id)]) by_key_.emplace(texts_[static_cast<size_t>(id)], id);
    if (type != TokenType::kNormal && type != TokenType::kByte) other_.emplace(piece(id), id);
  }
}

void Vocabulary::check_id(int32_t id) const {
  if (id < 0 || id >= size()) fail("token id: expected 0 to {}, found {}", size() - 1, id);
}

std::string_view Vocabulary::piece(int32_t id) const {
  check_id(id);
  const auto at = static_cast<size_t>(id);
  return {bytes_.data() + offsets_[at], offsets_[at + 1] - offsets_[at]};
}

TokenType Vocabulary::type(int32_t id) const {
  check_id(id);
  return types_[static_cast<size_t>(id)];
}

bool Vocabulary::is_special(int32_t id) const {
  const TokenType kind = type(id);
  return kind == TokenType::kControl || kind == TokenType::kUnknown;
}

std::optional<int32_t> Vocabulary::find(std::string_view bytes) const {
  if (const auto other = other_.find(bytes); other != other_.end()) return other->second;
  if (const auto normal = find_normal(byte_level_ ? std::string(bytes) : marks_for_spaces(bytes))) return normal;
  if (byte_level_ || bytes.size() != 1) return std::nullopt;
  const int32_t byte = byte_ids_[static_cast<uint8_t>(bytes[0])];
  return byte < 0 ? std::nullopt : std::optional(byte);
}

std::optional<int32_t> Vocabulary::find_normal(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int32_t> Vocabulary::find_text(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace pop
