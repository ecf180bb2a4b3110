// Byte-level BPE: strings <-> token ids, from the tokenizer metadata of a model file.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"

namespace pop {

// The numbers of tokenizer.ggml.token_type (GGUF specification).
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The metadata as the file has it; Tokenizer checks it. Ids are -1 where the file has none.
struct TokenizerData {
  std::string model;                 // tokenizer.ggml.model: "gpt2"
  std::string pre;                   // tokenizer.ggml.pre
  std::vector<std::string> tokens;   // tokenizer.ggml.tokens; id = index; normal ones in GPT-2's byte alphabet
  std::vector<int32_t> token_types;  // tokenizer.ggml.token_type, one per token (TokenType)
  std::vector<std::string> merges;   // tokenizer.ggml.merges, "left right", the best first
  int32_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1;
  std::optional<bool> add_bos, add_eos;  // tokenizer.ggml.add_bos_token, add_eos_token; empty where the file is silent
};

// --bos: as the file says | no BOS | always one.
enum class BosMode { kAuto, kNever, kAlways };
BosMode parse_bos_mode(std::string_view text);  // "auto", "never", "always"; anything else is an error

// Immutable after construction; every member may be called from several threads at once.
class Tokenizer {
 public:
  // Errors, each naming the metadata key: another model than gpt2; an unknown pre; no tokens; types not one per token,
  // out of range or byte (SentencePiece's); two tokens of the same text, unless one is unused; a control or
  // user-defined token without text; a merge that is not "left right", is there twice, or names or makes a token that
  // is not a normal one; a special id outside the vocabulary; add_bos or add_eos without the id.
  explicit Tokenizer(const TokenizerData& data);

  // The ids of `text`; no BOS or EOS is added. User-defined tokens are found in the text, control tokens (and unknown)
  // only if `parse_special`: the leftmost, then the longest. Bytes in `missing_bytes` have no token in this vocabulary
  // and are dropped, as Hugging Face tokenizers does. Any bytes are allowed, NUL and bytes that are not UTF-8 included.
  // literal: byte ranges, ascending, in which control tokens are plain text even so (a user's words inside a chat
  // prompt).
  struct Range {
    size_t begin, end;
  };
  std::vector<int32_t> encode(std::string_view text, bool parse_special, std::span<const Range> literal = {}) const;

  // Where control tokens (and unknown) stand in `text`, as encode would parse them.
  std::vector<Range> control_ranges(std::string_view text) const;

  // The bytes of the ids, one after the other: the inverse of encode (of the normalised text where `normalises`), but
  // for missing bytes. With `skip_special` control and unknown tokens give nothing. An id outside the vocabulary is an
  // error.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The bytes of one token: raw for a normal one (maybe part of a character), the text itself for any other.
  std::string_view piece(int32_t id) const;

  int32_t vocab_size() const { return static_cast<int32_t>(types_.size()); }
  TokenType type(int32_t id) const;
  bool is_special(int32_t id) const;  // control or unknown

  // The token whose bytes are `bytes`; where a normal and another token have the same, the other. Not unused tokens.
  std::optional<int32_t> find(std::string_view bytes) const;

  // Ids that end a generation, ascending: eos, eot and eom of the file, joined with the control tokens whose text is an
  // end mark of a published chat format (files often name only one of several).
  const std::vector<int32_t>& end_of_generation() const { return end_of_generation_; }
  bool is_end_of_generation(int32_t id) const;

  int32_t bos() const { return bos_; }  // -1: none
  int32_t eos() const { return eos_; }
  int32_t pad() const { return pad_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

  // Puts BOS in front of `ids` as `mode` says, and never a second one: ids that begin with it (a chat template wrote
  // it) are left alone. Returns true if it was added. kAlways is an error if the vocabulary has no BOS.
  bool apply_bos(std::vector<int32_t>& ids, BosMode mode) const;

  bool normalises() const { return pre_.normalises(); }
  const std::string& missing_bytes() const { return missing_bytes_; }  // ascending; empty for a complete vocabulary

 private:
  void add_pieces(const TokenizerData& data);
  void add_merges(const TokenizerData& data);
  void add_special_ids(const TokenizerData& data);
  void check_id(int32_t id) const;
  void encode_plain(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& out) const;

  PreTokenizer pre_;
  std::vector<TokenType> types_;
  std::vector<char> bytes_;        // of all tokens, one after the other (a vector: its address survives a move)
  std::vector<uint32_t> offsets_;  // [vocab + 1] into bytes_
  std::unordered_map<std::string_view, int32_t> normal_by_bytes_, other_by_bytes_;  // keys view bytes_
  std::array<int32_t, 256> byte_ids_;                                               // -1: no token
  std::string missing_bytes_;
  AddedTokens added_;
  BpeMerges merges_;
  std::vector<int32_t> end_of_generation_;
  int32_t bos_ = -1, eos_ = -1, pad_ = -1;
  bool add_bos_ = false, add_eos_ = false;
};

// Turns ids, one at a time, into text that a terminal can show: only whole characters come out.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The bytes that are ready: whole characters, and bytes that can no longer become one. What may still become a
  // character (at most 3 bytes) waits. All that push and flush return, joined, is decode of all the ids.
  std::string push(int32_t id);

  // What still waits: part of a character, or nothing.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string waiting_;
};

}  // namespace pop
