// axpy_sums.h with AVX-512: four columns at once, bytes for vpdpbusd.
#pragma once
#include "kernels/x86/axpy_part.h"
#include "kernels/x86/codes.h"

namespace pop::POP_ISA {
namespace {

constexpr int kTileRows = 128;  // a line of 4-bit codes
template <int P>
constexpr int kSums = 8 * P;  // registers of integer sums of a tile: of each plane of x eight

// 64 bytes of codes, or 32 and zeros in the last half tile of 4-bit codes.
template <bool kHalf>
POP_INLINE VI load_codes(const uint8_t* p) {
  if constexpr (!kHalf) return _mm512_loadu_si512(p);
  return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The bytes of four columns side by side: lane l of out[k] has bytes 16 l + 4 k .. + 3 of each.
POP_INLINE void side_by_side(const VI* v, VI* out) {
  const VI ab0 = _mm512_unpacklo_epi8(v[0], v[1]), ab1 = _mm512_unpackhi_epi8(v[0], v[1]);
  const VI cd0 = _mm512_unpacklo_epi8(v[2], v[3]), cd1 = _mm512_unpackhi_epi8(v[2], v[3]);
  out[0] = _mm512_unpacklo_epi16(ab0, cd0);
  out[1] = _mm512_unpackhi_epi16(ab0, cd0);
  out[2] = _mm512_unpacklo_epi16(ab1, cd1);
  out[3] = _mm512_unpackhi_epi16(ab1, cd1);
}

// sums of the planes of x += unsigned codes times x.
template <int P>
POP_INLINE void add_products(VI codes, VI low, VI high, VI* sums) {
  sums[0] = _mm512_dpbusd_epi32(sums[0], codes, low);
  if constexpr (P == 2) sums[8] = _mm512_dpbusd_epi32(sums[8], codes, high);
}

// Codes of 128 rows (kHalf: 64) of one column as bytes: of the lower nibbles, of the upper ones. The bytes of the high plane are
// repeated and shifted until their bits stand beside the nibbles (column_format.h).
template <DType T, bool kHalf>
POP_INLINE void whole_codes(const uint8_t* column, size_t byte, size_t high_at, VI& lower, VI& upper) {
  const VI v = load_codes<kHalf>(column + byte);
  lower = low_nibbles(v);
  upper = high_nibbles(v);
  const uint8_t* p = column + high_at + byte * kHighBits<T> / 4;
  VI bits;
  if constexpr (kHighBits<T> == 1) {
    const __m128i b = kHalf ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))
                            : _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    bits = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1), _mm512_zextsi128_si512(b));
    bits = _mm512_srlv_epi64(bits, _mm512_setr_epi64(0, 1, 2, 3, 0, 1, 2, 3));
  } else {
    const __m256i b = kHalf ? _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))
                            : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    bits = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_zextsi256_si512(b));
    bits = _mm512_srlv_epi64(bits, _mm512_setr_epi64(0, 0, 2, 2, 0, 0, 2, 2));
  }
  const VI mask = _mm512_set1_epi8(kHighMask<T>);
  lower = _mm512_or_si512(lower, _mm512_and_si512(_mm512_slli_epi16(bits, 4), mask));
  upper = _mm512_or_si512(upper, _mm512_and_si512(bits, mask));
}

// IQ4_NL's values, unsigned.
POP_INLINE VI table_values(VI nibbles) {
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Codes));
  const VI table = _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8(-128)));
  return _mm512_shuffle_epi8(table, nibbles);
}

// Sums over group j of the part, kTileRows rows (kHalf: 64) from `byte` of the columns' low planes on.
template <DType T, int P, bool kHalf>
POP_INLINE void add_group(const Part& part, int j, size_t byte, [[maybe_unused]] size_t high_at, VI* sums) {
  const VI low = all_ints(part.low[j]), high = all_ints(P == 2 ? part.high[j] : 0);
  const uint8_t* const* column = part.column + 4 * j;
  VI v[4], codes[4];
  if constexpr (!kNibbles<T>) {
#pragma GCC unroll 2
    for (size_t half = 0; half < (kHalf ? 1 : 2); ++half) {
      for (int i = 0; i < 4; ++i)
        v[i] = _mm512_xor_si512(load_codes<false>(column[i] + byte + 64 * half), _mm512_set1_epi8(-128));
      side_by_side(v, codes);
#pragma GCC unroll 4
      for (size_t k = 0; k < 4; ++k) add_products<P>(codes[k], low, high, sums + 4 * half + k);
    }
  } else if constexpr (kHighBits<T> != 0) {
    VI upper[4];
    for (int i = 0; i < 4; ++i) whole_codes<T, kHalf>(column[i], byte, high_at, v[i], upper[i]);
    side_by_side(v, codes);
    for (int k = 0; k < 4; ++k) add_products<P>(codes[k], low, high, sums + k);
    side_by_side(upper, codes);
    for (int k = 0; k < 4; ++k) add_products<P>(codes[k], low, high, sums + 4 + k);
  } else {
    for (int i = 0; i < 4; ++i) v[i] = load_codes<kHalf>(column[i] + byte);
    side_by_side(v, codes);
    const VI nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      VI lower = _mm512_and_si512(codes[k], nibble), upper = _mm512_andnot_si512(nibble, codes[k]);
      if constexpr (block_format(T).is_table) {
        lower = table_values(lower);
        upper = table_values(high_nibbles(codes[k]));
      }
      add_products<P>(lower, low, high, sums + k);
      add_products<P>(upper, low, high, sums + 4 + k);
    }
  }
}

// Four vectors whose lanes hold the rows of four bytes each, in the order of rows.
POP_INLINE void order_bytes(const VI* s, VI* out) {
  const VI a = _mm512_shuffle_i32x4(s[0], s[1], 0x44), b = _mm512_shuffle_i32x4(s[0], s[1], 0xee);
  const VI c = _mm512_shuffle_i32x4(s[2], s[3], 0x44), d = _mm512_shuffle_i32x4(s[2], s[3], 0xee);
  out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  out[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
  out[2] = _mm512_shuffle_i32x4(b, d, 0x88);
  out[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}
// The same of words of nibbles: even sums are rows 0-15 of each 64, odd ones rows 32-47.
template <int kSelect>
POP_INLINE VI every_other(VI a, VI b) {
  return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), kSelect));
}
template <int kSelect>
POP_INLINE void order_nibbles(const VI* s, VI& first, VI& second) {
  const VI a = every_other<kSelect>(s[0], s[1]), b = every_other<kSelect>(s[2], s[3]);
  first = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b);
  second = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b);
}

// The planes joined, in the order of rows: out[i] is rows 16 i of the tile.
template <DType T, int P>
POP_INLINE void total_sums(VI* s, VI* out) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {
    if constexpr (P == 2)
      s[k] = add_int(s[k], _mm512_sub_epi32(_mm512_slli_epi32(s[8 + k], 8), s[8 + k]));  // kHighStep
    if (kPlainNibbles<T> && k >= 4) s[k] = _mm512_srai_epi32(s[k], 4);
  }
  if constexpr (kNibbles<T>) {
    order_nibbles<0x88>(s, out[0], out[4]);
    order_nibbles<0x88>(s + 4, out[1], out[5]);
    order_nibbles<0xdd>(s, out[2], out[6]);
    order_nibbles<0xdd>(s + 4, out[3], out[7]);
  } else {
    order_bytes(s, out);
    order_bytes(s + 4, out + 4);
  }
}

// What unsigned codes count too much.
template <DType T>
constexpr int kSumBias = kZeroCode<T>;  // what the codes count too much

}  // namespace
}  // namespace pop::POP_ISA
