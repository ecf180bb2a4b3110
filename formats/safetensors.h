// The safetensors format: eight bytes of length, a JSON header of that length, the tensors' bytes without holes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_source.h"

namespace pop {

// The tensors of one file, sorted by name, as views into `bytes`. `name` is the file's, for messages. Throws Error: the
// header longer than the file or 100 MB, no JSON, of another form, a name twice; a tensor whose bytes lie outside, are not
// those of its type and shape, or overlap another's; bytes that belong to no tensor.
std::vector<TensorInfo> parse_safetensors(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace pop
