#include "formats/gguf_writer.h"

#include <cstring>

#include "base/error.h"
#include "base/whole_file.h"

namespace pop {
namespace {

constexpr size_t kMaxKeyBytes = 65535;
constexpr uint32_t kDefaultAlignment = 32;
constexpr std::string_view kAlignmentKey = "general.alignment";

template <class T>
void append(std::string& out,
            T value) {  // little-endian, as every machine this is built for (tensor/dequant.cpp checks)
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out.append(text);
}

std::string array_head(GgufType type, size_t count) {
  std::string out;
  append(out, static_cast<uint32_t>(type));
  append<uint64_t>(out, count);
  return out;
}

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

template <class T>
std::span<const uint8_t> value_bytes(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

uint64_t round_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

}  // namespace

uint32_t gguf_file_type(DType type) {
  switch (type) {
    case DType::F32: return 0;
    case DType::F16: return 1;
    case DType::Q4_0: return 2;
    case DType::Q4_1: return 3;
    case DType::Q8_0: return 7;
    case DType::Q5_0: return 8;
    case DType::Q5_1: return 9;
    case DType::Q2_K: return 10;
    case DType::Q3_K: return 11;
    case DType::Q4_K: return 14;
    case DType::Q5_K: return 16;
    case DType::Q6_K: return 18;
    case DType::IQ4_NL: return 25;
    case DType::IQ4_XS: return 30;
    case DType::BF16: return 32;
  }
  fail("data type number {}: no such type", static_cast<int>(type));
}

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  if (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1)) != 0) {
    fail("GGUF alignment: expected a power of two from 8 to 65536, found {}", alignment);
  }
}

void GgufWriter::set_payload(std::string_view key, GgufType type, std::span<const uint8_t> payload) {
  if (key.empty() || key.size() > kMaxKeyBytes) {
    fail("GGUF key: expected 1 to {} bytes, found {}", kMaxKeyBytes, key.size());
  }
  if (key == kAlignmentKey) fail("GGUF key '{}': set by the constructor of the writer", kAlignmentKey);
  if (!keys_.emplace(key).second) fail("GGUF key '{}': given twice", printable(key));
  append_text(metadata_, key);
  append(metadata_, static_cast<uint32_t>(type));
  metadata_.append(reinterpret_cast<const char*>(payload.data()), payload.size());
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) { set_payload(key, GgufType::U32, value_bytes(value)); }
void GgufWriter::set_i32(std::string_view key, int32_t value) { set_payload(key, GgufType::I32, value_bytes(value)); }
void GgufWriter::set_u64(std::string_view key, uint64_t value) { set_payload(key, GgufType::U64, value_bytes(value)); }
void GgufWriter::set_f32(std::string_view key, float value) { set_payload(key, GgufType::F32, value_bytes(value)); }

void GgufWriter::set_bool(std::string_view key, bool value) {
  set_payload(key, GgufType::Bool, value_bytes(static_cast<uint8_t>(value ? 1 : 0)));
}

void GgufWriter::set_string(std::string_view key, std::string_view value) {
  std::string payload;
  append_text(payload, value);
  set_payload(key, GgufType::String, as_bytes(payload));
}

void GgufWriter::set_strings(std::string_view key, std::span<const std::string> values) {
  std::string payload = array_head(GgufType::String, values.size());
  for (const std::string& v : values) append_text(payload, v);
  set_payload(key, GgufType::Array, as_bytes(payload));
}

void GgufWriter::set_i32s(std::string_view key, std::span<const int32_t> values) {
  std::string payload = array_head(GgufType::I32, values.size());
  for (const int32_t v : values) append(payload, v);
  set_payload(key, GgufType::Array, as_bytes(payload));
}

void GgufWriter::set_f32s(std::string_view key, std::span<const float> values) {
  std::string payload = array_head(GgufType::F32, values.size());
  for (const float v : values) append(payload, v);
  set_payload(key, GgufType::Array, as_bytes(payload));
}

void GgufWriter::add(Tensor t) {
  if (t.name.empty()) fail("GGUF tensor {}: its name is empty", tensors_.size());
  if (names_.contains(t.name)) fail("GGUF tensor '{}': given twice", printable(t.name));
  if (t.shape.empty() || t.shape.size() > 4) {
    fail("GGUF tensor '{}': expected 1 to 4 dimensions, found {}", printable(t.name), t.shape.size());
  }
  size_t bytes = 1;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (t.shape[i] <= 0) fail("GGUF tensor '{}': dimension {} is {}", printable(t.name), i, t.shape[i]);
    const size_t factor = i + 1 < t.shape.size() ? static_cast<size_t>(t.shape[i]) : row_bytes(t.type, t.shape[i]);
    if (__builtin_mul_overflow(bytes, factor, &bytes)) fail("GGUF tensor '{}': too large", printable(t.name));
  }
  t.bytes = bytes;
  if (!t.fill && t.data().size() != bytes) {
    fail("GGUF tensor '{}': expected {} bytes of data, found {}", printable(t.name), bytes, t.data().size());
  }
  names_.insert(t.name);
  tensors_.push_back(std::move(t));
}

void GgufWriter::add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape,
                            std::vector<uint8_t> data) {
  add({std::string(name), type, shape, std::move(data), {}, {}});
}

void GgufWriter::add_tensor_view(std::string_view name, DType type, const std::vector<int64_t>& shape,
                                 std::span<const uint8_t> data) {
  add({std::string(name), type, shape, {}, data, {}});
}

void GgufWriter::add_tensor_filled(std::string_view name, DType type, const std::vector<int64_t>& shape, Fill fill) {
  add({std::string(name), type, shape, {}, {}, std::move(fill)});
}

void GgufWriter::add_tensor_f32(std::string_view name, DType type, const std::vector<int64_t>& shape,
                                std::span<const float> values) {
  std::vector<uint8_t> data(row_bytes(type, static_cast<int64_t>(values.size())));
  quantize(type, values.data(), data.data(), static_cast<int64_t>(values.size()));
  add_tensor(name, type, shape, std::move(data));
}

// Everything before the data, padded so that the data begins aligned.
std::string GgufWriter::header() const {
  std::string out = "GGUF";
  append<uint32_t>(out, 3);
  append<uint64_t>(out, tensors_.size());
  append<uint64_t>(out, keys_.size() + (alignment_ != kDefaultAlignment ? 1 : 0));
  out += metadata_;
  if (alignment_ != kDefaultAlignment) {
    append_text(out, kAlignmentKey);
    append(out, static_cast<uint32_t>(GgufType::U32));
    append(out, alignment_);
  }
  uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    append_text(out, t.name);
    append<uint32_t>(out, static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) append<int64_t>(out, t.shape[i]);
    append(out, traits(t.type).ggml_type);
    append<uint64_t>(out, offset);
    offset = round_up(offset + t.bytes, alignment_);
  }
  out.resize(round_up(out.size(), alignment_), '\0');
  return out;
}

template <class Write>
void GgufWriter::each_part(const Tensor& t, Write write) const {
  if (t.fill) {
    write_filled(t.bytes, row_bytes(t.type, t.shape.back()), t.fill, write);
  } else {
    write(t.data());
  }
  const std::vector<uint8_t> padding(round_up(t.bytes, alignment_) - t.bytes);
  write(std::span<const uint8_t>(padding));
}

void GgufWriter::write(const std::string& path) const {
  const std::string head = header();
  uint64_t total = head.size();
  for (const Tensor& t : tensors_) total += round_up(t.bytes, alignment_);
  WholeFile file(path);
  file.reserve(total);
  file.write(as_bytes(head));
  for (const Tensor& t : tensors_) each_part(t, [&](std::span<const uint8_t> part) { file.write(part); });
  file.become_whole();
}

std::vector<uint8_t> GgufWriter::to_bytes() const {
  const std::string head = header();
  std::vector<uint8_t> out(head.begin(), head.end());
  for (const Tensor& t : tensors_)
    each_part(t, [&](std::span<const uint8_t> part) { out.insert(out.end(), part.begin(), part.end()); });
  return out;
}

}  // namespace pop
