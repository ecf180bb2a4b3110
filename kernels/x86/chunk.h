// Integer products of the blocks of a row in Rows with prepared rows of x: P = 1 or 2 planes of codes (acts.h), chunks of N
// blocks, each unpacked once for X rows of x.
#pragma once
#include "kernels/acts.h"
#include "kernels/x86/codes.h"

namespace pop::POP_ISA {
namespace {

// A chunk of N blocks gives sums whose lane i belongs to block i % N; kWidest is the largest N taken at once.
#ifdef __AVX512F__
constexpr int kWidest = 16;

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

// Sums of a chunk with X rows of x: kHalves of each. low, high: the chunk's planes; at: its first element.
template <DType T, int P, int N, int X>
POP_INLINE void chunk_sums(const uint8_t* low, const uint8_t* high, const ActsView* x, size_t at,
                           VI (*sums)[kHalves<T>]) {
  constexpr int H = kHalves<T>;
  Products<P> s[X][2];
  const auto add = [&](int h, VI codes, size_t o) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < X; ++r) Products<P>::add(s[r][h], codes, x[r].low + at + o, x[r].high + at + o);
  };
  if constexpr (N == 16) {  // two chunks of 8: fold the halves of each
    VI a[X][H], b[X][H];
    chunk_sums<T, P, 8, X>(low, high, x, at, a);
    chunk_sums<T, P, 8, X>(low + plane_bytes(kLowBits<T>, 8), high + plane_bytes(kHighBits<T>, 8), x, at + 256, b);
    for (int r = 0; r < X; ++r)
      for (int h = 0; h < H; ++h)
        sums[r][h] = _mm512_add_epi32(_mm512_shuffle_i64x2(a[r][h], b[r][h], 0x44),
                                      _mm512_shuffle_i64x2(a[r][h], b[r][h], 0xee));
    return;
  } else if constexpr (kLowBits<T> == 4 && N >= 4) {
    constexpr int kSecond = N * 16;  // low nibbles are the first half of the elements
#pragma GCC unroll 2
    for (int o = 0; o < kSecond; o += 64) {
      const VI v = load_once(low + o);
      add(0, widen<T, N>(low_nibbles(v), high, o), size_t(o));
      add(H - 1, widen<T, N>(high_nibbles(v), high, kSecond + o), size_t(kSecond + o));
    }
  } else if constexpr (N >= 2) {
#pragma GCC unroll 4
    for (int o = 0; o < N * 32; o += 64) {
      VI v;
      if constexpr (kLowBits<T> == 4) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
        v = widen<T, N>(low_nibbles(_mm512_inserti64x4(_mm512_castsi256_si512(c), _mm256_srli_epi16(c, 4), 1)), high,
                        0);
      } else {
        v = bias(load_bytes(low + o));
      }
      add(0, v, size_t(o));
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
    add(0, _mm512_zextsi256_si512(v), 0);  // x is padded to 64 bytes
  }
  for (int r = 0; r < X; ++r)
    for (int h = 0; h < H; ++h) sums[r][h] = Products<P>::total(s[r][h]);
}

#else
constexpr int kWidest = 8;

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

template <DType T, int P, int N, int X>
POP_INLINE void chunk_sums(const uint8_t* low, const uint8_t* high, const ActsView* x, size_t at,
                           VI (*sums)[kHalves<T>]) {
  constexpr int H = kHalves<T>;
  const auto add = [&](auto& s, int h, VI codes, size_t o) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < X; ++r) Products<T, P>::add(s[r][h], codes, x[r].low + at + o, x[r].high + at + o);
  };
  if constexpr (kLowBits<T> == 4 && N >= 2) {
    constexpr int kSecond = N * 16;  // low nibbles are the first half of the elements
    constexpr int kMost = kSignedCodes<T> ? kSecond : 32 * kPieces<T> * H / 2,
                  kBatch = kMost < kSecond ? kMost : kSecond;
    for (int r = 0; r < X; ++r)
      for (int h = 0; h < H; ++h) sums[r][h] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int first = 0; first < kSecond; first += kBatch) {
      Products<T, P> s[X][2];
#pragma GCC unroll 4
      for (int i = 0; i < kBatch; i += 32) {
        const int o = first + i;
        const VI v = load_once(low + o);
        add(s, 0, widen<T, N>(low_nibbles(v), high, o), size_t(o));
        add(s, H - 1, widen<T, N>(high_nibbles(v), high, kSecond + o), size_t(kSecond + o));
      }
      for (int r = 0; r < X; ++r)
        for (int h = 0; h < H; ++h) sums[r][h] = _mm256_add_epi32(sums[r][h], Products<T, P>::total(s[r][h]));
    }
    return;
  }
  Products<T, P> s[X][1];
  if constexpr (kLowBits<T> == 4) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    add(s, 0, widen<T, N>(low_nibbles(_mm256_set_m128i(_mm_srli_epi16(c, 4), c)), high, 0), 0);
  } else {
    for (int o = 0; o < N * 32; o += 32) add(s, 0, load_bytes(low + o), size_t(o));
  }
  for (int r = 0; r < X; ++r) sums[r][0] = Products<T, P>::total(s[r][0]);
}
#endif

}  // namespace
}  // namespace pop::POP_ISA
