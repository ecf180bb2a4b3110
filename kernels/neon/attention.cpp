// Attention of one token's query heads that share a key-value head. Sums over positions run in ascending order, sums over a
// head's dimensions in one order; neither depends on what else is computed.
#include "kernels/neon/isa.h"
#include "kernels/neon/simd.h"
#include "kernels/ref/ref.h"

namespace pop::POP_ISA {
namespace {

// One key at a time for all heads: it is widened again per head, but comes from memory once.
template <DType T>
POP_INLINE float dot(const float* q, const uint8_t* key, int dim) {
  VF s[2] = {zero(), zero()};
  int i = 0;
  for (int k = 0; i + kLanes <= dim; i += kLanes, k ^= 1)
    s[k] = fma(load(q + i), load_plain<T>(key + size_t(i) * kPlainBytes<T>), s[k]);
  if (i < dim)
    s[0] = fma(load_first(q + i, dim - i), load_plain_first<T>(key + size_t(i) * kPlainBytes<T>, dim - i), s[0]);
  return sum(add(s[0], s[1]));
}

// Scores to exp(score - largest); returns 1 / their sum.
float to_weights(float* score, int count) {
  VF m = set1(score[0]);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) m = max(m, load(score + i));
  float top = largest(m);
  for (; i < count; ++i) top = score[i] > top ? score[i] : top;
  VF total = zero();
  for (i = 0; i + kLanes <= count; i += kLanes) {
    const VF e = exp(sub(load(score + i), set1(top)));
    store(score + i, e);
    total = add(total, e);
  }
  if (i < count) {
    store_first(score + i, count - i, exp(sub(load_first(score + i, count - i), set1(top))));
    total = add(total, load_first(score + i, count - i));
  }
  return 1.f / sum(total);
}

// out += weight * value
template <DType T>
POP_INLINE void add_value(float weight, const uint8_t* value, int dim, float* out) {
  const VF w = set1(weight);
  int i = 0;
  for (; i + kLanes <= dim; i += kLanes)
    store(out + i, fma(w, load_plain<T>(value + size_t(i) * kPlainBytes<T>), load(out + i)));
  if (i < dim) {
    const VF v = load_plain_first<T>(value + size_t(i) * kPlainBytes<T>, dim - i);
    store_first(out + i, dim - i, fma(w, v, load_first(out + i, dim - i)));
  }
}

template <DType T>
void attend(const AttentionArgs& a) {
  const int count = a.keys - a.first, dim = a.head_dim;
  const size_t bytes = size_t(dim) * kPlainBytes<T>;
  const uint8_t* keys = static_cast<const uint8_t*>(a.k) + size_t(a.first) * bytes;
  const uint8_t* values = static_cast<const uint8_t*>(a.v) + size_t(a.first) * bytes;
  for (int t = 0; t < count; ++t)
    for (int g = 0; g < a.group; ++g)
      a.scratch[size_t(g) * size_t(count) + size_t(t)] = a.scale * dot<T>(a.q + g * dim, keys + size_t(t) * bytes, dim);
  for (int g = 0; g < a.group; ++g) {
    float* weight = a.scratch + size_t(g) * size_t(count);
    const float inverse = to_weights(weight, count);
    for (int t = 0; t < count; ++t) weight[t] *= inverse;
  }
  for (int i = 0; i < a.group * dim; ++i) a.out[i] = 0;
  for (int t = 0; t < count; ++t)
    for (int g = 0; g < a.group; ++g)
      add_value<T>(a.scratch[size_t(g) * size_t(count) + size_t(t)], values + size_t(t) * bytes, dim, a.out + g * dim);
}

}  // namespace

void store_kv(const float* x, int n, KvType type, void* out) {
  if (type != KvType::F16) return ref::store_kv(x, n, type, out);
  uint16_t* halves = static_cast<uint16_t*>(out);
  int i = 0;
  for (; i + 4 <= n; i += 4) vst1_u16(halves + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
  for (; i < n; ++i) halves[i] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x[i]))), 0);
}

void attention(const AttentionArgs& args) {
  switch (args.type) {
    case KvType::F32: return attend<DType::F32>(args);
    case KvType::F16: return attend<DType::F16>(args);
    case KvType::BF16: return attend<DType::BF16>(args);
    default: return ref::attention(args);
  }
}

}  // namespace pop::POP_ISA
