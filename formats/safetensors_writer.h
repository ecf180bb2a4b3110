// Writes safetensors files (formats/safetensors.h).
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/fill.h"
#include "tensor/dtype.h"

namespace pop {

class SafetensorsWriter {
 public:
  // type: F32, F16 or BF16; shape: outermost first, 1 to 8 dimensions, none zero. Written in the order given. Throws Error: a name
  // twice or empty, another type or shape.
  void add(std::string_view name, DType type, const std::vector<int64_t>& shape, Fill fill);

  // The file is there whole or not at all. Throws Error if it cannot be written, and what a Fill throws.
  void write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
    Fill fill;
    uint64_t bytes;
  };
  std::string header() const;
  std::vector<Tensor> tensors_;
  std::set<std::string, std::less<>> names_;  // to refuse duplicates
};

}  // namespace pop
