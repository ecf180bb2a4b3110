// Attention over a range of positions, by key blocks. Of each query row every sum has one order: a score over the elements
// of a head, an output over the positions. Neither depends on the rows computed with it, nor on whether keys and values are
// widened from the cache as they are used (few rows: decode) or once for all rows (prefill); widening is exact.
#include "kernels/elementwise.h"
#include "kernels/x86/isa.h"
#include "kernels/x86/simd.h"

namespace pop::POP_ISA {
namespace {

// Query rows whose sums stand in registers together: reading the cache, and reading what was widened.
constexpr int kCacheRows = 4, kWideRows = kLanes == 16 ? 6 : 4;
// From so many rows on, widening once is cheaper than widening for every few rows.
constexpr int kFewRows = 8;
constexpr size_t kAhead = 2048;               // bytes: what is read next of the cache is fetched so far before
constexpr int kVectors = kKeyBlock / kLanes;  // of scores in a block

// Vectors side by side with `rows` rows: eight sums or more, to fill the time of an addition, as far as registers allow.
constexpr int together(int rows) { return kLanes == 16 ? 4 : rows == 1 ? 8 : rows == 4 ? 2 : 4; }

template <KvType K>
constexpr size_t kBytes = K == KvType::F32    ? 4
                          : K == KvType::Q8_0 ? 1
                                              : 2;
constexpr size_t kKeyGroup = size_t(kKeyBlock) * 34;  // bytes of 32 elements of a Q8_0 block of keys

template <KvType K>
POP_INLINE size_t position_bytes(int dim) {
  return K == KvType::Q8_0 ? size_t(dim) / 32 * 34 : size_t(dim) * kBytes<K>;
}

POP_INLINE const uint16_t* halves(const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); }

#ifdef __AVX512F__
POP_INLINE VF from_codes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
POP_INLINE float first_lane(VF v) { return _mm_cvtss_f32(_mm256_castps256_ps128(_mm512_castps512_ps256(v))); }
POP_INLINE __m256 fold_max(VF v) { return _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
#else
POP_INLINE VF from_codes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
POP_INLINE float first_lane(VF v) { return _mm256_cvtss_f32(v); }
POP_INLINE __m256 fold_max(VF v) { return v; }
#endif

POP_INLINE float top_lane(VF v) {
  const __m256 a = fold_max(v);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
POP_INLINE float exp_of(float x) { return first_lane(exp(set1(x))); }
POP_INLINE float half(const uint8_t* p) {
  uint16_t h;
  __builtin_memcpy(&h, p, 2);
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

// A vector of plain values; `n` of them where there are fewer.
template <KvType K>
POP_INLINE VF load_values(const uint8_t* p, int n) {
  constexpr DType T = K == KvType::F32 ? DType::F32 : K == KvType::F16 ? DType::F16 : DType::BF16;
  return n >= kLanes ? load_plain<T>(p) : load_plain_first<T>(p, n);
}

// Walks the elements of V vectors of keys, from vector `first` of a block on, calling use(element, vectors).
template <KvType K, int V, bool Ahead, class Use>
POP_INLINE void walk_keys(const uint8_t* keys, int first, int dim, Use&& use) {
  VF key[V];
  if constexpr (K == KvType::Q8_0) {
    keys += first * kLanes;
    for (int i0 = 0; i0 < dim; i0 += 32, keys += kKeyGroup) {
      VF scale[V];
      for (int v = 0; v < V; ++v) scale[v] = from_half(halves(keys + (first + 2 * v) * kLanes));
      for (int i = 0; i < 32; ++i) {
        const uint8_t* p = keys + (2 + i) * kKeyBlock;
        if (Ahead) POP_PREFETCH(p + kAhead);
        for (int v = 0; v < V; ++v) key[v] = mul(scale[v], from_codes(p + v * kLanes));
        use(i0 + i, key);
      }
    }
  } else {
    keys += size_t(first * kLanes) * kBytes<K>;
    for (int i = 0; i < dim; ++i, keys += kKeyBlock * kBytes<K>) {
      if (Ahead)
        for (size_t line = 0; line < size_t(V * kLanes) * kBytes<K>; line += 64) POP_PREFETCH(keys + kAhead + line);
      for (int v = 0; v < V; ++v) key[v] = load_values<K>(keys + size_t(v * kLanes) * kBytes<K>, kLanes);
      use(i, key);
    }
  }
}

// score : [H][kKeyBlock] of a whole block; q : [dim][H].
template <KvType K, int H, bool Ahead>
POP_INLINE void block_scores(const uint8_t* keys, const float* q, int dim, float* score) {
  constexpr int V = together(H);
  for (int first = 0; first < kVectors; first += V) {
    VF sum[H][V];
    for (int h = 0; h < H; ++h)
      for (int v = 0; v < V; ++v) sum[h][v] = zero();
    walk_keys<K, V, Ahead>(
        keys, first, dim, [&](int i, const VF* key) __attribute__((always_inline)) {
          for (int h = 0; h < H; ++h) {
            const VF x = set1(q[i * H + h]);
            for (int v = 0; v < V; ++v) sum[h][v] = fma(x, key[v], sum[h][v]);
          }
        });
    for (int h = 0; h < H; ++h)
      for (int v = 0; v < V; ++v) store(score + h * kKeyBlock + (first + v) * kLanes, sum[h][v]);
  }
}

// The scores [from, n) of a block to weights, the others to 0; returns what earlier sums shrink by.
POP_INLINE float to_weights(float* score, int from, int n, float& top, float& total) {
  for (int j = 0; j < from; ++j) score[j] = -__builtin_inff();
  for (int j = n; j < kKeyBlock; ++j) score[j] = -__builtin_inff();
  VF v[kVectors], most = load(score);
  for (int i = 0; i < kVectors; ++i) {
    v[i] = load(score + i * kLanes);
    most = max(most, v[i]);
  }
  const float block_top = top_lane(most), largest = block_top > top ? block_top : top;
  const float shrink = exp_of(top - largest);
  top = largest;
  VF sums = zero();
  for (int i = 0; i < kVectors; ++i) {
    v[i] = exp(sub(v[i], set1(top)));
    store(score + i * kLanes, v[i]);
  }
  for (int j = 0; j < from; ++j) score[j] = 0;
  for (int j = n; j < kKeyBlock; ++j) score[j] = 0;
  const bool whole = from == 0 && n == kKeyBlock;
  for (int i = 0; i < kVectors; ++i) sums = add(sums, whole ? v[i] : load(score + i * kLanes));
  total = total * shrink + sum(sums);
  return shrink;
}

// V vectors of the outputs of H rows, from element i on: shrunk, then n positions added. `last`: elements of the last vector.
template <KvType K, int H, int V, bool Ahead>
POP_INLINE void mix(const uint8_t* values, int dim, int n, const float* weight, const float* shrink, int i, int last,
                    float* out) {
  const size_t row = position_bytes<K>(dim);
  VF sum[H][V];
  for (int h = 0; h < H; ++h)
    for (int v = 0; v < V; ++v)
      sum[h][v] = mul(set1(shrink[h]), last < kLanes ? load_first(out + h * dim + i + v * kLanes, last)
                                                     : load(out + h * dim + i + v * kLanes));
  for (int t = 0; t < n; ++t) {
    const uint8_t* p = values + size_t(t) * row;
    VF value[V];
    for (int v = 0; v < V; ++v) {
      const int e = i + v * kLanes;
      if constexpr (K == KvType::Q8_0) {
        value[v] = mul(set1(half(p + e / 32 * 2)), from_codes(p + dim / 32 * 2 + e));
      } else {
        value[v] = load_values<K>(p + size_t(e) * kBytes<K>, last);
      }
    }
    if (Ahead)
      for (size_t line = 0; line < size_t(V * kLanes) * kBytes<K>; line += 64)
        POP_PREFETCH(p + kAhead + size_t(i) * kBytes<K> + line);
    for (int h = 0; h < H; ++h) {
      const VF w = set1(weight[h * kKeyBlock + t]);
      for (int v = 0; v < V; ++v) sum[h][v] = fma(w, value[v], sum[h][v]);
    }
  }
  for (int h = 0; h < H; ++h)
    for (int v = 0; v < V; ++v) store_first(out + h * dim + i + v * kLanes, last, sum[h][v]);
}

// A key block, as one tile of rows sees it.
struct Block {
  const uint8_t *keys, *values;
  int begin, count;  // positions
};

// Rows row .. row + H of the call, their q as [dim][H].
template <KvType K, int H, bool Ahead>
void tile(const AttentionArgs& a, const Block& b, int row, const float* q) {
  alignas(64) float score[H * kKeyBlock];
  float shrink[H];
  const int dim = a.head_dim;
  block_scores<K, H, Ahead>(b.keys, q, dim, score);
  for (int j = 0; a.cap != 0 && j < H * kKeyBlock; j += kLanes)
    store(score + j, soft_capped(load(score + j), set1(a.cap)));
  int most = 0;
  for (int h = 0; h < H; ++h) {
    const int seen = a.position + (row + h) / a.group + 1 - b.begin, n = seen < b.count ? seen : b.count;
    const int from = a.window == 0 || seen <= a.window ? 0 : seen - a.window;
    if (n <= from) {  // a token before this block, or one whose window lies past it
      for (int j = 0; j < kKeyBlock; ++j) score[h * kKeyBlock + j] = 0;
      shrink[h] = 1.f;
      continue;
    }
    shrink[h] = to_weights(score + h * kKeyBlock, from, n, a.tops[row + h], a.totals[row + h]);
    most = n > most ? n : most;
  }
  float* out = a.out + size_t(row) * size_t(dim);
  constexpr int V = together(H);
  int i = 0;
  for (; i + V * kLanes <= dim; i += V * kLanes)
    mix<K, H, V, Ahead>(b.values, dim, most, score, shrink, i, kLanes, out);
  for (; i < dim; i += kLanes) {
    const int left = dim - i;
    mix<K, H, 1, Ahead>(b.values, dim, most, score, shrink, i, left < kLanes ? left : kLanes, out);
  }
}

// All rows from `row` on, Most at a time.
template <KvType K, int Most, bool Ahead>
void tiles(const AttentionArgs& a, const Block& b, int row, const float* q) {
  const int rows = a.tokens * a.group;
  for (; row + Most <= rows; row += Most) tile<K, Most, Ahead>(a, b, row, q + size_t(row) * size_t(a.head_dim));
  const float* rest = q + size_t(row) * size_t(a.head_dim);
  switch (rows - row) {
    case 1: return tile<K, 1, Ahead>(a, b, row, rest);
    case 2: return tile<K, 2, Ahead>(a, b, row, rest);
    case 3: return tile<K, 3, Ahead>(a, b, row, rest);
    default: break;
  }
  if constexpr (Most > 4) {
    if (rows - row == 4) return tile<K, 4, Ahead>(a, b, row, rest);
    if (rows - row == 5) return tile<K, 5, Ahead>(a, b, row, rest);
  }
}

// Queries times the scale, element by element over each tile of `most` rows.
void arrange_queries(const AttentionArgs& a, int most, float* to) {
  const int rows = a.tokens * a.group, dim = a.head_dim;
  for (int row = 0; row < rows; row += most) {
    const int tile_rows = rows - row < most ? rows - row : most;
    float* const tile_q = to + size_t(row) * size_t(dim);
    for (int h = 0; h < tile_rows; ++h) {
      const int token = (row + h) / a.group, head = (row + h) % a.group;
      const float* q = a.q + size_t(token) * a.q_stride + size_t(head) * size_t(dim);
      for (int i = 0; i < dim; ++i) tile_q[i * tile_rows + h] = q[i] * a.scale;
    }
  }
}

// Keys (a whole key block) and values (n positions) as float32 in the order of the cache.
template <KvType K>
void widen(const uint8_t* keys, const uint8_t* values, int dim, int n, float* wide_keys, float* wide_values) {
  for (int v = 0; v < kVectors; ++v) {
    float* to = wide_keys + v * kLanes;
    walk_keys<K, 1, false>(
        keys, v, dim, [&](int i, const VF* key) __attribute__((always_inline)) { store(to + i * kKeyBlock, key[0]); });
  }
  for (int t = 0; t < n; ++t) {
    const uint8_t* p = values + size_t(t) * position_bytes<K>(dim);
    float* to = wide_values + size_t(t) * size_t(dim);
    for (int i = 0; i < dim; i += kLanes) {
      if constexpr (K == KvType::Q8_0) {
        store(to + i, mul(set1(half(p + i / 32 * 2)), from_codes(p + dim / 32 * 2 + i)));
      } else {
        const int left = dim - i < kLanes ? dim - i : kLanes;
        store_first(to + i, left, load_values<K>(p + size_t(i) * kBytes<K>, left));
      }
    }
  }
}

template <KvType K>
void attend(const AttentionArgs& a) {
  const int rows = a.tokens * a.group, dim = a.head_dim;
  const bool few = rows <= kFewRows;
  const int most = few ? kCacheRows : kWideRows;
  float* const q = a.scratch;
  float* const wide_keys = q + (size_t(rows) * size_t(dim) + 15) / 16 * 16;
  float* const wide_values = wide_keys + size_t(kKeyBlock) * size_t(dim);
  arrange_queries(a, most, q);
  for (int r = 0; r < rows; ++r) a.tops[r] = -__builtin_inff(), a.totals[r] = 0;
  for (size_t i = 0; i < size_t(rows) * size_t(dim); ++i) a.out[i] = 0;
  const int seen = a.position + a.tokens, end = seen < a.last ? seen : a.last;
  for (int begin = a.first; begin < end; begin += kKeyBlock) {
    const int n = end - begin < kKeyBlock ? end - begin : kKeyBlock;
    const size_t at = size_t(begin / kKvRange) * a.range_stride + size_t(begin % kKvRange) * position_bytes<K>(dim);
    Block b{static_cast<const uint8_t*>(a.keys) + at, static_cast<const uint8_t*>(a.values) + at, begin, n};
    const int blind = begin > a.position ? (begin - a.position) * a.group : 0;  // rows of tokens before the block
    if (few) {
      tiles<K, kCacheRows, true>(a, b, blind / most * most, q);
      continue;
    }
    if constexpr (K != KvType::F32) {
      widen<K>(b.keys, b.values, dim, n, wide_keys, wide_values);
      b.keys = reinterpret_cast<const uint8_t*>(wide_keys);
      b.values = reinterpret_cast<const uint8_t*>(wide_values);
    }
    tiles<KvType::F32, kWideRows, false>(a, b, blind / most * most, q);
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  switch (args.type) {
    case KvType::F32: return attend<KvType::F32>(args);
    case KvType::F16: return attend<KvType::F16>(args);
    case KvType::BF16: return attend<KvType::BF16>(args);
    case KvType::Q8_0: return attend<KvType::Q8_0>(args);
  }
}

void attention_merge(const float* parts, size_t stride, const float* tops, const float* totals, size_t step, int count,
                     int head_dim, float* y) {
  float top = tops[0], total = 0;
  for (int p = 1; p < count; ++p) top = tops[size_t(p) * step] > top ? tops[size_t(p) * step] : top;
  for (int i = 0; i < head_dim; ++i) y[i] = 0;
  for (int p = 0; p < count; ++p) {
    const float share = exp_of(tops[size_t(p) * step] - top);
    total = __builtin_fmaf(share, totals[size_t(p) * step], total);
    const float* part = parts + size_t(p) * stride;
    int i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) store(y + i, fma(set1(share), load(part + i), load(y + i)));
    for (; i < head_dim; ++i) y[i] = __builtin_fmaf(share, part[i], y[i]);
  }
  const float inverse = 1.f / total;
  for (int i = 0; i < head_dim; ++i) y[i] *= inverse;
}

}  // namespace pop::POP_ISA
