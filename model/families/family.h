// A model family is data: how a file's metadata becomes a ModelSpec, and which tensor fills which slot.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "model/spec.h"

namespace pop {

// Tensor names; {} is the layer number. All are required but `output` (absent: tied to the embedding).
struct TensorNames {
  const char* embedding;
  const char* output_norm;
  const char* output;
  const char* attention_norm;
  const char *q, *k, *v, *o;
  const char* ffn_norm;
  const char *gate, *up, *down;
  std::span<const char* const> ignored;  // tensors read elsewhere, or without effect on the result
};

struct Family {
  const char* architecture;  // general.architecture
  ModelSpec (*spec)(const GgufFile& file);
  TensorNames names;
};

// Throws Error naming the architecture and the known ones.
const Family& find_family(const GgufFile& file);

}  // namespace pop
