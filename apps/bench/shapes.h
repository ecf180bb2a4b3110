// Shapes of published models, for benchmarks without a download.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace pop::app {

struct Shape {
  const char* name;
  int layers, d, f, heads, kv_heads, head_dim, vocab, context;
  bool tied_head;
  double rope_theta;
};

// Throws UsageError naming the nearest shape.
const Shape& shape_named(std::string_view name);
std::vector<std::string> shape_names();

}  // namespace pop::app
