// tokenizer.model: a SentencePiece vocabulary (a protobuf message, sentencepiece_model.proto of the `sentencepiece`
// library), BPE or unigram.
#pragma once
#include <string_view>

#include "text/tokenizer_data.h"

namespace pop {

// What the bytes say. The library's file has no word on whether BOS is added: add_bos stays empty. Throws Error "what:
// expected .., found .." for bytes that are no such message, for model types other than BPE and unigram, and for what
// the tokenizer does not do (white space as a suffix, unescaped white space, a denormalizer).
TokenizerData read_sentencepiece_model(std::string_view bytes);

}  // namespace pop
