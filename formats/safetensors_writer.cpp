#include "formats/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/whole_file.h"

namespace pop {

void SafetensorsWriter::add(std::string_view name, DType type, const std::vector<int64_t>& shape, Fill fill) {
  const std::string what = fmt::format("safetensors tensor '{}'", printable(name));
  if (name.empty() || name == "__metadata__") fail("{}: expected another name", what);
  if (type != DType::F32 && type != DType::F16 && type != DType::BF16)
    fail("{}: expected F32, F16 or BF16, found {}", what, traits(type).name);
  if (shape.empty() || shape.size() > 8) fail("{}: expected 1 to 8 dimensions, found {}", what, shape.size());
  auto bytes = uint64_t(traits(type).block_bytes);
  for (const int64_t n : shape)
    if (n <= 0 || __builtin_mul_overflow(bytes, uint64_t(n), &bytes))
      fail("{}: expected dimensions above 0 and fewer than 2^64 bytes, found {}", what, n);
  if (!names_.emplace(name).second) fail("{}: given twice", what);
  tensors_.push_back({std::string(name), type, shape, std::move(fill), bytes});
}

std::string SafetensorsWriter::header() const {
  auto json = nlohmann::ordered_json::object();
  json["__metadata__"] = {{"format", "pt"}};  // transformers wants to be told
  uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    json[t.name] = {{"dtype", traits(t.type).name}, {"shape", t.shape}, {"data_offsets", {offset, offset + t.bytes}}};
    offset += t.bytes;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  std::string out;
  for (int i = 0; i < 8; ++i) out += char(uint64_t(text.size()) >> (8 * i) & 255);
  return out + text;
}

void SafetensorsWriter::write(const std::string& path) const {
  const std::string head = header();
  uint64_t total = head.size();
  for (const Tensor& t : tensors_) total += t.bytes;
  WholeFile file(path);
  file.reserve(total);
  file.write({reinterpret_cast<const uint8_t*>(head.data()), head.size()});
  for (const Tensor& t : tensors_)
    write_filled(t.bytes, row_bytes(t.type, t.shape.back()), t.fill,
                 [&](std::span<const uint8_t> part) { file.write(part); });
  file.become_whole();
}

}  // namespace pop
