// Integer products of the blocks of a row in Rows with prepared x: P = 1 or 2 planes of codes (acts.h), chunks of N blocks.
// The 8-bit order is the order of x: byte o = s * 4N + 4b + j of a chunk is element 4s + j of its block b. Planes of fewer bits
// are widened to it one vector at a time.
#pragma once
#include "kernels/acts.h"
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

// A chunk of N blocks gives sums whose lane i belongs to block i % N; kWidest is the largest N taken at once.
#ifdef __AVX512F__
constexpr int kWidest = 16;

POP_INLINE VI low_nibbles(VI v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm512_loadu_si512(p); }
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

// Integer sums over pieces of codes and x.
template <int P>
struct Products {
  VI low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
  POP_INLINE void add(Products& s, VI codes, const int8_t* x_low, const int8_t* x_high) {
    s.low = _mm512_dpbusd_epi32(s.low, codes, load_bytes(x_low));
    if constexpr (P == 2) s.high = _mm512_dpbusd_epi32(s.high, codes, load_bytes(x_high));
  }
  POP_INLINE VI total(const Products& s) {
    if constexpr (P == 1) return s.low;
    return _mm512_add_epi32(s.low, _mm512_sub_epi32(_mm512_slli_epi32(s.high, 8), s.high));  // kHighStep = 255
  }
};

// kHalves sums of a chunk. low, high: the chunk's planes; x_low, x_high: of x.
template <DType T, int P, int N>
POP_INLINE void chunk_sums(const uint8_t* low, const uint8_t* high, const int8_t* x_low, const int8_t* x_high,
                           VI* sums) {
  constexpr int H = kHalves<T>;
  Products<P> s[2];
  if constexpr (N == 16) {  // two chunks of 8: fold the halves of each
    VI a[H], b[H];
    chunk_sums<T, P, 8>(low, high, x_low, x_high, a);
    chunk_sums<T, P, 8>(low + plane_bytes(kLowBits<T>, 8), high + plane_bytes(kHighBits<T>, 8), x_low + 256,
                        x_high + 256, b);
    for (int h = 0; h < H; ++h)
      sums[h] = _mm512_add_epi32(_mm512_shuffle_i64x2(a[h], b[h], 0x44), _mm512_shuffle_i64x2(a[h], b[h], 0xee));
    return;
  } else if constexpr (kLowBits<T> == 4 && N >= 4) {
    constexpr int kSecond = N * 16;  // low nibbles are the first half of the elements
#pragma GCC unroll 2
    for (int o = 0; o < kSecond; o += 64) {
      const VI v = load_bytes(low + o);
      Products<P>::add(s[0], widen<T, N>(low_nibbles(v), high, o), x_low + o, x_high + o);
      Products<P>::add(s[H - 1], widen<T, N>(high_nibbles(v), high, kSecond + o), x_low + kSecond + o,
                       x_high + kSecond + o);
    }
  } else if constexpr (N >= 2) {
    for (int o = 0; o < N * 32; o += 64) {
      VI v;
      if constexpr (kLowBits<T> == 4) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
        v = widen<T, N>(low_nibbles(_mm512_inserti64x4(_mm512_castsi256_si512(c), _mm256_srli_epi16(c, 4), 1)), high,
                        0);
      } else {
        v = bias(load_bytes(low + o));
      }
      Products<P>::add(s[0], v, x_low + o, x_high + o);
    }
  } else {
    __m256i v;
    if constexpr (kLowBits<T> == 4) {
      const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
      v = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(c, 4), c), _mm256_set1_epi8(15));
      v = _mm512_castsi512_si256(widen<T, N>(_mm512_zextsi256_si512(v), high, 0));
    } else {
      v = _mm512_castsi512_si256(
          bias(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)))));
    }
    Products<P>::add(s[0], _mm512_zextsi256_si512(v), x_low, x_high);  // x is padded to 64 bytes
  }
  for (int h = 0; h < H; ++h) sums[h] = Products<P>::total(s[h]);
}

#else
constexpr int kWidest = 8;

POP_INLINE VI low_nibbles(VI v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

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

// Unsigned codes of few bits: pairs of products are added up in 16 bits, kPieces vectors at most. Signed ones are widened at
// once; the product of |w| <= 128 and |x| <= 127 in pairs fits too.
template <DType T>
constexpr int kPieces = 32767 / (2 * 127 * ((1 << (kLowBits<T> + kHighBits<T>)) - 1));
template <DType T, int P>
struct Products {
  VI low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  POP_INLINE void add(Products& s, VI codes, const int8_t* x_low, const int8_t* x_high) {
    if constexpr (!kSignedCodes<T>) {
      s.low = _mm256_add_epi16(s.low, _mm256_maddubs_epi16(codes, load_bytes(x_low)));
      if constexpr (P == 2) s.high = _mm256_add_epi16(s.high, _mm256_maddubs_epi16(codes, load_bytes(x_high)));
    } else {
      const VI size = _mm256_abs_epi8(codes);
      const VI l = _mm256_maddubs_epi16(size, _mm256_sign_epi8(load_bytes(x_low), codes));
      s.low = _mm256_add_epi32(s.low, _mm256_madd_epi16(l, _mm256_set1_epi16(1)));
      if constexpr (P == 2) {
        const VI h = _mm256_maddubs_epi16(size, _mm256_sign_epi8(load_bytes(x_high), codes));
        s.low = _mm256_add_epi32(s.low, _mm256_madd_epi16(h, _mm256_set1_epi16(kHighStep)));
      }
    }
  }
  POP_INLINE VI total(const Products& s) {
    if constexpr (kSignedCodes<T>) return s.low;
    const VI low = _mm256_madd_epi16(s.low, _mm256_set1_epi16(1));
    if constexpr (P == 1) return low;
    return _mm256_add_epi32(low, _mm256_madd_epi16(s.high, _mm256_set1_epi16(kHighStep)));
  }
};

template <DType T, int P, int N>
POP_INLINE void chunk_sums(const uint8_t* low, const uint8_t* high, const int8_t* x_low, const int8_t* x_high,
                           VI* sums) {
  constexpr int H = kHalves<T>;
  if constexpr (kLowBits<T> == 4 && N >= 2) {
    constexpr int kSecond = N * 16;  // low nibbles are the first half of the elements
    constexpr int kMost = kSignedCodes<T> ? kSecond : 32 * kPieces<T> * H / 2,
                  kBatch = kMost < kSecond ? kMost : kSecond;
    for (int h = 0; h < H; ++h) sums[h] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int first = 0; first < kSecond; first += kBatch) {
      Products<T, P> s[2];
#pragma GCC unroll 4
      for (int i = 0; i < kBatch; i += 32) {
        const int o = first + i;
        const VI v = load_bytes(low + o);
        Products<T, P>::add(s[0], widen<T, N>(low_nibbles(v), high, o), x_low + o, x_high + o);
        Products<T, P>::add(s[H - 1], widen<T, N>(high_nibbles(v), high, kSecond + o), x_low + kSecond + o,
                            x_high + kSecond + o);
      }
      for (int h = 0; h < H; ++h) sums[h] = _mm256_add_epi32(sums[h], Products<T, P>::total(s[h]));
    }
    return;
  }
  Products<T, P> s;
  if constexpr (kLowBits<T> == 4) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    const VI nibbles = low_nibbles(_mm256_set_m128i(_mm_srli_epi16(c, 4), c));
    Products<T, P>::add(s, widen<T, N>(nibbles, high, 0), x_low, x_high);
  } else {
    for (int o = 0; o < N * 32; o += 32) Products<T, P>::add(s, load_bytes(low + o), x_low + o, x_high + o);
  }
  sums[0] = Products<T, P>::total(s);
}
#endif

// What times a sum of x is to be taken off: 2 to this.
template <DType T>
constexpr int kZeroShift = __builtin_ctz(unsigned(kZeroCode<T> != 0 ? kZeroCode<T> : 1));

}  // namespace
}  // namespace pop::POP_ISA
