// Internal to formats/: one GGUF file's bytes, checked and taken apart.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/named.h"

namespace pop {

struct GgufPart {
  uint32_t version = 0;
  std::vector<GgufKey> keys;
  std::vector<size_t> key_order;    // of keys, by name
  std::vector<TensorInfo> tensors;  // in the file's order, data within the bytes given
};

// `name` is the file's, for messages. The result refers to `bytes`. Throws Error.
GgufPart parse_gguf(std::span<const uint8_t> bytes, const std::string& name);

// Of a fixed-size value type; of String and Array the least a value takes.
uint64_t min_value_bytes(GgufType type);

}  // namespace pop
