// Where a model's tensors come from: names, shapes and views of bytes, whatever the file format.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/dtype.h"

namespace pop {

struct F8Scales;  // formats/scaled_f8.h

// What a file says about a tensor.
struct TensorInfo {
  std::string name;
  std::string type_text;       // the type in words, also of one that this engine does not know
  std::optional<DType> type;   // empty: not known
  std::vector<int64_t> shape;  // outermost first, [rows, cols]
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;                        // 0 if the type's size is not known
  std::shared_ptr<const F8Scales> scales{};  // of a matrix of F8_E4M3, which has no type
};

// A tensor of a known type. Shape outermost first; data: product of shape elements, rows one after another.
struct RawTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  std::span<const uint8_t> data;
  // Not null: data are F8_E4M3, and its rows are read by f8_row_to_bf16; type is BF16.
  std::shared_ptr<const F8Scales> scales{};

  size_t stride() const;  // bytes of a row in data
};

class TensorSource {
 public:
  TensorSource() = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(TensorSource&&) = default;
  virtual ~TensorSource() = default;

  virtual const std::string& path() const = 0;              // for messages
  virtual std::span<const MappedFile> files() const = 0;    // empty if it came from memory
  virtual std::span<const TensorInfo> tensors() const = 0;  // of all files, in their order
  virtual const TensorInfo* find(std::string_view name) const = 0;

  uint64_t file_bytes() const;    // of files()
  uint64_t tensor_bytes() const;  // of the tensors of known types
  // The strict getter: the tensor must exist, have a type this engine knows, this shape, and one of these types. Throws Error.
  RawTensor tensor(std::string_view name) const;
  RawTensor tensor(std::string_view name, const std::vector<int64_t>& shape) const;
  RawTensor tensor(std::string_view name, const std::vector<int64_t>& shape, const std::vector<DType>& accepted) const;
  // The same for those who look at RawTensor::scales: it may also be a matrix of F8_E4M3.
  RawTensor matrix(std::string_view name) const;
  RawTensor matrix(std::string_view name, const std::vector<int64_t>& shape) const;
};

// "[576, 1536]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace pop
