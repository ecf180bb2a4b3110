// The models that turn a piece of text into token ids.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/tokenizer_data.h"
#include "text/vocabulary.h"

namespace pop {

// Immutable; encode may be called from several threads at once, each with its own scratch.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of one piece, which stands alone: nothing merges across its ends. A byte that is not UTF-8 is a
  // character of its own.
  virtual void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const = 0;
};

// The model that `data` describes; `vocabulary` is made of the same data and outlives it. Throws Error, naming the key:
// a merge that is not "left right", is there twice, or names or makes a token that is not a normal
// one; scores that are not one number per token. ignore_merges: byte-level BPE takes
// a piece that is a token as a whole as that token.
std::unique_ptr<TokenModel> make_token_model(const TokenizerData& data, const Vocabulary& vocabulary,
                                             bool ignore_merges);

// The single models, for make_token_model.
std::unique_ptr<TokenModel> make_byte_bpe(const TokenizerData& data, const Vocabulary& vocabulary, bool ignore_merges);
std::unique_ptr<TokenModel> make_char_bpe(const TokenizerData& data, const Vocabulary& vocabulary, bool ignore_merges);
std::unique_ptr<TokenModel> make_score_bpe(const TokenizerData& data, const Vocabulary& vocabulary);

std::unique_ptr<TokenModel> make_unigram(const TokenizerData& data, const Vocabulary& vocabulary);

// Throws Error unless there is one finite score per token.
void check_scores(const TokenizerData& data);

// Appends what stands for text that no token is: its byte tokens, or the unknown token (if any) where there are none, once
// for neighbours (`unknown_before`). Returns true if the last id is the unknown one.
bool append_unknown(std::string_view text, const Vocabulary& vocabulary, int32_t unknown, bool unknown_before,
                    std::vector<int32_t>& out);

}  // namespace pop
