// tokenizer.json: a tokenizer as Hugging Face `tokenizers` writes it.
#pragma once
#include <string_view>

#include "text/tokenizer_data.h"

namespace pop {

// What the file says, for Tokenizer. Supported:
//   model           BPE (byte-level, or over characters with byte tokens), Unigram
//   normalizer      NFC NFD NFKC NFKD Lowercase Prepend Replace (of a string) Strip Sequence
//   pre_tokenizer   ByteLevel Split Digits Punctuation Metaspace WhitespaceSplit Sequence; patterns: known_patterns.h
//   decoder         ByteLevel Metaspace Replace ByteFallback Fuse Strip Sequence
//   post_processor  TemplateProcessing ByteLevel Sequence: whether BOS and EOS are added
// Ids that no token has become unused tokens without text. `bos` and `eos` are those that the post-processor adds; the
// names of the others are in tokenizer_config.json. Throws Error "tokenizer.json: MEMBER: expected .., found .." for
// anything else, and for tokens that contradict each other.
TokenizerData read_tokenizer_json(std::string_view bytes);

}  // namespace pop
