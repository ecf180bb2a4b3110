// Codes of a chunk of N blocks of a row in Rows, one byte each in the 8-bit order, the order of x: byte o = s * 4N + 4b + j of a chunk
// is element 4s + j of its block b. Planes of fewer bits are widened to it one vector at a time.
#pragma once
#include "kernels/x86/unpack.h"

namespace pop::POP_ISA {
namespace {

// Q6_K has a scale per 16 elements: its blocks have two sums, elements 0-15 and 16-31.
template <DType T>
constexpr int kHalves = block_format(T).scales == ScaleForm::Byte16 ? 2 : 1;
template <DType T>
constexpr bool kSignedCodes = block_format(T).low_bits == 8 || block_format(T).is_table;
template <DType T>
constexpr int kLowBits = block_format(T).low_bits;
template <DType T>
constexpr int kHighBits = block_format(T).high_bits;
// Bits of a byte that come from the high plane.
template <DType T>
constexpr int8_t kHighMask = int8_t(((1 << kHighBits<T>)-1) << 4);

#ifdef __AVX512F__
POP_INLINE VI low_nibbles(VI v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm512_loadu_si512(p); }
POP_INLINE VI in_register(VI v) {
#ifndef POP_TEST_SIMDE  // whose vectors are no registers
  asm("" : "+v"(v));
#endif
  return v;
}
POP_INLINE VI bias(VI v) { return _mm512_xor_si512(v, _mm512_set1_epi8(-128)); }

// vpdpbusd wants unsigned codes: signed ones are biased by 128.
template <DType T>
constexpr int kZeroCode = kSignedCodes<T> ? 128 : block_format(T).zero;

// The one-bit plane of N blocks, repeated; bit k of byte 4b + j is wanted at the 8-bit order's byte 4 k N + 4b + j.
template <int N>
POP_INLINE VI repeat_plane(const uint8_t* p) {
  if constexpr (N == 8) return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  if constexpr (N == 4) return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  long long bits = 0;
  __builtin_memcpy(&bits, p, 4 * N);
  return N == 2 ? _mm512_set1_epi64(bits) : _mm512_set1_epi32(int(bits));
}

// Nibbles of the 8-bit order's bytes o .. o + 63 to codes.
template <DType T, int N>
POP_INLINE VI widen(VI nibbles, const uint8_t* high, int o) {
  if constexpr (block_format(T).is_table) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Codes));
    return _mm512_shuffle_epi8(bias(_mm512_broadcast_i32x4(table)), nibbles);
  }
  if constexpr (kHighBits<T> == 0) return nibbles;
  VI bits;
  if constexpr (kHighBits<T> == 1) {
    const VI lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const VI k = _mm512_srli_epi32(lane, N == 8 ? 3 : N == 4 ? 2 : N == 2 ? 1 : 0);
    bits = _mm512_rorv_epi32(repeat_plane<N>(high), _mm512_add_epi32(k, _mm512_set1_epi32(o / (4 * N) - 4)));
  } else {  // chunks of 8 only
    bits = _mm512_rorv_epi32(load_bytes(high), _mm512_set1_epi32(o / 32 - 4));
  }
  return _mm512_ternarylogic_epi32(nibbles, bits, _mm512_set1_epi8(kHighMask<T>), 0xf8);  // nibbles | (bits & mask)
}
#else
POP_INLINE VI low_nibbles(VI v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
POP_INLINE VI in_register(VI v) {
  asm("" : "+x"(v));
  return v;
}

template <DType T>
constexpr int kZeroCode = kSignedCodes<T> ? 0 : block_format(T).zero;

alignas(64) constexpr int32_t kUpFrom[16] = {4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(64) constexpr int32_t kDownFrom[16] = {0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0};

// The bits k of N bytes each of a one-bit plane, moved to bit 4: eight lanes from the 8-bit order's byte o on.
template <int N>
POP_INLINE VI fifth_bits(const uint8_t* p, int o) {
  if constexpr (N == 8) {
    const int k = o / 32;
    return k < 4 ? _mm256_slli_epi16(load_bytes(p), 4 - k) : _mm256_srli_epi16(load_bytes(p), k - 4);
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i k = _mm256_add_epi32(_mm256_srli_epi32(lane, N == 4   ? 2
                                                             : N == 2 ? 1
                                                                      : 0),
                                     _mm256_set1_epi32(o / (4 * N)));
  __m256i plane;
  if constexpr (N == 4) {
    plane = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else {
    long long bits = 0;
    __builtin_memcpy(&bits, p, 4 * N);
    plane = N == 2 ? _mm256_set1_epi64x(bits) : _mm256_set1_epi32(int(bits));
  }
  const __m256i up = _mm256_i32gather_epi32(kUpFrom, k, 4), down = _mm256_i32gather_epi32(kDownFrom, k, 4);
  return _mm256_srlv_epi32(_mm256_sllv_epi32(plane, up), down);
}

// Nibbles of the 8-bit order's bytes o .. o + 31 to codes.
template <DType T, int N>
POP_INLINE VI widen(VI nibbles, const uint8_t* high, int o) {
  if constexpr (block_format(T).is_table) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Codes));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles);
  }
  if constexpr (kHighBits<T> == 0) return nibbles;
  VI bits;
  if constexpr (kHighBits<T> == 1) {
    bits = fifth_bits<N>(high, o);
  } else {  // chunks of 8 only: 32 bytes per step, two steps per plane
    const VI plane = load_bytes(high + o / 32 % 2 * 32);
    const int shift = o / 64 * 2 - 4;
    bits = shift < 0 ? _mm256_slli_epi16(plane, -shift) : _mm256_srli_epi16(plane, shift);
  }
  return _mm256_or_si256(nibbles, _mm256_and_si256(bits, _mm256_set1_epi8(kHighMask<T>)));
}
#endif

// Bytes that are used twice: left to itself the compiler reads them twice, and those of most rows lie across cache lines.
POP_INLINE VI load_once(const void* p) { return in_register(load_bytes(p)); }

// What times a sum of x is to be taken off: 2 to this.
template <DType T>
constexpr int kZeroShift = __builtin_ctz(unsigned(kZeroCode<T> != 0 ? kZeroCode<T> : 1));

}  // namespace
}  // namespace pop::POP_ISA
