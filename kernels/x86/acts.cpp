// Preparing x: blocks of 32 to 8-bit codes, the same bytes as the scalar table's.
#include "kernels/acts.h"
#include "kernels/x86/isa.h"
#include "kernels/x86/simd.h"

namespace pop::POP_ISA {
namespace {

// 32 floats as two or four vectors.
constexpr int kParts = 32 / kLanes;

#ifdef __AVX512F__
POP_INLINE VF largest_size(VF a, VF b) {  // by bits: an infinity is above every number, a NaN above both
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(abs(a)), _mm512_castps_si512(abs(b))));
}
POP_INLINE uint32_t largest_bits(VF v) { return _mm512_reduce_max_epu32(_mm512_castps_si512(v)); }
POP_INLINE VI to_int(VF v) { return _mm512_cvtps_epi32(v); }
POP_INLINE void store_bytes(const VI* v, int8_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(v[0]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm512_cvtsepi32_epi8(v[1]));
}
POP_INLINE int32_t sum_half(const VI* v) { return _mm512_reduce_add_epi32(v[0]); }
#else
POP_INLINE VF largest_size(VF a, VF b) {
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(abs(a)), _mm256_castps_si256(abs(b))));
}
POP_INLINE uint32_t largest_bits(VF v) {
  const __m256i bits = _mm256_castps_si256(v);
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return uint32_t(_mm_cvtsi128_si32(m));
}
POP_INLINE VI to_int(VF v) { return _mm256_cvtps_epi32(v); }
POP_INLINE void store_bytes(const VI* v, int8_t* out) {
  const __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}
POP_INLINE int32_t sum_half(const VI* v) {
  const __m256i s = _mm256_add_epi32(v[0], v[1]);
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
  return _mm_cvtsi128_si32(t);
}
#endif

struct Block {
  alignas(32) int8_t low[32];
  alignas(32) int8_t high[32];
  int32_t half_sum[2];
  float scale;
};

template <bool TwoPlanes>
POP_INLINE void pack_block(const float* x, Block& out) {
  VF v[kParts], top = zero();
  for (int i = 0; i < kParts; ++i) {
    v[i] = load(x + i * kLanes);
    top = largest_size(top, v[i]);
  }
  const uint32_t bits = largest_bits(top);
  float size;
  __builtin_memcpy(&size, &bits, 4);
  const float steps = TwoPlanes ? kMaxCode16 : kMaxCode8;
  const bool finite = bits < 0x7f800000u, live = finite && size >= kTinyBlock;
  out.scale = live ? size / steps : finite ? 0.f : __builtin_nanf("");
  const VF inverse = set1(live ? steps / size : 0.f);
  VI low[kParts], high[kParts], all[kParts];
  for (int i = 0; i < kParts; ++i) {
    // Of a dead block x may be infinite: zeros by selection, not by multiplication.
    const VF q = live ? round(mul(v[i], inverse)) : zero();
    const VF h = TwoPlanes ? round(mul(q, set1(1.f / kHighStep))) : zero();
    all[i] = to_int(q);
    high[i] = to_int(h);
    low[i] = to_int(sub(q, mul(h, set1(float(kHighStep)))));
  }
  store_bytes(low, out.low);
  if constexpr (TwoPlanes) store_bytes(high, out.high);
  for (int i = 0; i < 2; ++i) out.half_sum[i] = sum_half(all + i * kParts / 2);
}

POP_INLINE void place_words(const int8_t* from, int8_t* to, size_t step) {
  for (int s = 0; s < 8; ++s) __builtin_memcpy(to + size_t(s) * step, from + 4 * s, 4);
}

template <bool TwoPlanes>
void pack_integer(Layout layout, const float* x, int cols, uint8_t* out) {
  const int blocks = cols / 32;
  const size_t codes = pad_line(size_t(cols)), values = pad_line(size_t(blocks) * 4);
  int8_t* low = reinterpret_cast<int8_t*>(out);
  int8_t* high = low + codes;
  uint8_t* tail = out + (TwoPlanes ? 2 : 1) * codes;
  float* scale = reinterpret_cast<float*>(tail);
  int32_t* sum = reinterpret_cast<int32_t*>(tail + values);
  float* scaled_sum = reinterpret_cast<float*>(tail + 2 * values);
  int32_t* half_sum = reinterpret_cast<int32_t*>(tail + 3 * values);
  Block block;
  for (int first = 0; first < blocks;) {
    const int left = blocks - first, n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    for (int lane = 0; lane < n; ++lane) {
      const int b = first + lane;
      pack_block<TwoPlanes>(x + b * 32, block);
      const bool rows = layout == Layout::Rows;
      const size_t at = rows ? size_t(first) * 32 + 4 * size_t(lane) : size_t(b) * 32, step = rows ? 4 * size_t(n) : 4;
      place_words(block.low, low + at, step);
      if constexpr (TwoPlanes) place_words(block.high, high + at, step);
      scale[b] = block.scale;
      sum[b] = block.half_sum[0] + block.half_sum[1];
      scaled_sum[b] = block.scale * float(sum[b]);
      half_sum[b] = block.half_sum[0];
    }
    first += n;
  }
  for (size_t i = size_t(cols); i < codes; ++i) {
    low[i] = 0;
    if constexpr (TwoPlanes) high[i] = 0;
  }
  for (size_t i = size_t(blocks); i < values / 4; ++i) scale[i] = scaled_sum[i] = 0, sum[i] = half_sum[i] = 0;
}

}  // namespace

void pack_acts(ActType type, Layout layout, const float* x, int cols, uint8_t* out) {
  if (type == ActType::I8) return pack_integer<false>(layout, x, cols, out);
  if (type == ActType::I16) return pack_integer<true>(layout, x, cols, out);
  __builtin_memcpy(out, x, size_t(cols) * 4);
  for (size_t i = size_t(cols) * 4; i < pad_line(size_t(cols) * 4); ++i) out[i] = 0;
}

}  // namespace pop::POP_ISA
