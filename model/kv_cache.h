// Keys and values of one sequence: [ranges of positions][layers][kv_heads], and of each what kernels/kv.h says, keys, then
// values. A longer text touches more ranges, in order; so what is never reached costs address space only, and huge pages can
// be used: without them, translating addresses takes a third of the time of reading a long past.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "kernels/kv.h"
#include "model/spec.h"

namespace pop {

class KvCache {
 public:
  KvCache() = default;
  KvCache(const ModelSpec& spec, KvType type, int capacity)
      : type_(type),
        capacity_(capacity),
        kv_heads_(size_t(spec.kv_heads)),
        part_bytes_(size_t(std::min(kKvRange, kv_capacity(capacity))) * kv_position_bytes(type, spec.head_dim)),
        range_stride_(2 * part_bytes_ * kv_heads_ * size_t(spec.layers)),
        memory_(range_stride_ * size_t((capacity + kKvRange - 1) / kKvRange)) {}

  KvType type() const { return type_; }
  int capacity() const { return capacity_; }
  size_t range_stride() const { return range_stride_; }
  // Where the range of a position begins.
  uint8_t* keys(int layer, int head, int position) const {
    return memory_.data() + size_t(position / kKvRange) * range_stride_ +
           (size_t(layer) * kv_heads_ + size_t(head)) * 2 * part_bytes_;
  }
  uint8_t* values(int layer, int head, int position) const { return keys(layer, head, position) + part_bytes_; }
  // A long context for benchmarks: every range of positions from `length` on becomes a copy of the first, which is copied
  // as it is, so that of a prompt shorter than a range the rest are zeros.
  void repeat(int length, int target) {
    for (int at = (length + kKvRange - 1) / kKvRange * kKvRange; at < target; at += kKvRange)
      std::memcpy(memory_.data() + size_t(at / kKvRange) * range_stride_, memory_.data(), range_stride_);
  }

 private:
  KvType type_ = KvType::F16;
  int capacity_ = 0;
  size_t kv_heads_ = 0, part_bytes_ = 0, range_stride_ = 0;
  AlignedBuffer memory_;
};

}  // namespace pop
