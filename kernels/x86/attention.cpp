// Attention of one token's query heads that share a key-value head. Sums over positions run in ascending order, sums over a
// head's dimensions in one order; neither depends on what else is computed.
#include "kernels/x86/isa.h"
#include "kernels/x86/simd.h"

namespace pop::POP_ISA {
namespace {

// Query heads whose sums stand in registers while K and V are widened once for all of them.
constexpr int kHeads = kLanes == 16 ? 4 : 2;
constexpr int kKeys = 4;   // keys at a time
constexpr int kWidth = 4;  // vectors of the output at a time

template <KvType K>
constexpr DType kPlain = K == KvType::F32   ? DType::F32
                         : K == KvType::F16 ? DType::F16
                                            : DType::BF16;

template <KvType K>
POP_INLINE const uint8_t* position(const void* kv, int t, int dim) {
  return static_cast<const uint8_t*>(kv) + size_t(t) * size_t(dim) * size_t(kPlainBytes<kPlain<K>>);
}

// score[h][t - first] = scale * q_h . k_t for H heads.
template <KvType K, int H>
void head_scores(const AttentionArgs& a, const float* q, float* score) {
  constexpr DType T = kPlain<K>;
  const int count = a.keys - a.first, dim = a.head_dim;
  for (int t = 0; t < count; t += kKeys) {
    const uint8_t* key[kKeys];
    for (int j = 0; j < kKeys; ++j) key[j] = position<K>(a.k, a.first + (t + j < count ? t + j : count - 1), dim);
    VF s[H][kKeys];
    for (int h = 0; h < H; ++h)
      for (int j = 0; j < kKeys; ++j) s[h][j] = zero();
    for (int i = 0; i < dim; i += kLanes) {
      const int n = dim - i;
      for (int j = 0; j < kKeys; ++j) {
        const uint8_t* p = key[j] + size_t(i) * kPlainBytes<T>;
        const VF k = n >= kLanes ? load_plain<T>(p) : load_plain_first<T>(p, n);
        for (int h = 0; h < H; ++h)
          s[h][j] = fma(n >= kLanes ? load(q + h * dim + i) : load_first(q + h * dim + i, n), k, s[h][j]);
      }
    }
    for (int h = 0; h < H; ++h) {
      alignas(16) float sums[kKeys];
      _mm_store_ps(sums, _mm_mul_ps(sum4(s[h][0], s[h][1], s[h][2], s[h][3]), _mm_set1_ps(a.scale)));
      for (int j = 0; j < kKeys && t + j < count; ++j) score[size_t(h) * size_t(count) + size_t(t + j)] = sums[j];
    }
  }
}

// Scores to exp(score - largest); returns 1 / their sum.
float to_weights(float* score, int count) {
  float top = score[0];
  int i = 0;
  VF m = set1(top);
  for (; i + kLanes <= count; i += kLanes) m = max(m, load(score + i));
  top = largest(m);
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

// Outputs i .. i + W vectors of H heads; `whole`: all vectors are full.
template <KvType K, int H, int W>
POP_INLINE void mix_values(const AttentionArgs& a, const float* weight, const float* inverse, int i, int last,
                           float* out) {
  constexpr DType T = kPlain<K>;
  const int count = a.keys - a.first, dim = a.head_dim;
  VF s[H][W];
  for (int h = 0; h < H; ++h)
    for (int k = 0; k < W; ++k) s[h][k] = zero();
  for (int t = 0; t < count; ++t) {
    const uint8_t* value = position<K>(a.v, a.first + t, dim) + size_t(i) * kPlainBytes<T>;
    VF v[W];
    for (int k = 0; k < W; ++k) {
      const uint8_t* p = value + size_t(k * kLanes) * kPlainBytes<T>;
      v[k] = last < kLanes ? load_plain_first<T>(p, last) : load_plain<T>(p);
    }
    for (int h = 0; h < H; ++h) {
      const VF w = set1(weight[size_t(h) * size_t(count) + size_t(t)]);
      for (int k = 0; k < W; ++k) s[h][k] = fma(w, v[k], s[h][k]);
    }
  }
  for (int h = 0; h < H; ++h)
    for (int k = 0; k < W; ++k) store_first(out + h * dim + i + k * kLanes, last, mul(s[h][k], set1(inverse[h])));
}

template <KvType K, int H>
void attend(const AttentionArgs& a, int head) {
  const int count = a.keys - a.first, dim = a.head_dim;
  float* score = a.scratch + size_t(head) * size_t(count);
  float inverse[H];
  head_scores<K, H>(a, a.q + size_t(head) * size_t(dim), score);
  for (int h = 0; h < H; ++h) inverse[h] = to_weights(score + size_t(h) * size_t(count), count);
  float* out = a.out + size_t(head) * size_t(dim);
  int i = 0;
  for (; i + kWidth * kLanes <= dim; i += kWidth * kLanes) mix_values<K, H, kWidth>(a, score, inverse, i, kLanes, out);
  for (; i < dim; i += kLanes) mix_values<K, H, 1>(a, score, inverse, i, dim - i < kLanes ? dim - i : kLanes, out);
}

template <KvType K>
void attend_all(const AttentionArgs& a) {
  int head = 0;
  for (; head + kHeads <= a.group; head += kHeads) attend<K, kHeads>(a, head);
  if constexpr (kHeads == 4) {
    if (a.group - head == 3) return attend<K, 3>(a, head);
    if (a.group - head == 2) return attend<K, 2>(a, head);
  }
  if (a.group - head == 1) attend<K, 1>(a, head);
}

}  // namespace

void attention(const AttentionArgs& args) {
  switch (args.type) {
    case KvType::F32: return attend_all<KvType::F32>(args);
    case KvType::F16: return attend_all<KvType::F16>(args);
    case KvType::BF16: return attend_all<KvType::BF16>(args);
  }
}

}  // namespace pop::POP_ISA
