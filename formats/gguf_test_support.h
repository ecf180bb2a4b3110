// What the GGUF tests and the fuzz entry share: files put together byte by byte, and a look at everything a file holds.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"

namespace pop::test {

// Builds files no writer would write.
class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    const auto* p = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), p, p + sizeof value);
    return *this;
  }
  Bytes& u32(uint32_t v) { return put(v); }
  Bytes& u64(uint64_t v) { return put(v); }
  Bytes& raw(std::string_view s) {
    bytes.insert(bytes.end(), s.begin(), s.end());
    return *this;
  }
  Bytes& text(std::string_view s) { return u64(s.size()).raw(s); }
  Bytes& key(std::string_view name, GgufType type) { return text(name).u32(static_cast<uint32_t>(type)); }
  // dims in the file's order: the row length first.
  Bytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t ggml_type, uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(ggml_type).u64(offset);
  }
  Bytes& pad(size_t alignment, size_t data = 0) {  // to the alignment, then `data` bytes
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data, 0x5a);
    return *this;
  }
  std::vector<uint8_t> bytes;
};

inline Bytes gguf_head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  Bytes b;
  b.raw("GGUF").u32(version).u64(tensors).u64(keys);
  return b;
}

inline uint64_t look_at_value(const GgufValue& value) {
  uint64_t sum = value.text(40).size() + value.type_text().size() + value.bytes().size();
  if (const auto text = value.as_string()) {
    for (const char c : *text) sum += static_cast<uint8_t>(c);
  }
  if (value.type() == GgufType::Array) {
    for (const GgufValue& element : value.elements()) sum += look_at_value(element);
  }
  return sum;
}

template <class Call>
uint64_t ignoring_errors(Call call) {
  try {
    return call();
  } catch (const Error&) {
    return 1;
  }
}

// Through the getter of its type. (Not all getters for each: a thousand exceptions a file would be most of a test's time.)
inline uint64_t get_by_type(const GgufFile& file, const GgufKey& key) {
  const std::string& name = key.name;
  const bool array = key.value.type() == GgufType::Array;
  switch (array ? key.value.element_type() : key.value.type()) {
    case GgufType::Bool: return array ? file.get_bools(name).size() : file.get_bool(name);
    case GgufType::String: return array ? file.get_strings(name).size() : file.get_string(name).size();
    case GgufType::F32: return array ? file.get_floats(name).size() : static_cast<uint64_t>(file.get_f64(name) > 0);
    case GgufType::F64:
    case GgufType::Array: return 0;
    case GgufType::I32:
      return array ? file.get_i32s(name).size() + file.get_ints(name).size()
                   : static_cast<uint64_t>(file.get_i64(name));
    default: return array ? file.get_ints(name).size() : ignoring_errors([&] { return file.get_u64(name); });
  }
}

// Reads every value and every byte of every tensor; returns a sum so that nothing is optimised away.
inline uint64_t look_at_everything(const GgufFile& file) {
  uint64_t sum = file.file_bytes() + file.tensor_bytes() + file.version();
  for (const GgufKey& key : file.keys()) {
    sum += look_at_value(key.value);
    sum += ignoring_errors([&] { return get_by_type(file, key); });
  }
  for (const TensorInfo& info : file.tensors()) {
    sum += ignoring_errors([&] {
      const RawTensor tensor = file.tensor(info.name, info.shape);
      uint64_t bytes = 0;
      for (const uint8_t byte : tensor.data) bytes += byte;
      std::vector<float> row(static_cast<size_t>(tensor.shape.back()));
      dequantize(tensor.type, tensor.data.data(), row.data(), tensor.shape.back());
      uint32_t first = 0;
      std::memcpy(&first, row.data(), sizeof first);
      return bytes + first;
    });
  }
  return sum;
}

}  // namespace pop::test
