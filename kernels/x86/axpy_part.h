// The listed columns of a block, made ready for axpy_columns on block types.
#pragma once
#include "kernels/acts.h"
#include "kernels/x86/columns.h"

namespace pop::POP_ISA {
namespace {

constexpr int kMostColumns = 32;  // of a part

#ifdef __AVX512F__
constexpr int kGroup = 4;  // columns taken at once: their bytes side by side are what vpdpbusd sums
#else
constexpr int kGroup = 2;  // their 16-bit words side by side are what vpmaddwd sums
#endif
constexpr int kGroups = kMostColumns / kGroup;  // at most, in a part

// The listed columns among those that share a scale. Group j consists of the listed columns j, j + groups, j + 2 groups, ...: far apart, because
// the CPU prefetches better along a few streams in different pages than along neighbouring ones. (The order inside a block
// does not show: integer sums are exact.)
struct Part {
  int count = 0, groups = 0, first = 0;  // first: of the columns that share the scale, listed or not
  const uint8_t* header = nullptr;
  const uint8_t* column[kMostColumns + kGroup];  // [groups][kGroup]; absent ones repeat the last, with codes 0
  int32_t low[kGroups + 1],
      high[kGroups + 1];  // [groups] codes of x: AVX-512 four bytes of each plane, else two words in low
  int32_t sum = 0;        // of the codes of x
  float scale = 0;        // of x
};

// The columns that stand at list[i .. i + count).
[[maybe_unused]] void take_columns(const ColumnShape& s, const ActsView& x, IndexList list, int i, Part& part) {
  int16_t q[kMostColumns + kGroup];
  int8_t low[kMostColumns + kGroup], high[kMostColumns + kGroup];
  part.sum = 0;
  for (int place = 0; place < part.groups * kGroup; ++place) {
    const int k = place / kGroup + part.groups * (place % kGroup);
    const bool present = k < part.count;
    const int c = at(list, i + (present ? k : part.count - 1));
    part.column[place] = column_of(s, part.header, c);
    low[place] = present ? x.low[c] : int8_t(0);
    high[place] = present && x.high != nullptr ? x.high[c] : int8_t(0);
    q[place] = int16_t(low[place] + kHighStep * high[place]);
    part.sum += q[place];
  }
  if constexpr (kGroup == 2) {
    __builtin_memcpy(part.low, q, size_t(part.groups) * 4);
  } else {
    __builtin_memcpy(part.low, low, size_t(part.groups) * 4);
    __builtin_memcpy(part.high, high, size_t(part.groups) * 4);
  }
}

#ifdef __AVX512F__

POP_INLINE VI all_ints(int32_t v) { return _mm512_set1_epi32(v); }
POP_INLINE VI zero_int() { return _mm512_setzero_si512(); }
POP_INLINE VI add_int(VI a, VI b) { return _mm512_add_epi32(a, b); }
POP_INLINE VF to_float(VI v) { return _mm512_cvtepi32_ps(v); }
POP_INLINE VI load_int(const void* p) { return _mm512_loadu_si512(p); }
POP_INLINE void store_int(void* p, VI v) { _mm512_storeu_si512(p, v); }

// take_columns() for matrices that are not packed: a vector of 32 places at once.
POP_INLINE void take_columns_fast(const ColumnShape& s, const ActsView& x, IndexList list, int i, Part& part) {
  const uint32_t present = part.count == 32 ? ~0u : (1u << part.count) - 1;
  __m512i listed;  // the columns as words, in the order of the list
  const __m512i lane =
      _mm512_cvtepi8_epi16(_mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                            21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
  if (list.index != nullptr) {
    const __m512i a = _mm512_maskz_loadu_epi32(__mmask16(present), list.index + i);
    const __m512i b = _mm512_maskz_loadu_epi32(__mmask16(present >> 16), list.index + i + 16);
    listed = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)), _mm512_cvtepi32_epi16(b), 1);
  } else {
    listed = _mm512_add_epi16(lane, _mm512_set1_epi16(int16_t(i)));
  }
  // Place p of the part is place p / 4 + groups * (p % 4) of the list.
  const __m512i group = _mm512_set1_epi16(int16_t(part.groups));
  const __m512i from = _mm512_add_epi16(_mm512_srli_epi16(lane, 2),
                                        _mm512_mullo_epi16(_mm512_and_si512(lane, _mm512_set1_epi16(3)), group));
  const __m512i count = _mm512_set1_epi16(int16_t(part.count));
  const __mmask32 places = part.groups == kGroups ? ~0u : (1u << part.groups * kGroup) - 1;
  const __mmask32 mask = _mm512_mask_cmplt_epi16_mask(places, from, count);
  const __m512i inside = _mm512_min_epi16(from, _mm512_sub_epi16(count, _mm512_set1_epi16(1)));
  const __m512i column =
      _mm512_and_si512(_mm512_permutexvar_epi16(inside, listed), _mm512_set1_epi16(int16_t(s.part_columns - 1)));

  const auto bytes = [](const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  const size_t first = size_t(part.first);  // codes are padded to whole lines
  const __m512i low = _mm512_maskz_permutexvar_epi16(mask, column, bytes(x.low + first));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(part.low), _mm512_cvtepi16_epi8(low));
  __m512i sum = _mm512_madd_epi16(low, _mm512_set1_epi16(1));
  if (x.high != nullptr) {
    const __m512i high = _mm512_maskz_permutexvar_epi16(mask, column, bytes(x.high + first));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(part.high), _mm512_cvtepi16_epi8(high));
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(high, _mm512_set1_epi16(kHighStep)));
  }
  part.sum = _mm512_reduce_add_epi32(sum);

  alignas(64) uint16_t columns[32];
  _mm512_store_si512(columns, column);
  const __m512i base = _mm512_set1_epi64(reinterpret_cast<long long>(column_of(s, part.header, part.first)));
  const __m512i step = _mm512_set1_epi64(static_cast<long long>(s.column_bytes));  // below 2^32: of at most 2^31 rows
  for (int k = 0; k < part.groups * kGroup; k += 8) {
    const __m512i c = _mm512_cvtepu16_epi64(_mm_load_si128(reinterpret_cast<const __m128i*>(columns + k)));
    _mm512_storeu_si512(part.column + k, _mm512_add_epi64(base, _mm512_mul_epu32(c, step)));
  }
}

#else

POP_INLINE VI all_ints(int32_t v) { return _mm256_set1_epi32(v); }
POP_INLINE VI zero_int() { return _mm256_setzero_si256(); }
POP_INLINE VI add_int(VI a, VI b) { return _mm256_add_epi32(a, b); }
POP_INLINE VF to_float(VI v) { return _mm256_cvtepi32_ps(v); }
POP_INLINE VI load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
POP_INLINE void store_int(void* p, VI v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

POP_INLINE void take_columns_fast(const ColumnShape& s, const ActsView& x, IndexList list, int i, Part& part) {
  take_columns(s, x, list, i, part);
}

#endif

}  // namespace
}  // namespace pop::POP_ISA
