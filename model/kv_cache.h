// Keys and values of one sequence: [layers][kv_heads][capacity][head_dim] of one type, keys and values apart.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "model/spec.h"

namespace pop {

inline size_t kv_element_bytes(KvType type) { return type == KvType::F32 ? 4 : 2; }

class KvCache {
 public:
  KvCache() = default;
  KvCache(const ModelSpec& spec, KvType type, int capacity)
      : type_(type),
        capacity_(capacity),
        head_bytes_(size_t(capacity) * size_t(spec.head_dim) * kv_element_bytes(type)),
        row_bytes_(size_t(spec.head_dim) * kv_element_bytes(type)),
        kv_heads_(spec.kv_heads),
        keys_(head_bytes_ * size_t(spec.kv_heads) * size_t(spec.layers), AlignedBuffer::Pages::Small),
        values_(head_bytes_ * size_t(spec.kv_heads) * size_t(spec.layers), AlignedBuffer::Pages::Small) {}

  KvType type() const { return type_; }
  int capacity() const { return capacity_; }
  // First position of one head; rows of head_dim follow each other.
  uint8_t* key_head(int layer, int head) const { return keys_.data() + head_index(layer, head) * head_bytes_; }
  uint8_t* value_head(int layer, int head) const { return values_.data() + head_index(layer, head) * head_bytes_; }
  uint8_t* key(int layer, int head, int position) const {
    return key_head(layer, head) + size_t(position) * row_bytes_;
  }
  uint8_t* value(int layer, int head, int position) const {
    return value_head(layer, head) + size_t(position) * row_bytes_;
  }
  // Fills positions [length, target) of every head by repeating the first `length`: a long context for benchmarks.
  void repeat(int layers, int length, int target) {
    for (int head = 0; head < layers * kv_heads_; ++head)
      for (int at = length; at < target; ++at) {
        const size_t to = size_t(at) * row_bytes_, from = size_t((at - length) % length) * row_bytes_;
        std::memcpy(key_head(0, head) + to, key_head(0, head) + from, row_bytes_);
        std::memcpy(value_head(0, head) + to, value_head(0, head) + from, row_bytes_);
      }
  }

 private:
  size_t head_index(int layer, int head) const { return size_t(layer) * size_t(kv_heads_) + size_t(head); }
  KvType type_ = KvType::F16;
  int capacity_ = 0;
  size_t head_bytes_ = 0, row_bytes_ = 0;
  int kv_heads_ = 0;
  AlignedBuffer keys_, values_;  // zero pages until written: an unused context costs address space only
};

}  // namespace pop
