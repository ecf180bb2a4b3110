// How a cache of keys and values lies in memory; for one head of one layer of one sequence, a range of kKvRange
// positions after the other, and of each:
//  - values: position after position, each kv_position_bytes();
//  - keys: blocks of kKeyBlock positions, and in a block element after element, each of all its positions side by side, so
//    that a vector of scores is summed without ever adding across its lanes, and so that the block is read in one sweep. A
//    position takes as many bytes as a value.
//  - Q8_0: 32 consecutive elements share a half-float scale d, element = d * code. A value has its scales first, then its
//    codes. A block of keys has, for each 32 elements, kKeyBlock scales and then the codes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace pop {

// head_dim of Q8_0: a multiple of 32.
inline size_t kv_position_bytes(KvType type, int head_dim) {
  const auto dim = size_t(head_dim);
  switch (type) {
    case KvType::F32: return dim * 4;
    case KvType::F16:
    case KvType::BF16: return dim * 2;
    case KvType::Q8_0: return dim / 32 * 34;
  }
  return 0;
}

// Kernels read keys (and use none of them that is not there) up to whole blocks.
inline int kv_capacity(int positions) { return (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }

// Floats of AttentionArgs::scratch.
inline size_t attention_scratch(int tokens, int group, int head_dim) {
  return (size_t(tokens) * size_t(group) + 2 * size_t(kKeyBlock)) * size_t(head_dim) + 64;
}

}  // namespace pop
