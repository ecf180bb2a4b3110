#include "apps/bench/shapes.h"

#include <fmt/format.h>

#include "apps/pop/command.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

// From the models' config.json. qwen2.5: its sizes only; files are written as the llama family, without its biases. The mixtures
// of experts are written as what they are.
constexpr Shape kShapes[] = {
    {"llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, 4096, false, 1e4},
    {"llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, 8192, false, 5e5},
    {"llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 5e5},
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, 1e5},
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, 32768, false, 1e6},
    {"qwen3-30b-a3b", 48, 2048, 6144, 32, 4, 128, 151936, 40960, false, 1e6, {128, 8, 768, 0}, "qwen3moe", false, true},
    {"qwen1.5-moe-a2.7b",
     24,
     2048,
     5632,
     16,
     16,
     128,
     151936,
     8192,
     false,
     1e6,
     {60, 4, 1408, 5632},
     "qwen2moe",
     true,
     false},
};

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

const Shape& shape_named(std::string_view name) {
  for (const Shape& shape : kShapes)
    if (name == shape.name) return shape;
  throw UsageError(
      fmt::format("--shape: expected one of {}; found '{}'", fmt::join(shape_names(), ", "), printable(name)));
}

}  // namespace pop::app
