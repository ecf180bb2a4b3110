// For tests only: the AVX-512 sources of kernels/x86 on a CPU that has no more than AVX2, through SIMDe, so that they run in
// CI on any machine. Included before everything else (-include); pretends to the sources that AVX-512 is there. What SIMDe
// 0.7.4 lacks of it stands below, plainly written.
#pragma once
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

// The sources choose by these.
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define __AVX512VNNI__ 1

#define POP_EMULATED [[maybe_unused]] __attribute__((always_inline)) static inline

namespace pop::simde {
namespace {

template <class Whole, class Half>
POP_EMULATED Whole join(Half a, Half b) {
  static_assert(sizeof(Whole) == 2 * sizeof(Half));
  Whole v;
  __builtin_memcpy(&v, &a, sizeof a);
  __builtin_memcpy(reinterpret_cast<char*>(&v) + sizeof a, &b, sizeof b);
  return v;
}
template <class Half, class Whole>
POP_EMULATED Half part(const Whole& v, int index) {
  Half h;
  __builtin_memcpy(&h, reinterpret_cast<const char*>(&v) + size_t(index) * sizeof h, sizeof h);
  return h;
}
template <class T, int N>
struct Lanes {
  T v[N];
};
using Floats = Lanes<float, 16>;
using Ints = Lanes<int32_t, 16>;
using Doubles = Lanes<double, 8>;

POP_EMULATED __m512 cvtph_ps(__m256i v) {
  return join<__m512>(_mm256_cvtph_ps(part<__m128i>(v, 0)), _mm256_cvtph_ps(part<__m128i>(v, 1)));
}
POP_EMULATED __m512 cvtepi32_ps(__m512i v) {
  return join<__m512>(_mm256_cvtepi32_ps(part<__m256i>(v, 0)), _mm256_cvtepi32_ps(part<__m256i>(v, 1)));
}
POP_EMULATED __m512i cvtps_epi32(__m512 v) {
  return join<__m512i>(_mm256_cvtps_epi32(part<__m256>(v, 0)), _mm256_cvtps_epi32(part<__m256>(v, 1)));
}
POP_EMULATED __m512d cvtps_pd(__m256 v) {
  return join<__m512d>(_mm256_cvtps_pd(part<__m128>(v, 0)), _mm256_cvtps_pd(part<__m128>(v, 1)));
}
POP_EMULATED __m512i cvtepi8_epi32(__m128i v) {
  return join<__m512i>(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}
POP_EMULATED __m512i cvtepu8_epi32(__m128i v) {
  return join<__m512i>(_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)));
}
POP_EMULATED __m512i cvtepu16_epi32(__m256i v) {
  return join<__m512i>(_mm256_cvtepu16_epi32(part<__m128i>(v, 0)), _mm256_cvtepu16_epi32(part<__m128i>(v, 1)));
}
POP_EMULATED __m256 extractf32x8_ps(__m512 v, int index) { return part<__m256>(v, index); }
POP_EMULATED __m512i zextsi256_si512(__m256i v) { return join<__m512i>(v, _mm256_setzero_si256()); }
POP_EMULATED __m512i zextsi128_si512(__m128i v) { return zextsi256_si512(join<__m256i>(v, _mm_setzero_si128())); }
POP_EMULATED __m512i srai_epi32(__m512i v, int count) {
  const __m128i n = _mm_cvtsi32_si128(count);
  return join<__m512i>(_mm256_sra_epi32(part<__m256i>(v, 0), n), _mm256_sra_epi32(part<__m256i>(v, 1), n));
}
POP_EMULATED __m512i cvtepu16_epi64(__m128i v) {
  return join<__m512i>(_mm256_cvtepu16_epi64(v), _mm256_cvtepu16_epi64(_mm_srli_si128(v, 8)));
}
POP_EMULATED __m256i cvtepi32_epi16(__m512i v) {
  const auto words = part<Lanes<int16_t, 32>>(v, 0);
  Lanes<int16_t, 16> lanes;
  for (int i = 0; i < 16; ++i) lanes.v[i] = words.v[2 * i];
  return part<__m256i>(lanes, 0);
}
POP_EMULATED __mmask32 mask_cmplt_epi16_mask(__mmask32 mask, __m512i a, __m512i b) {
  const auto left = part<Lanes<int16_t, 32>>(a, 0), right = part<Lanes<int16_t, 32>>(b, 0);
  uint32_t less = 0;
  for (int i = 0; i < 32; ++i) less |= (left.v[i] < right.v[i] ? 1u : 0u) << i;
  return mask & less;
}
// Quarters of 128 bits: two of a, then two of b.
POP_EMULATED __m512i shuffle_i64x2(__m512i a, __m512i b, int choice) {
  return join<__m512i>(join<__m256i>(part<__m128i>(a, choice & 3), part<__m128i>(a, choice >> 2 & 3)),
                       join<__m256i>(part<__m128i>(b, choice >> 4 & 3), part<__m128i>(b, choice >> 6 & 3)));
}
// As the instruction, in steps that halve the vector.
template <class Result, int N, class T>
POP_EMULATED T reduce_add(const Result& v) {
  auto lanes = part<Lanes<T, N>>(v, 0);
  for (int n = N / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes.v[i] += lanes.v[i + n];
  return lanes.v[0];
}
POP_EMULATED double reduce_add_pd(__m512d v) { return reduce_add<__m512d, 8, double>(v); }
POP_EMULATED float reduce_add_ps(__m512 v) { return reduce_add<__m512, 16, float>(v); }
POP_EMULATED int reduce_add_epi32(__m512i v) { return int(reduce_add<__m512i, 16, uint32_t>(v)); }
POP_EMULATED uint32_t reduce_max_epu32(__m512i v) {
  const auto lanes = part<Lanes<uint32_t, 16>>(v, 0);
  uint32_t top = 0;
  for (const uint32_t lane : lanes.v) top = lane > top ? lane : top;
  return top;
}
POP_EMULATED __m512 maskz_loadu_ps(__mmask16 mask, const void* p) {
  Floats lanes{};
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) lanes.v[i] = static_cast<const float*>(p)[i];
  return part<__m512>(lanes, 0);
}
POP_EMULATED __m512i maskz_loadu_epi32(__mmask16 mask, const void* p) {
  Ints lanes{};
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) lanes.v[i] = static_cast<const int32_t*>(p)[i];
  return part<__m512i>(lanes, 0);
}
POP_EMULATED __m256i maskz_loadu_epi16(__mmask16 mask, const void* p) {
  Lanes<int16_t, 16> lanes{};
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) lanes.v[i] = static_cast<const int16_t*>(p)[i];
  return part<__m256i>(lanes, 0);
}
POP_EMULATED void mask_storeu_ps(void* p, __mmask16 mask, __m512 v) {
  const auto lanes = part<Floats>(v, 0);
  for (int i = 0; i < 16; ++i)
    if ((mask >> i & 1) != 0) static_cast<float*>(p)[i] = lanes.v[i];
}
// kinds: only 0x99, NaNs and infinities.
POP_EMULATED __mmask16 fpclass_ps_mask(__m512 v, int) {
  const auto bits = part<Lanes<uint32_t, 16>>(v, 0);
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= ((bits.v[i] & 0x7f800000u) == 0x7f800000u ? 1u : 0u) << i;
  return __mmask16(mask);
}
POP_EMULATED __m512 i32gather_ps(__m512i index, const void* p, int scale) {
  const auto at = part<Ints>(index, 0);
  Floats lanes;
  for (int i = 0; i < 16; ++i)
    __builtin_memcpy(lanes.v + i, static_cast<const char*>(p) + ptrdiff_t(at.v[i]) * scale, 4);
  return part<__m512>(lanes, 0);
}

}  // namespace
}  // namespace pop::simde

#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(v) pop::simde::cvtph_ps(v)
// To nearest whatever is asked for: the sources ask for nothing else.
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(v, rounding)                                                                    \
  pop::simde::join<__m256i>(_mm256_cvtps_ph(pop::simde::part<__m256>(v, 0), _MM_FROUND_TO_NEAREST_INT), \
                            _mm256_cvtps_ph(pop::simde::part<__m256>(v, 1), _MM_FROUND_TO_NEAREST_INT))
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) pop::simde::cvtepi32_ps(v)
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(v) pop::simde::cvtps_epi32(v)
#undef _mm512_cvtps_pd
#define _mm512_cvtps_pd(v) pop::simde::cvtps_pd(v)
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(v) pop::simde::cvtepi8_epi32(v)
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(v) pop::simde::cvtepu8_epi32(v)
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(v) pop::simde::cvtepu16_epi32(v)
#undef _mm512_cvtepu16_epi64
#define _mm512_cvtepu16_epi64(v) pop::simde::cvtepu16_epi64(v)
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16(v) pop::simde::cvtepi32_epi16(v)
#undef _mm512_mask_cmplt_epi16_mask
#define _mm512_mask_cmplt_epi16_mask(mask, a, b) pop::simde::mask_cmplt_epi16_mask(mask, a, b)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(v, index) pop::simde::extractf32x8_ps(v, index)
#undef _mm512_zextsi256_si512
#define _mm512_zextsi256_si512(v) pop::simde::zextsi256_si512(v)
#undef _mm512_zextsi128_si512
#define _mm512_zextsi128_si512(v) pop::simde::zextsi128_si512(v)
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(v, count) pop::simde::srai_epi32(v, int(count))
#undef _mm512_reduce_add_pd
#define _mm512_reduce_add_pd(v) pop::simde::reduce_add_pd(v)
#undef _mm512_reduce_add_ps
#define _mm512_reduce_add_ps(v) pop::simde::reduce_add_ps(v)
#undef _mm512_reduce_add_epi32
#define _mm512_reduce_add_epi32(v) pop::simde::reduce_add_epi32(v)
#undef _mm512_reduce_max_epu32
#define _mm512_reduce_max_epu32(v) pop::simde::reduce_max_epu32(v)
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps(mask, p) pop::simde::maskz_loadu_ps(mask, p)
#undef _mm512_maskz_loadu_epi32
#define _mm512_maskz_loadu_epi32(mask, p) pop::simde::maskz_loadu_epi32(mask, p)
#undef _mm256_maskz_loadu_epi16
#define _mm256_maskz_loadu_epi16(mask, p) pop::simde::maskz_loadu_epi16(mask, p)
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps(p, mask, v) pop::simde::mask_storeu_ps(p, mask, v)
#undef _mm512_fpclass_ps_mask
#define _mm512_fpclass_ps_mask(v, kinds) pop::simde::fpclass_ps_mask(v, kinds)
#undef _mm512_i32gather_ps
#define _mm512_i32gather_ps(index, p, scale) pop::simde::i32gather_ps(index, p, scale)
#undef _mm512_shuffle_i64x2
#define _mm512_shuffle_i64x2(a, b, choice) pop::simde::shuffle_i64x2(a, b, choice)
// SIMDe 0.7.4 gives this name to another function by mistake.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
// A macro with arguments would take the commas of template arguments for its own.
#undef _mm512_castsi512_si256
#define _mm512_castsi512_si256 simde_mm512_castsi512_si256
