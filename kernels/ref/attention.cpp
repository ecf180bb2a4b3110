// Keys and values in a cache, and attention over them: the specification. Plain loops over the positions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/kv.h"
#include "kernels/ref/ref.h"

namespace pop::ref {
namespace {

uint16_t load_half(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

float plain_at(KvType type, const uint8_t* p, size_t i) {
  if (type == KvType::F32) {
    float v;
    std::memcpy(&v, p + i * 4, 4);
    return v;
  }
  const uint16_t h = load_half(p + i * 2);
  return type == KvType::F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

void store_plain(KvType type, float x, uint8_t* p, size_t i) {
  if (type == KvType::F32) {
    std::memcpy(p + i * 4, &x, 4);
    return;
  }
  const uint16_t h = type == KvType::F16 ? f32_to_f16(x) : f32_to_bf16(x);
  std::memcpy(p + i * 2, &h, 2);
}

const uint8_t* bytes_of(const void* p) { return static_cast<const uint8_t*>(p); }

constexpr size_t kKeys = kKeyBlock;
constexpr size_t kKeyGroup = kKeys * 34;  // bytes of 32 elements of a Q8_0 block of keys

float key_at(KvType type, const uint8_t* keys, size_t dim, size_t t, size_t i) {
  const uint8_t* block = keys + t / kKeys * kKeys * kv_position_bytes(type, int(dim));
  const size_t lane = t % kKeys;
  if (type != KvType::Q8_0) return plain_at(type, block, i * kKeys + lane);
  const uint8_t* group = block + i / 32 * kKeyGroup;
  return f16_to_f32(load_half(group + 2 * lane)) * float(int8_t(group[2 * kKeys + i % 32 * kKeys + lane]));
}

float value_at(KvType type, const uint8_t* values, size_t dim, size_t t, size_t i) {
  const uint8_t* row = values + t * kv_position_bytes(type, int(dim));
  if (type != KvType::Q8_0) return plain_at(type, row, i);
  return f16_to_f32(load_half(row + i / 32 * 2)) * float(int8_t(row[dim / 32 * 2 + i]));
}

// 32 elements to codes, to the nearest, halves to the even one; returns the scale, largest size / 127. What is not finite
// makes the scale so, and is found in the logits.
uint16_t quantise(const float* x, int8_t* codes) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float d = largest / 127.f, inverse = d > 0 && std::isfinite(1.f / d) ? 1.f / d : 0.f;
  for (int i = 0; i < 32; ++i) codes[i] = finite ? int8_t(std::nearbyint(x[i] * inverse)) : int8_t(0);
  return f32_to_f16(finite ? d : NAN);
}

// One token's head over positions [first, end), by the key blocks that they lie in.
void attend(const AttentionArgs& a, const float* q, size_t first, size_t end, float* out, float& top, float& total) {
  const auto dim = size_t(a.head_dim);
  constexpr size_t kBlock = kKeyBlock;
  float score[kBlock];
  top = -INFINITY, total = 0;
  std::fill(out, out + dim, 0.f);
  for (size_t begin = first, count = 0; begin < end; begin += count) {
    count = std::min(kBlock - begin % kBlock, end - begin);
    const size_t at = begin % kKvRange;
    const uint8_t* keys = bytes_of(a.keys) + begin / kKvRange * a.range_stride;
    const uint8_t* values = bytes_of(a.values) + begin / kKvRange * a.range_stride;
    float largest = top;
    for (size_t j = 0; j < count; ++j) {
      score[j] = 0;
      for (size_t i = 0; i < dim; ++i) score[j] += q[i] * a.scale * key_at(a.type, keys, dim, at + j, i);
      if (a.cap != 0) score[j] = a.cap * std::tanh(score[j] / a.cap);
      largest = std::max(largest, score[j]);
    }
    const float shrink = std::exp(top - largest);
    top = largest;
    float sum = 0;
    for (size_t i = 0; i < dim; ++i) out[i] *= shrink;
    for (size_t j = 0; j < count; ++j) {
      const float weight = std::exp(score[j] - top);
      sum += weight;
      for (size_t i = 0; i < dim; ++i) out[i] += weight * value_at(a.type, values, dim, at + j, i);
    }
    total = total * shrink + sum;
  }
}

}  // namespace

void store_key(const float* x, int head_dim, KvType type, int position, void* keys) {
  const auto t = size_t(position), dim = size_t(head_dim), lane = t % kKeys;
  uint8_t* block = static_cast<uint8_t*>(keys) + t / kKeys * kKeys * kv_position_bytes(type, head_dim);
  if (type != KvType::Q8_0) {
    for (size_t i = 0; i < dim; ++i) store_plain(type, x[i], block, i * kKeys + lane);
    return;
  }
  for (size_t i = 0; i < dim; i += 32, block += kKeyGroup) {
    int8_t codes[32];
    const uint16_t scale = quantise(x + i, codes);
    std::memcpy(block + 2 * lane, &scale, 2);
    for (size_t e = 0; e < 32; ++e) block[2 * kKeys + e * kKeys + lane] = uint8_t(codes[e]);
  }
}

void store_value(const float* x, int head_dim, KvType type, int position, void* values) {
  const auto dim = size_t(head_dim);
  uint8_t* row = static_cast<uint8_t*>(values) + size_t(position) * kv_position_bytes(type, head_dim);
  if (type != KvType::Q8_0) {
    for (size_t i = 0; i < dim; ++i) store_plain(type, x[i], row, i);
    return;
  }
  for (size_t i = 0; i < dim; i += 32) {
    int8_t codes[32];
    const uint16_t scale = quantise(x + i, codes);
    std::memcpy(row + i / 32 * 2, &scale, 2);
    std::memcpy(row + dim / 32 * 2 + i, codes, 32);
  }
}

void attention(const AttentionArgs& a) {
  const auto dim = size_t(a.head_dim);
  for (int t = 0; t < a.tokens; ++t) {
    const int end = std::min(a.last, a.position + t + 1);
    const int first = a.window == 0 ? a.first : std::max(a.first, a.position + t + 1 - a.window);
    for (int g = 0; g < a.group; ++g) {
      const auto at = size_t(t) * size_t(a.group) + size_t(g);
      attend(a, a.q + size_t(t) * a.q_stride + size_t(g) * dim, size_t(first), size_t(end), a.out + at * dim,
             a.tops[at], a.totals[at]);
    }
  }
}

void attention_merge(const float* parts, size_t stride, const float* tops, const float* totals, size_t step, int count,
                     int head_dim, float* y) {
  float top = tops[0], total = 0;
  for (size_t p = 1; p < size_t(count); ++p) top = std::max(top, tops[p * step]);
  std::fill(y, y + head_dim, 0.f);
  for (size_t p = 0; p < size_t(count); ++p) {
    const float share = std::exp(tops[p * step] - top);
    total += share * totals[p * step];
    for (size_t i = 0; i < size_t(head_dim); ++i) y[i] += share * parts[p * stride + i];
  }
  for (int i = 0; i < head_dim; ++i) y[i] /= total;
}

}  // namespace pop::ref
