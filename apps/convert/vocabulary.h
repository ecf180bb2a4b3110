// Tokenizer, special tokens and chat template, from a folder's files to GGUF metadata and back.
#pragma once
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "model/model.h"

namespace pop::app {

using Notes = std::vector<std::string>;  // what a user should know: a line each

// From the folder that `model` is of. Throws Error for a tokenizer that GGUF metadata cannot describe; what is lost without an
// effect on most texts is noted.
void write_vocabulary(const Model& model, GgufWriter& out, Notes& notes);

// tokenizer.json or tokenizer.model, tokenizer_config.json, chat_template.jinja, generation_config.json, into a folder; returns
// the ids for config.json: bos_token_id and eos_token_id.
nlohmann::ordered_json write_vocabulary(const GgufFile& file, const ModelSpec& spec, const std::string& folder,
                                        Notes& notes);

}  // namespace pop::app
