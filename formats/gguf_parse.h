// Internal to formats/: one GGUF file's bytes, checked and taken apart.
#pragma once
#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"

namespace pop {

struct GgufPart {
  uint32_t version = 0;
  std::vector<GgufKey> keys;
  std::vector<size_t> key_order;        // of keys, by name
  std::vector<GgufTensorInfo> tensors;  // in the file's order, data within the bytes given
};

// `name` is the file's, for messages. The result refers to `bytes`. Throws Error.
GgufPart parse_gguf(std::span<const uint8_t> bytes, const std::string& name);

// Of a fixed-size value type; of String and Array the least a value takes.
uint64_t min_value_bytes(GgufType type);

// The order of items by name, for look-up. Throws Error if a name occurs twice.
template <class Named>
std::vector<size_t> name_order(const std::vector<Named>& items, std::string_view what, const std::string& file) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a].name < items[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string& name = items[order[i]].name;
    if (items[order[i - 1]].name == name) fail("{}: {} '{}' occurs twice", file, what, printable(name));
  }
  return order;
}

template <class Named>
const Named* find_named(const std::vector<Named>& items, const std::vector<size_t>& order, std::string_view name) {
  const auto it = std::lower_bound(order.begin(), order.end(), name,
                                   [&](size_t i, std::string_view wanted) { return items[i].name < wanted; });
  return it != order.end() && items[*it].name == name ? &items[*it] : nullptr;
}

// "F32", "Q4_K", also types this engine cannot read ("IQ2_XXS"); "type 99" if nobody knows it.
std::string ggml_type_text(uint32_t ggml_type);

// "[576, 1536]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace pop
