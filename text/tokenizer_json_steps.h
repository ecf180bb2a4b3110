// The parts of tokenizer.json around the model: what prepares and cuts text, and what joins tokens.
#pragma once
#include "base/json_reader.h"
#include "text/tokenizer_data.h"

namespace pop {

struct JsonPipeline {
  TextSteps steps;
  bool byte_level = false;     // the pre-tokenizer spells pieces in GPT-2's byte alphabet
  bool decodes_bytes = false;  // the decoder: from that alphabet,
  bool decodes_marks = false;  // spaces for marks,
  bool byte_fallback = false;  // bytes for byte tokens,
  bool strips_space = false;   // and the first space goes
};

// Throws Error naming the component that is not supported.
JsonPipeline read_pipeline(const JsonReader& root);

}  // namespace pop
