// Tokenizers as the files that Hugging Face folders have. What is written here, the readers beside it read as the same tokenizer.
#pragma once
#include <string>

#include "text/tokenizer_data.h"

namespace pop {

// tokenizer.json of a byte-level BPE (model "gpt2") with a named pre-tokenizer. Every token that is not unused stands in the
// vocabulary, control and user-defined ones among the added tokens as well. add_bos: BOS goes before a text. Throws Error: another
// model; pre "default", which no tokenizer.json has.
std::string write_tokenizer_json(const TokenizerData& data, bool add_bos);

// tokenizer.model of a SentencePiece BPE (model "llama"). Throws Error for another model.
std::string write_sentencepiece_model(const TokenizerData& data);

}  // namespace pop
