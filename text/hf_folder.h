// The text side of a Hugging Face model folder: tokenizer, special tokens, chat template.
#pragma once
#include <optional>
#include <string>

#include "text/tokenizer_data.h"

namespace pop {

struct FolderText {
  std::optional<TokenizerData> tokenizer;  // empty: the folder has none
  std::string tokenizer_file;              // "tokenizer.json" or "tokenizer.model"
  std::string chat_template;               // empty: none
};

// Reads, from those of these files that are there:
//   tokenizer.json, or else tokenizer.model   the vocabulary; with `sentencepiece_first` the other way round
//   tokenizer_config.json                     bos_token eos_token pad_token unk_token, add_bos_token add_eos_token, tokens
//                                             added to tokenizer.model, chat_template (a text, or the one named "default")
//   special_tokens_map.json                   the special tokens that tokenizer_config.json does not name
//   chat_template.jinja                       the template, before tokenizer_config.json's
//   generation_config.json, config.json       eos_token_id, one or several: joined with the tokenizer's
// vocab: rows of the embedding; ids above the tokenizer's become unused tokens, a token at or above it is an error.
// Throws Error "FOLDER/FILE: MEMBER: expected .., found ..".
FolderText read_folder_text(const std::string& folder, int vocab, bool sentencepiece_first = false);

}  // namespace pop
