// Integer products of the blocks of a row in Rows with prepared x: P = 1 or 2 planes of codes (acts.h), chunks of N blocks.
#pragma once
#include "kernels/acts.h"
#include "kernels/x86/unpack.h"

namespace pop::POP_ISA {
namespace {

POP_INLINE double two_floats(const float* p) {
  double bits;
  __builtin_memcpy(&bits, p, 8);
  return bits;
}

// A chunk of N blocks gives sums whose lane i belongs to block i % N; kWidest is the largest N taken at once.
#ifdef __AVX512F__
constexpr int kWidest = 16;

POP_INLINE VI low_nibbles(VI v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm512_loadu_si512(p); }

// Integer sums over pieces of codes and x. Q8_0 codes are biased by 128 to be unsigned.
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

template <DType T, int P, int N>
POP_INLINE VI chunk_sum(const uint8_t* codes, const int8_t* low, const int8_t* high) {
  Products<P> s;
  if constexpr (N == 16) {  // two chunks of 8: fold the halves of each
    const VI a = chunk_sum<T, P, 8>(codes, low, high);
    const VI b = chunk_sum<T, P, 8>(codes + 8 * kCodeBytes<T>, low + 256, high + 256);
    return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
  } else if constexpr (kFourBit<T> && N >= 4) {
    constexpr int kHalf = N * 16;  // low nibbles are the first half of the elements
    for (int i = 0; i < kHalf; i += 64) {
      const VI v = load_bytes(codes + i);
      Products<P>::add(s, low_nibbles(v), low + i, high + i);
      Products<P>::add(s, high_nibbles(v), low + kHalf + i, high + kHalf + i);
    }
  } else if constexpr (N >= 2) {
    for (int i = 0; i < N * 32; i += 64) {
      VI v;
      if constexpr (kFourBit<T>) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
        v = low_nibbles(_mm512_inserti64x4(_mm512_castsi256_si512(c), _mm256_srli_epi16(c, 4), 1));
      } else {
        v = _mm512_xor_si512(load_bytes(codes + i), _mm512_set1_epi8(-128));
      }
      Products<P>::add(s, v, low + i, high + i);
    }
  } else {
    __m256i v;
    if constexpr (kFourBit<T>) {
      const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
      v = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(c, 4), c), _mm256_set1_epi8(15));
    } else {
      v = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), _mm256_set1_epi8(-128));
    }
    Products<P>::add(s, _mm512_zextsi256_si512(v), low, high);  // x is padded to 64 bytes
  }
  return Products<P>::total(s);
}

template <int N>
POP_INLINE VF repeat_halves(const uint8_t* p) {
  if constexpr (N == 16) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (N == 8)
    return _mm512_cvtph_ps(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 4)
    return _mm512_cvtph_ps(_mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 2) {
    int two;
    __builtin_memcpy(&two, p, 4);
    return _mm512_cvtph_ps(_mm256_set1_epi32(two));
  }
  return set1(half(p));
}
template <int N>
POP_INLINE VF repeat_floats(const float* p) {
  if constexpr (N == 16) return load(p);
  if constexpr (N == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
  if constexpr (N == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  if constexpr (N == 2) return _mm512_castpd_ps(_mm512_set1_pd(two_floats(p)));
  return set1(*p);
}
template <int N>
POP_INLINE VF only_halves(const uint8_t* p) {
  return from_half_first(reinterpret_cast<const uint16_t*>(p), N);
}
template <int N>
POP_INLINE VI only_ints(const int32_t* p) {
  return _mm512_maskz_loadu_epi32(__mmask16((1u << N) - 1), p);
}
POP_INLINE VI subtract(VI a, VI b, int shift) { return _mm512_sub_epi32(a, _mm512_slli_epi32(b, unsigned(shift))); }
POP_INLINE VF to_float(VI v) { return _mm512_cvtepi32_ps(v); }
template <DType T>
constexpr int kBiasShift = T == DType::Q8_0   ? 7
                           : T == DType::Q4_0 ? 3
                                              : 0;

#else
constexpr int kWidest = 8;

POP_INLINE VI low_nibbles(VI v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// 4-bit codes: at most 8 pieces fit 16-bit sums (15 * 127 * 2 * 8 < 2^15). 8-bit ones are signed and widened at once; the
// product of |w| <= 128 and |x| <= 127 in pairs fits too.
template <DType T, int P>
struct Products {
  VI low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  POP_INLINE void add(Products& s, VI codes, const int8_t* x_low, const int8_t* x_high) {
    if constexpr (kFourBit<T>) {
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
    if constexpr (!kFourBit<T>) return s.low;
    const VI low = _mm256_madd_epi16(s.low, _mm256_set1_epi16(1));
    if constexpr (P == 1) return low;
    return _mm256_add_epi32(low, _mm256_madd_epi16(s.high, _mm256_set1_epi16(kHighStep)));
  }
};

template <DType T, int P, int N>
POP_INLINE VI chunk_sum(const uint8_t* codes, const int8_t* low, const int8_t* high) {
  Products<T, P> s;
  if constexpr (kFourBit<T> && N >= 2) {
    constexpr int kHalf = N * 16;  // low nibbles are the first half of the elements
    for (int i = 0; i < kHalf; i += 32) {
      const VI v = load_bytes(codes + i);
      Products<T, P>::add(s, low_nibbles(v), low + i, high + i);
      Products<T, P>::add(s, high_nibbles(v), low + kHalf + i, high + kHalf + i);
    }
  } else if constexpr (kFourBit<T>) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    Products<T, P>::add(s, low_nibbles(_mm256_set_m128i(_mm_srli_epi16(c, 4), c)), low, high);
  } else {
    for (int i = 0; i < N * 32; i += 32) Products<T, P>::add(s, load_bytes(codes + i), low + i, high + i);
  }
  return Products<T, P>::total(s);
}

template <int N>
POP_INLINE VF repeat_halves(const uint8_t* p) {
  if constexpr (N == 8) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (N == 4)
    return _mm256_cvtph_ps(_mm_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 2) {
    int two;
    __builtin_memcpy(&two, p, 4);
    return _mm256_cvtph_ps(_mm_set1_epi32(two));
  }
  return set1(half(p));
}
template <int N>
POP_INLINE VF repeat_floats(const float* p) {
  if constexpr (N == 8) return load(p);
  if constexpr (N == 4) return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  if constexpr (N == 2) return _mm256_castpd_ps(_mm256_set1_pd(two_floats(p)));
  return set1(*p);
}
template <int N>
POP_INLINE VF only_halves(const uint8_t* p) {
  if constexpr (N == 8) return from_half(reinterpret_cast<const uint16_t*>(p));
  long long bits = 0;
  __builtin_memcpy(&bits, p, 2 * N);
  return _mm256_cvtph_ps(_mm_cvtsi64_si128(bits));
}
template <int N>
POP_INLINE VI only_ints(const int32_t* p) {
  return _mm256_maskload_epi32(p, first_mask(N));
}
POP_INLINE VI subtract(VI a, VI b, int shift) { return _mm256_sub_epi32(a, _mm256_slli_epi32(b, shift)); }
POP_INLINE VF to_float(VI v) { return _mm256_cvtepi32_ps(v); }
template <DType T>
constexpr int kBiasShift = T == DType::Q4_0 ? 3 : 0;
#endif

}  // namespace
}  // namespace pop::POP_ISA
