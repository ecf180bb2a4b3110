#include "formats/tensor_source.h"

#include <algorithm>

#include "base/error.h"

namespace pop {

uint64_t TensorSource::file_bytes() const {
  uint64_t bytes = 0;
  for (const MappedFile& file : files()) bytes += file.bytes().size();
  return bytes;
}

uint64_t TensorSource::tensor_bytes() const {
  uint64_t bytes = 0;  // cannot overflow: tensors lie within their files and do not overlap
  for (const TensorInfo& info : tensors())
    if (info.type || info.scales) bytes += info.bytes;
  return bytes;
}

RawTensor TensorSource::tensor(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) fail("{}: tensor '{}' is missing", path(), printable(name));
  if (!info->type) {
    fail("{}: tensor '{}': expected a tensor type this program can read, found {}", path(), printable(name),
         info->type_text);
  }
  return {info->name, *info->type, info->shape, {info->data, info->bytes}};
}

RawTensor TensorSource::tensor(std::string_view name, const std::vector<int64_t>& shape) const {
  return tensor(name, shape, {});
}

RawTensor TensorSource::tensor(std::string_view name, const std::vector<int64_t>& shape,
                               const std::vector<DType>& accepted) const {
  const TensorInfo* info = find(name);
  std::string types;
  for (const DType type : accepted) types += fmt::format("{}{}", types.empty() ? " of " : " or ", traits(type).name);
  if (info == nullptr)
    fail("{}: tensor '{}' is missing: expected {}{}", path(), printable(name), shape_text(shape), types);
  const bool type_ok = !info->type || accepted.empty() ||  // an unknown type has its own message
                       std::find(accepted.begin(), accepted.end(), *info->type) != accepted.end();
  if (info->shape != shape || !type_ok) {
    fail("{}: tensor '{}': expected {}{}, found {} of {}", path(), printable(name), shape_text(shape), types,
         shape_text(info->shape), info->type_text);
  }
  return tensor(name);
}

RawTensor TensorSource::matrix(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr || info->scales == nullptr) return tensor(name);
  return {info->name, DType::BF16, info->shape, {info->data, info->bytes}, info->scales};
}

RawTensor TensorSource::matrix(std::string_view name, const std::vector<int64_t>& shape) const {
  const TensorInfo* info = find(name);
  return info != nullptr && info->scales != nullptr && info->shape == shape ? matrix(name) : tensor(name, shape);
}

size_t RawTensor::stride() const { return scales != nullptr ? size_t(shape.back()) : row_bytes(type, shape.back()); }

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace pop
