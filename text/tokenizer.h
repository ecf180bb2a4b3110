// Strings <-> token ids: byte-level BPE and SentencePiece vocabularies, from what a model file says.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace pop {

// --bos: as the file says | no BOS | always one.
enum class BosMode { kAuto, kNever, kAlways };
BosMode parse_bos_mode(std::string_view text);  // "auto", "never", "always"; anything else is an error

// Immutable after construction; every member may be called from several threads at once.
class Tokenizer {
 public:
  // Errors, each naming the key: what Vocabulary, PreTokenizer and make_token_model refuse; a special id outside the
  // vocabulary; add_bos or add_eos without the id.
  explicit Tokenizer(const TokenizerData& data);

  // The ids of `text`; no BOS or EOS is added. User-defined tokens are found in the text, control tokens (and unknown)
  // only if `parse_special`: the leftmost, then the longest. Bytes in `missing_bytes` have no token in this vocabulary
  // and are dropped, as Hugging Face tokenizers does. Any bytes are allowed, NUL and bytes that are not UTF-8 included.
  // Where the vocabulary wants a space in front of a text, what follows a parsed control token gets one too.
  // literal: byte ranges, ascending, in which control tokens are plain text even so (a user's words inside a chat
  // prompt).
  struct Range {
    size_t begin, end;
  };
  std::vector<int32_t> encode(std::string_view text, bool parse_special, std::span<const Range> literal = {}) const;

  // Where control tokens (and unknown) stand in `text`, as encode would parse them.
  std::vector<Range> control_ranges(std::string_view text) const;

  // The bytes of the ids, one after the other: the inverse of encode (of the normalised text where `normalises`), but
  // for missing bytes. With `skip_special` control and unknown tokens give nothing. A space that encode put in front of
  // the text is left out, if the ids are `whole`, not the continuation of a text. An id outside the vocabulary is an
  // error.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false, bool whole = true) const;

  // True if decode(ids, true) is not empty: what follows the ids continues a text. Ids outside the vocabulary are passed
  // over.
  bool shows_text(std::span<const int32_t> ids) const;

  // The bytes of one token: raw for a normal one (maybe part of a character), the text itself for any other.
  std::string_view piece(int32_t id) const { return vocabulary_->piece(id); }

  int32_t vocab_size() const { return vocabulary_->size(); }
  TokenType type(int32_t id) const { return vocabulary_->type(id); }
  bool is_special(int32_t id) const { return vocabulary_->is_special(id); }  // control or unknown

  // Vocabulary::find: the token that decodes to `bytes`.
  std::optional<int32_t> find(std::string_view bytes) const { return vocabulary_->find(bytes); }

  // Ids that end a generation, ascending: eos, eot and eom of the file, joined with the control tokens whose text is an
  // end mark of a published chat format (files often name only one of several).
  const std::vector<int32_t>& end_of_generation() const { return end_of_generation_; }
  bool is_end_of_generation(int32_t id) const;

  int32_t bos() const { return bos_; }  // -1: none
  int32_t eos() const { return eos_; }
  int32_t pad() const { return pad_; }
  bool add_bos() const { return add_bos_; }

  // Puts BOS in front of `ids` as `mode` says, and never a second one: ids that begin with it (a chat template wrote
  // it) are left alone. Returns true if it was added. kAlways is an error if the vocabulary has no BOS.
  bool apply_bos(std::vector<int32_t>& ids, BosMode mode) const;

  bool normalises() const { return pre_.normalises(); }
  // True if encode puts a space in front of a text and decode takes one away.
  bool adds_space() const { return adds_space_; }
  const std::string& missing_bytes() const { return missing_bytes_; }  // ascending; empty for a complete vocabulary

 private:
  void add_added_tokens(const TokenizerData& data);
  void add_special_ids(const TokenizerData& data);
  template <class Accept, class Plain, class Token>
  void each_added(const AddedTokens& tokens, std::string_view text, Accept accept, Plain plain, Token token) const;
  void encode_plain(std::string_view text, bool begins_input, BpeScratch& scratch, std::vector<int32_t>& out) const;

  std::unique_ptr<const Vocabulary> vocabulary_;
  PreTokenizer pre_;
  std::unique_ptr<const TokenModel> model_;
  std::string missing_bytes_;
  AddedTokens added_, normalised_added_;           // looked for in the text as it is, and in the normalised one
  std::unordered_map<int32_t, AddedToken> rules_;  // of those that look at what stands around them
  std::vector<int32_t> end_of_generation_;
  int32_t bos_ = -1, eos_ = -1, pad_ = -1;
  bool add_bos_ = false, adds_space_ = false;
};

// Turns ids, one at a time, into text that a terminal can show: only whole characters come out.
class StreamDecoder {
 public:
  // whole: the ids begin a text; else they continue one (Tokenizer::decode).
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false, bool whole = true)
      : tokenizer_(tokenizer), skip_special_(skip_special), at_start_(whole && tokenizer.adds_space()) {}

  // The bytes that are ready: whole characters, and bytes that can no longer become one. What may still become a
  // character (at most 3 bytes) waits. All that push and flush return, joined, is decode of all the ids.
  std::string push(int32_t id);

  // What still waits: part of a character, or nothing.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool at_start_;  // a space would be the one that encode added
  std::string waiting_;
};

}  // namespace pop
