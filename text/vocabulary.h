// The tokens of a vocabulary: their texts, types, and the bytes each stands for.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_data.h"

namespace pop {

// Immutable after construction. Not movable: its maps view its bytes.
class Vocabulary {
 public:
  // Errors, each naming the key: a model that is not known; no tokens; types not one per token, out of range, or byte in
  // byte-level BPE; two tokens of the same text, unless one is unused; a control or user-defined token without text; a byte
  // token that is not "<0xHH>".
  explicit Vocabulary(const TokenizerData& data);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  void check_id(int32_t id) const;  // throws Error for an id outside the vocabulary

  // The bytes that a token decodes to: of a normal one (maybe part of a character), the text itself of a control token.
  std::string_view piece(int32_t id) const;
  TokenType type(int32_t id) const;
  bool is_special(int32_t id) const;  // control or unknown

  // The token that decodes to `bytes`: a control, user-defined or unknown one before a normal one, a byte token last.
  std::optional<int32_t> find(std::string_view bytes) const;

  // Byte-level BPE: the normal token that stands for `bytes`. Other models: the token (normal or user-defined) spelt so.
  std::optional<int32_t> find_normal(std::string_view key) const;
  // Any token that is not unused, by its text in the file.
  std::optional<int32_t> find_text(std::string_view text) const;

  // Per byte: byte-level BPE: the normal token of that one byte; other models: the byte token. -1: none.
  const std::array<int32_t, 256>& byte_ids() const { return byte_ids_; }

 private:
  void add_texts(const TokenizerData& data);
  void add_byte_level(const TokenizerData& data);
  void add_spelt(const TokenizerData& data);
  void append(std::string_view bytes);

  std::string keys_;
  bool byte_level_;
  std::vector<TokenType> types_;
  std::vector<std::string> texts_;                                          // as the file has them
  std::vector<char> bytes_;                                                 // of all tokens, one after the other
  std::vector<uint64_t> offsets_;                                           // [size + 1] into bytes_
  std::unordered_map<std::string_view, int32_t> by_text_, by_key_, other_;  // keys view texts_ or bytes_
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace pop
