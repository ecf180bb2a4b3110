// Vectors of the instruction set this source is compiled for: kLanes floats, and the few operations the kernels share.
// Everything here has internal linkage: a definition shared between sources of different instruction sets could end up in
// code that runs before the CPU is known.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "tensor/block_format.h"

// Inline assembly, because GCC 12 deletes calls of helpers whose only effect is a prefetch intrinsic.
#define POP_PREFETCH(p) asm volatile("prefetcht0 %0" ::"m"(*reinterpret_cast<const char*>(p)))
#define POP_PREFETCH_L2(p) asm volatile("prefetcht1 %0" ::"m"(*reinterpret_cast<const char*>(p)))
#define POP_INLINE [[maybe_unused]] __attribute__((always_inline)) static inline

namespace pop::POP_ISA {
namespace {

POP_INLINE int at(const IndexList& list, int i) { return list.index != nullptr ? list.index[i] : i; }

#ifdef __AVX512F__

constexpr int kLanes = 16;
using VF = __m512;
using VI = __m512i;

POP_INLINE VF zero() { return _mm512_setzero_ps(); }
POP_INLINE VF set1(float v) { return _mm512_set1_ps(v); }
POP_INLINE VF load(const float* p) { return _mm512_loadu_ps(p); }
POP_INLINE VF load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p); }
POP_INLINE void store(float* p, VF v) { _mm512_storeu_ps(p, v); }
POP_INLINE void store_first(float* p, int n, VF v) { _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), v); }
POP_INLINE VF fma(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
POP_INLINE VF add(VF a, VF b) { return _mm512_add_ps(a, b); }
POP_INLINE VF sub(VF a, VF b) { return _mm512_sub_ps(a, b); }
POP_INLINE VF mul(VF a, VF b) { return _mm512_mul_ps(a, b); }
POP_INLINE VF div(VF a, VF b) { return _mm512_div_ps(a, b); }
POP_INLINE VF max(VF a, VF b) { return _mm512_max_ps(a, b); }  // b if either is NaN
POP_INLINE VF min(VF a, VF b) { return _mm512_min_ps(a, b); }  // b if either is NaN
POP_INLINE VF abs(VF a) { return _mm512_abs_ps(a); }
POP_INLINE VF round(VF a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
POP_INLINE VF power_of_two(VF n) { return _mm512_scalef_ps(_mm512_set1_ps(1.f), n); }  // n whole, in [-126, 127]
POP_INLINE VF from_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
POP_INLINE VF from_half_first(const uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p));
}
POP_INLINE VF widen_bf16(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
POP_INLINE VF from_bf16(const uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
POP_INLINE VF from_bf16_first(const uint16_t* p, int n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p));
}
POP_INLINE __m256 fold(VF v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
// Pairs (even place, odd place) of 2 * kLanes floats, and back.
POP_INLINE void load_pairs(const float* p, VF& even, VF& odd) {
  const VF a = load(p), b = load(p + kLanes);
  const VI e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = _mm512_permutex2var_ps(a, e, b);
  odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
POP_INLINE void store_pairs(float* p, VF even, VF odd) {
  const VI e = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  store(p, _mm512_permutex2var_ps(even, e, odd));
  store(p + kLanes, _mm512_permutex2var_ps(even, _mm512_add_epi32(e, _mm512_set1_epi32(8)), odd));
}

#else

constexpr int kLanes = 8;
using VF = __m256;
using VI = __m256i;

// Eight of these from place 8 - n on: n ones, then zeros.
alignas(64) constexpr int32_t kFirst[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
POP_INLINE __m256i first_mask(int n) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirst + 8 - n)); }

POP_INLINE VF zero() { return _mm256_setzero_ps(); }
POP_INLINE VF set1(float v) { return _mm256_set1_ps(v); }
POP_INLINE VF load(const float* p) { return _mm256_loadu_ps(p); }
POP_INLINE VF load_first(const float* p, int n) { return _mm256_maskload_ps(p, first_mask(n)); }
POP_INLINE void store(float* p, VF v) { _mm256_storeu_ps(p, v); }
POP_INLINE void store_first(float* p, int n, VF v) { _mm256_maskstore_ps(p, first_mask(n), v); }
POP_INLINE VF fma(VF a, VF b, VF c) { return _mm256_fmadd_ps(a, b, c); }
POP_INLINE VF add(VF a, VF b) { return _mm256_add_ps(a, b); }
POP_INLINE VF sub(VF a, VF b) { return _mm256_sub_ps(a, b); }
POP_INLINE VF mul(VF a, VF b) { return _mm256_mul_ps(a, b); }
POP_INLINE VF div(VF a, VF b) { return _mm256_div_ps(a, b); }
POP_INLINE VF max(VF a, VF b) { return _mm256_max_ps(a, b); }  // b if either is NaN
POP_INLINE VF min(VF a, VF b) { return _mm256_min_ps(a, b); }  // b if either is NaN
POP_INLINE VF abs(VF a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), a); }
POP_INLINE VF round(VF a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
POP_INLINE VF power_of_two(VF n) {  // n whole, in [-126, 127]
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
POP_INLINE __m128i first_halves(const uint16_t* p, int n) {
  uint16_t held[8] = {};
  for (int i = 0; i < n; ++i) held[i] = p[i];
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(held));
}
POP_INLINE VF from_half(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
POP_INLINE VF from_half_first(const uint16_t* p, int n) { return _mm256_cvtph_ps(first_halves(p, n)); }
POP_INLINE VF widen_bf16(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
POP_INLINE VF from_bf16(const uint16_t* p) { return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
POP_INLINE VF from_bf16_first(const uint16_t* p, int n) { return widen_bf16(first_halves(p, n)); }
POP_INLINE __m256 fold(VF v) { return v; }
POP_INLINE void load_pairs(const float* p, VF& even, VF& odd) {
  const VF a = load(p), b = load(p + kLanes);
  const VF low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
  even = _mm256_shuffle_ps(low, high, 0x88);
  odd = _mm256_shuffle_ps(low, high, 0xdd);
}
POP_INLINE void store_pairs(float* p, VF even, VF odd) {
  const VF low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  store(p, _mm256_permute2f128_ps(low, high, 0x20));
  store(p + kLanes, _mm256_permute2f128_ps(low, high, 0x31));
}

#endif

// The sums of four vectors, each always in this one order.
POP_INLINE __m128 sum4(VF a, VF b, VF c, VF d) {
  const __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
  return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
POP_INLINE float sum(VF v) { return _mm_cvtss_f32(sum4(v, v, v, v)); }

POP_INLINE float largest(VF v) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  float m = lanes[0];
  for (int i = 1; i < kLanes; ++i) m = lanes[i] > m ? lanes[i] : m;
  return m;
}

// Elements of a plain type, widened.
template <DType T>
POP_INLINE VF load_plain(const uint8_t* p) {
  if constexpr (T == DType::F32) return load(reinterpret_cast<const float*>(p));
  if constexpr (T == DType::F16) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (T == DType::BF16) return from_bf16(reinterpret_cast<const uint16_t*>(p));
}
template <DType T>
POP_INLINE VF load_plain_first(const uint8_t* p, int n) {
  if constexpr (T == DType::F32) return load_first(reinterpret_cast<const float*>(p), n);
  if constexpr (T == DType::F16) return from_half_first(reinterpret_cast<const uint16_t*>(p), n);
  if constexpr (T == DType::BF16) return from_bf16_first(reinterpret_cast<const uint16_t*>(p), n);
}
template <DType T>
constexpr int kPlainBytes = T == DType::F32 ? 4 : 2;

template <DType T>
constexpr bool kFourBit = T == DType::Q4_0 || T == DType::Q4_1;
// Bytes of a block's codes, and the number that stands for zero in the unsigned codes used by the integer products.
template <DType T>
constexpr int kCodeBytes = kFourBit<T> ? 16 : 32;

}  // namespace
}  // namespace pop::POP_ISA
