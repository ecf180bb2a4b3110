// Shapes of published models, for benchmarks without a download.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace pop::app {

// Of a mixture of experts; none: each layer has one FFN. f: of an expert; shared_f 0: there is no shared one.
struct ExpertShape {
  int count = 0, used = 0, f = 0, shared_f = 0;
};

struct Shape {
  const char* name;
  int layers, d, f, heads, kv_heads, head_dim, vocab, context;
  bool tied_head;
  double rope_theta;
  ExpertShape experts = {};
  const char* architecture = "llama";  // the file's
  bool qkv_bias = false, qk_norm = false;
};

// Throws UsageError naming the nearest shape.
const Shape& shape_named(std::string_view name);
std::vector<std::string> shape_names();

}  // namespace pop::app
