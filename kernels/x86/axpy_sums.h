// The innermost step of axpy_columns on block types: integer sums of a group of columns over a tile of rows.
#pragma once
#include "kernels/x86/axpy_part.h"

namespace pop::POP_ISA {
namespace {

#ifdef __AVX512F__

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

// Sums over group j of the part, kTileRows rows (kHalf: 64) from `byte` of the columns on.
template <DType T, int P, bool kHalf>
POP_INLINE void add_group(const Part& part, int j, size_t byte, VI* sums) {
  const VI low = all_ints(part.low[j]), high = all_ints(P == 2 ? part.high[j] : 0);
  const uint8_t* const* column = part.column + 4 * j;
  VI v[4], codes[4];
  if constexpr (kFourBit<T>) {
    for (int i = 0; i < 4; ++i) v[i] = load_codes<kHalf>(column[i] + byte);
    side_by_side(v, codes);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      // Upper nibbles stay where they are: their sums count sixteenfold.
      add_products<P>(_mm512_and_si512(codes[k], _mm512_set1_epi8(15)), low, high, sums + k);
      add_products<P>(_mm512_and_si512(codes[k], _mm512_set1_epi8(-16)), low, high, sums + 4 + k);
    }
  } else {
#pragma GCC unroll 2
    for (size_t half = 0; half < (kHalf ? 1 : 2); ++half) {
      for (int i = 0; i < 4; ++i)
        v[i] = _mm512_xor_si512(load_codes<false>(column[i] + byte + 64 * half), _mm512_set1_epi8(-128));
      side_by_side(v, codes);
#pragma GCC unroll 4
      for (size_t k = 0; k < 4; ++k) add_products<P>(codes[k], low, high, sums + 4 * half + k);
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
    if (kFourBit<T> && k >= 4) s[k] = _mm512_srai_epi32(s[k], 4);
  }
  if constexpr (kFourBit<T>) {
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
constexpr int kSumBias = T == DType::Q8_0   ? 128
                         : T == DType::Q4_0 ? 8
                                            : 0;

#else

constexpr int kTileRows = 64;
template <int P>
constexpr int kSums = 8;

POP_INLINE VI dot_pairs(VI sum, VI w, VI x) { return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x)); }
POP_INLINE VI masked(VI v, int16_t mask) { return _mm256_and_si256(v, _mm256_set1_epi16(mask)); }

// sums[2k], sums[2k + 1] += nibble k of the words of low and high, times the pair of x. Nibbles 1 and 3 are left where they
// stand in their byte, so that one shift serves all: their sums count sixteenfold (15 * 16 * 32512 * 32 columns < 2^31).
POP_INLINE void add_nibbles(VI low, VI high, VI pair, VI* sums) {
  const VI part[4] = {low, high, _mm256_srli_epi16(low, 8), _mm256_srli_epi16(high, 8)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    VI* s = sums + i / 2 * 4 + i % 2;
    s[0] = dot_pairs(s[0], masked(part[i], 0x0f), pair);
    s[2] = dot_pairs(s[2], masked(part[i], 0xf0), pair);
  }
}

template <DType T, int P, bool>
POP_INLINE void add_group(const Part& part, int j, size_t byte, VI* sums) {
  const VI pair = all_ints(part.low[j]);
  const uint8_t *a = part.column[2 * j] + byte, *b = part.column[2 * j + 1] + byte;
  if constexpr (kFourBit<T>) {
    const VI va = load_int(a), vb = load_int(b);
    add_nibbles(_mm256_unpacklo_epi16(va, vb), _mm256_unpackhi_epi16(va, vb), pair, sums);
  } else {
    const auto words = [](const uint8_t* p) {
      return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    };
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const VI va = words(a + 16 * n), vb = words(b + 16 * n);
      sums[2 * n] = dot_pairs(sums[2 * n], _mm256_unpacklo_epi16(va, vb), pair);
      sums[2 * n + 1] = dot_pairs(sums[2 * n + 1], _mm256_unpackhi_epi16(va, vb), pair);
    }
  }
}

// Sums of words interleaved by unpacklo and unpackhi, put back in the order of the words.
template <DType T, int P>
POP_INLINE void total_sums(VI* s, VI* out) {
  if constexpr (kFourBit<T>)
    for (const int i : {2, 3, 6, 7}) s[i] = _mm256_srai_epi32(s[i], 4);
  for (int i = 0; i < 8; i += 2) {
    out[i] = _mm256_permute2x128_si256(s[i], s[i + 1], 0x20);
    out[i + 1] = _mm256_permute2x128_si256(s[i], s[i + 1], 0x31);
  }
}

template <DType T>
constexpr int kSumBias = T == DType::Q4_0 ? 8 : 0;

#endif

}  // namespace
}  // namespace pop::POP_ISA
