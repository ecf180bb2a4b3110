// What a tokenizer is made of, whichever file says it: GGUF metadata, tokenizer.json or tokenizer.model.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/text_steps.h"

namespace pop {

// The numbers of tokenizer.ggml.token_type (GGUF specification), which are SentencePiece's.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// A token that stands in text as it is, and what tokenizer.json says about how it is found.
struct AddedToken {
  int32_t id = -1;
  bool in_model = true;      // false: beside the model's vocabulary, which cannot make it of text
  bool normalized = false;   // looked for in the normalised text, itself normalised
  bool single_word = false;  // only where no letter, digit or underscore touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
};

// As the file has it; Tokenizer checks it. Ids are -1 where the file has none.
struct TokenizerData {
  std::string keys = "tokenizer.ggml.";  // stands before a key's name in messages

  // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece's BPE, by scores). From other files also
  // "bpe" (merges over characters) and "unigram".
  std::string model;
  std::string pre;                   // tokenizer.ggml.pre; byte-level BPE without `steps` only
  std::optional<TextSteps> steps;    // how text is prepared and cut where the file says it itself
  std::vector<std::string> tokens;   // tokenizer.ggml.tokens; id = index; gpt2: normal ones in GPT-2's byte alphabet
  std::vector<int32_t> token_types;  // tokenizer.ggml.token_type, one per token (TokenType)
  std::vector<double> scores;        // tokenizer.ggml.scores, one per token; llama and unigram only
  std::vector<std::string> merges;   // tokenizer.ggml.merges, "left right", the best first; gpt2 and bpe only
  bool huggingface =
      false;  // from tokenizer.json: rules of Hugging Face `tokenizers` where they are not SentencePiece's
  std::optional<bool> add_space_prefix;  // tokenizer.ggml.add_space_prefix; llama only, true where the file is silent
  std::vector<AddedToken> added;         // tokenizer.json's; other files: every control and user-defined token
  bool fuse_unknown = true;              // neighbouring unknown tokens become one
  std::optional<bool> strips_space;      // decode takes a space from the beginning; add_space_prefix where empty

  int32_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1;
  std::vector<int32_t> ends;             // more ids that end a generation
  std::optional<bool> add_bos, add_eos;  // tokenizer.ggml.add_bos_token, add_eos_token; empty where the file is silent
};

}  // namespace pop
