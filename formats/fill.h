// Tensor data that is made while a file is written, so that a file may be larger than the memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pop {

// Asked for a tensor's data from `offset` on, in ascending order, whole rows at a time (a row: the last dimension). What it
// throws ends the writing; no file is left.
using Fill = std::function<void(uint64_t offset, std::span<uint8_t> bytes)>;

// Calls write(std::span<const uint8_t>) with `bytes` bytes in all, row: bytes of one.
template <class Write>
void write_filled(uint64_t bytes, uint64_t row, const Fill& fill, Write write) {
  constexpr uint64_t kStep = 4 << 20;  // written from cache, few calls
  if (bytes == 0) return;
  std::vector<uint8_t> part(std::min(bytes, std::max<uint64_t>(1, kStep / row) * row));
  for (uint64_t at = 0; at < bytes; at += part.size()) {
    const std::span<uint8_t> now(part.data(), std::min<uint64_t>(part.size(), bytes - at));
    fill(at, now);
    write(std::span<const uint8_t>(now));
  }
}

}  // namespace pop
