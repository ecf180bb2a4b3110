// A model family is data: what its blocks have, and what its metadata says beyond what all families say.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "model/spec.h"

namespace pop {

struct Family {
  const char* architecture;          // general.architecture
  bool interleaved_in_gguf = false;  // converters permute W_q and W_k so that rotated pairs are neighbours
  bool qkv_bias = false, qk_norm = false;
  // Of the GGUF key attention.sliding_window; false: the family's files do not say in which layers it holds.
  bool window_in_all_layers = false;
};

// Tensor names of a file format; {} is the layer number. All families of a format share them; which of them a model has, its
// ModelSpec says. `output` may be absent: tied to the embedding.
struct TensorNames {
  const char* embedding;
  const char* output_norm;
  const char* output;
  const char* attention_norm;
  const char *q, *k, *v, *o;
  const char *q_bias, *k_bias, *v_bias;
  const char *q_norm, *k_norm;
  const char* ffn_norm;
  const char *gate, *up, *down;
  std::span<const char* const> ignored;  // tensors read elsewhere, or without effect on the result
};
extern const TensorNames kGgufNames;

// Throws Error naming the architecture and the known ones.
const Family& find_family(const GgufFile& file);

// What all families say, under keys that begin with the architecture, and what this one adds; `vocab` and `tied_head` are
// seen from the tensors, by the caller. Throws Error naming the key: missing, out of range, or not run by this engine.
ModelSpec read_spec(const GgufFile& file, const Family& family);

}  // namespace pop
