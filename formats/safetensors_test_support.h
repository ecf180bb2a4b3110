// What the safetensors tests and the fuzz entry share.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"

namespace pop::test {

// A file with this header and so many bytes of data; `length` in place of the header's own.
inline std::vector<uint8_t> safetensors(std::string_view header, size_t data, int64_t length = -1) {
  const uint64_t size = length < 0 ? header.size() : uint64_t(length);
  std::vector<uint8_t> bytes(8);
  for (size_t i = 0; i < 8; ++i) bytes[i] = uint8_t(size >> (8 * i));
  bytes.insert(bytes.end(), header.begin(), header.end());
  for (size_t i = 0; i < data; ++i) bytes.push_back(uint8_t(i * 37));
  return bytes;
}

// Reads every byte of every tensor, and widens a row of each; returns a sum so that nothing is optimised away.
inline uint64_t look_at_everything(const std::vector<TensorInfo>& tensors) {
  uint64_t sum = 0;
  for (const TensorInfo& info : tensors) {
    for (uint64_t i = 0; i < info.bytes; ++i) sum += info.data[i];
    if (!info.type || info.bytes == 0 || info.shape.empty()) continue;
    std::vector<float> row(size_t(info.shape.back()));
    dequantize(*info.type, info.data, row.data(), info.shape.back());
    uint32_t first = 0;
    std::memcpy(&first, row.data(), sizeof first);
    sum += first;
  }
  return sum;
}

}  // namespace pop::test
