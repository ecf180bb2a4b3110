// axpy_sums.h with AVX2: two columns at once, 16-bit words for vpmaddwd.
#pragma once
#include "kernels/x86/axpy_part.h"
#include "kernels/x86/codes.h"

namespace pop::POP_ISA {
namespace {

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

// Codes of 64 rows of one column as bytes: of the lower nibbles, of the upper ones.
template <DType T>
POP_INLINE void whole_codes(const uint8_t* column, size_t byte, [[maybe_unused]] size_t high_at, VI& lower, VI& upper) {
  const VI nibble = _mm256_set1_epi8(15), v = load_int(column + byte);
  lower = _mm256_and_si256(v, nibble);
  upper = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
  if constexpr (block_format(T).is_table) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Codes));
    const VI table = _mm256_broadcastsi128_si256(_mm_xor_si128(values, _mm_set1_epi8(-128)));
    lower = _mm256_shuffle_epi8(table, lower);
    upper = _mm256_shuffle_epi8(table, upper);
  } else {
    const VI bits = high_plane_bits<T>(column + high_at + byte * kHighBits<T> / 4);
    const VI mask = _mm256_set1_epi8(kHighMask<T>);
    lower = _mm256_or_si256(lower, _mm256_and_si256(_mm256_slli_epi16(bits, 4), mask));
    upper = _mm256_or_si256(upper, _mm256_and_si256(bits, mask));
  }
}

// sums[0 .. 1] += the even bytes of a and b times the pair of x, sums[4 .. 5] the odd ones.
POP_INLINE void add_bytes(VI a, VI b, VI pair, VI* sums) {
  const VI low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);
  sums[0] = dot_pairs(sums[0], masked(low, 0xff), pair);
  sums[1] = dot_pairs(sums[1], masked(high, 0xff), pair);
  sums[4] = dot_pairs(sums[4], _mm256_srli_epi16(low, 8), pair);
  sums[5] = dot_pairs(sums[5], _mm256_srli_epi16(high, 8), pair);
}

template <DType T, int P, bool>
POP_INLINE void add_group(const Part& part, int j, size_t byte, [[maybe_unused]] size_t high_at, VI* sums) {
  const VI pair = all_ints(part.low[j]);
  const uint8_t *a = part.column[2 * j], *b = part.column[2 * j + 1];
  if constexpr (kPlainNibbles<T>) {
    const VI va = load_int(a + byte), vb = load_int(b + byte);
    add_nibbles(_mm256_unpacklo_epi16(va, vb), _mm256_unpackhi_epi16(va, vb), pair, sums);
  } else if constexpr (kNibbles<T>) {
    VI lower[2], upper[2];
    whole_codes<T>(a, byte, high_at, lower[0], upper[0]);
    whole_codes<T>(b, byte, high_at, lower[1], upper[1]);
    add_bytes(lower[0], lower[1], pair, sums);
    add_bytes(upper[0], upper[1], pair, sums + 2);
  } else {
    const auto words = [byte](const uint8_t* p, int n) {
      return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + byte + 16 * n)));
    };
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const VI va = words(a, n), vb = words(b, n);
      sums[2 * n] = dot_pairs(sums[2 * n], _mm256_unpacklo_epi16(va, vb), pair);
      sums[2 * n + 1] = dot_pairs(sums[2 * n + 1], _mm256_unpackhi_epi16(va, vb), pair);
    }
  }
}

// Sums of words interleaved by unpacklo and unpackhi, put back in the order of the words.
template <DType T, int P>
POP_INLINE void total_sums(VI* s, VI* out) {
  if constexpr (kPlainNibbles<T>)
    for (const int i : {2, 3, 6, 7}) s[i] = _mm256_srai_epi32(s[i], 4);
  for (int i = 0; i < 8; i += 2) {
    out[i] = _mm256_permute2x128_si256(s[i], s[i + 1], 0x20);
    out[i + 1] = _mm256_permute2x128_si256(s[i], s[i + 1], 0x31);
  }
}

template <DType T>
constexpr int kSumBias = block_format(T).is_table ? 128 : block_format(T).zero;

}  // namespace
}  // namespace pop::POP_ISA
