// The scales and mins of a chunk of N blocks in Rows as vectors of floats: lane i belongs to block i % N.
#pragma once
#include "kernels/x86/chunk.h"

namespace pop::POP_ISA {
namespace {

POP_INLINE double two_floats(const float* p) {
  double bits;
  __builtin_memcpy(&bits, p, 8);
  return bits;
}
POP_INLINE int word_of(const uint8_t* p) {
  int word;
  __builtin_memcpy(&word, p, 4);
  return word;
}
POP_INLINE __m128i load_half_vector(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

// half_floats, floats, bytes: all lanes filled. only_...: zeros past lane N.
#ifdef __AVX512F__
template <int N>
POP_INLINE VF half_floats(const uint8_t* p) {
  if constexpr (N == 16) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (N == 8)
    return _mm512_cvtph_ps(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 4) return _mm512_cvtph_ps(_mm256_broadcastq_epi64(load_half_vector(p)));
  if constexpr (N == 2) return _mm512_cvtph_ps(_mm256_set1_epi32(word_of(p)));
  return set1(half(p));
}
template <int N>
POP_INLINE VF floats(const float* p) {
  if constexpr (N == 16) return load(p);
  if constexpr (N == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
  if constexpr (N == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  if constexpr (N == 2) return _mm512_castpd_ps(_mm512_set1_pd(two_floats(p)));
  return set1(*p);
}
template <int N>
POP_INLINE VF only_half_floats(const uint8_t* p) {
  return from_half_first(reinterpret_cast<const uint16_t*>(p), N);
}
template <int N>
POP_INLINE VI only_ints(const int32_t* p) {
  return _mm512_maskz_loadu_epi32(__mmask16((1u << N) - 1), p);
}
template <int N>
POP_INLINE __m128i sixteen_bytes(const uint8_t* p) {
  if constexpr (N == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm_unpacklo_epi64(load_half_vector(p), load_half_vector(p));
}
template <int N>
POP_INLINE VI bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(sixteen_bytes<N>(p));
}
template <int N>
POP_INLINE VI signed_bytes(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(sixteen_bytes<N>(p));
}
POP_INLINE VI super_blocks() { return _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1); }
// A half, or a word of eight nibbles, per 8 blocks, each to its lanes.
template <int N>
POP_INLINE VF super_floats(const uint8_t* p) {
  if constexpr (N == 8) return set1(half(p));
  const __m128 two = _mm_cvtph_ps(_mm_cvtsi32_si128(word_of(p)));
  return _mm512_permutexvar_ps(super_blocks(), _mm512_castps128_ps512(two));
}
template <int N>
POP_INLINE VI super_nibbles(const uint8_t* p) {
  VI words;
  if constexpr (N == 8) {
    words = _mm512_set1_epi32(word_of(p));
  } else {
    words = _mm512_permutexvar_epi32(super_blocks(), _mm512_castsi128_si512(load_half_vector(p)));
  }
  return _mm512_srlv_epi32(words, _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28));
}
POP_INLINE VI both(VI a, VI b) { return _mm512_and_si512(a, b); }
POP_INLINE VI either(VI a, VI b) { return _mm512_or_si512(a, b); }
POP_INLINE VI ints(int v) { return _mm512_set1_epi32(v); }
POP_INLINE VI up(VI v, int bits) { return _mm512_sllv_epi32(v, ints(bits)); }
POP_INLINE VI down(VI v, int bits) { return _mm512_srlv_epi32(v, ints(bits)); }
POP_INLINE VI subtract(VI a, VI b) { return _mm512_sub_epi32(a, b); }
POP_INLINE VF to_float(VI v) { return _mm512_cvtepi32_ps(v); }
#else
template <int N>
POP_INLINE VF half_floats(const uint8_t* p) {
  if constexpr (N == 8) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (N == 4) return _mm256_cvtph_ps(_mm_broadcastq_epi64(load_half_vector(p)));
  if constexpr (N == 2) return _mm256_cvtph_ps(_mm_set1_epi32(word_of(p)));
  return set1(half(p));
}
template <int N>
POP_INLINE VF floats(const float* p) {
  if constexpr (N == 8) return load(p);
  if constexpr (N == 4) return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  if constexpr (N == 2) return _mm256_castpd_ps(_mm256_set1_pd(two_floats(p)));
  return set1(*p);
}
template <int N>
POP_INLINE VF only_half_floats(const uint8_t* p) {
  if constexpr (N == 8) return from_half(reinterpret_cast<const uint16_t*>(p));
  long long bits = 0;
  __builtin_memcpy(&bits, p, 2 * N);
  return _mm256_cvtph_ps(_mm_cvtsi64_si128(bits));
}
template <int N>
POP_INLINE VI only_ints(const int32_t* p) {
  return _mm256_maskload_epi32(p, first_mask(N));
}
template <int N>
POP_INLINE VI bytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(load_half_vector(p));
}
template <int N>
POP_INLINE VI signed_bytes(const uint8_t* p) {
  return _mm256_cvtepi8_epi32(load_half_vector(p));
}
template <int N>
POP_INLINE VF super_floats(const uint8_t* p) {
  return set1(half(p));
}
template <int N>
POP_INLINE VI super_nibbles(const uint8_t* p) {
  return _mm256_srlv_epi32(_mm256_set1_epi32(word_of(p)), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}
POP_INLINE VI both(VI a, VI b) { return _mm256_and_si256(a, b); }
POP_INLINE VI either(VI a, VI b) { return _mm256_or_si256(a, b); }
POP_INLINE VI ints(int v) { return _mm256_set1_epi32(v); }
POP_INLINE VI up(VI v, int bits) { return _mm256_slli_epi32(v, bits); }
POP_INLINE VI down(VI v, int bits) { return _mm256_srli_epi32(v, bits); }
POP_INLINE VI subtract(VI a, VI b) { return _mm256_sub_epi32(a, b); }
POP_INLINE VF to_float(VI v) { return _mm256_cvtepi32_ps(v); }
#endif

// Of the N blocks from `lane` of a group of n on, whose scale fields begin at p.
template <DType T, int N>
struct ChunkScales {
  VF scale[kHalves<T>];
  VF min;  // with its sign, for types that have one; lanes past N need not be zero

  POP_INLINE ChunkScales read(const uint8_t* p, int n, int lane) {
    constexpr ScaleForm kForm = block_format(T).scales;
    const size_t blocks = size_t(n), l = size_t(lane);
    ChunkScales s;
    if constexpr (!has_super_blocks(kForm)) {
      s.scale[0] = half_floats<N>(p + 2 * l);
      if constexpr (kForm == ScaleForm::HalfMin) s.min = only_half_floats<N>(p + 2 * (blocks + l));
    } else if constexpr (kForm == ScaleForm::SixBit) {
      const VI nibbles = bytes<N>(p + l), upper = super_nibbles<N>(p + blocks + l / 2);
      const VI scale = either(both(nibbles, ints(15)), both(up(upper, 4), ints(0x30)));
      const VI min = either(down(nibbles, 4), both(up(upper, 2), ints(0x30)));
      const uint8_t* d = p + blocks + blocks / 2;
      s.scale[0] = mul(super_floats<N>(d + l / 4), to_float(scale));
      s.min = mul(super_floats<N>(d + blocks / 4 + l / 4), sub(zero(), to_float(min)));
    } else {
      const VF d = super_floats<N>(p + 2 * blocks + l / 4);
      for (int h = 0; h < 2; ++h) s.scale[h] = mul(d, to_float(signed_bytes<N>(p + size_t(h) * blocks + l)));
    }
    return s;
  }
};

}  // namespace
}  // namespace pop::POP_ISA
