// Writes GGUF version 3 files: toy models of tests, bench shapes, conversion.
#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/fill.h"
#include "formats/gguf.h"
#include "tensor/dtype.h"

namespace pop {

// general.file_type of a file whose matrices are mostly of this type: the number by which programs name files.
uint32_t gguf_file_type(DType type);

class GgufWriter {
 public:
  // alignment: of tensor data; a power of two from 8 to 65536. Written after the metadata, as
  // general.alignment, unless it is 32, the format's default.
  explicit GgufWriter(uint32_t alignment = 32);

  // Metadata, written in the order given. A key given twice, empty, too long, or general.alignment
  // throws Error.
  void set_u32(std::string_view key, uint32_t value);
  void set_i32(std::string_view key, int32_t value);
  void set_u64(std::string_view key, uint64_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_i32s(std::string_view key, std::span<const int32_t> values);
  void set_f32s(std::string_view key, std::span<const float> values);
  // Any other value, as the format spells it: `payload` as it follows the type in the file, not checked. A value of
  // another file is copied by its bytes(): set_payload(key.name, key.value.type(), key.value.bytes()).
  void set_payload(std::string_view key, GgufType type, std::span<const uint8_t> payload);

  // shape: outermost first ([rows, cols]), 1 to 4 dimensions, none zero, the last a whole number of blocks; data: rows one
  // after another. A name given twice or empty, or data of another size, throws Error.
  void add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape, std::vector<uint8_t> data);
  // The same without a copy: the caller keeps `data` alive until the last write.
  void add_tensor_view(std::string_view name, DType type, const std::vector<int64_t>& shape,
                       std::span<const uint8_t> data);
  // The same made while the file is written.
  void add_tensor_filled(std::string_view name, DType type, const std::vector<int64_t>& shape, Fill fill);
  // values: [product of shape], stored as `type` by quantize().
  void add_tensor_f32(std::string_view name, DType type, const std::vector<int64_t>& shape,
                      std::span<const float> values);

  // The file is there whole or not at all. Throws Error if it cannot be written, and what a Fill throws.
  void write(const std::string& path) const;
  std::vector<uint8_t> to_bytes() const;

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
    std::vector<uint8_t> owned;  // empty for a view
    std::span<const uint8_t> view;
    Fill fill;  // set: there is no data() yet
    uint64_t bytes = 0;
    std::span<const uint8_t> data() const { return owned.empty() ? view : std::span<const uint8_t>(owned); }
  };
  void add(Tensor tensor);
  template <class Write>
  void each_part(const Tensor& tensor, Write write) const;  // write(span): the data, then its padding
  std::string header() const;

  uint32_t alignment_;
  std::set<std::string, std::less<>> keys_, names_;  // of tensors; to refuse duplicates
  std::string metadata_;                             // encoded keys and values
  std::vector<Tensor> tensors_;
};

}  // namespace pop
