// Weights of 16 rows in Columns (regular) as bfloat16 tiles of amx.cpp: per 32 columns 1 KB, a row's two neighbouring columns
// side by side.
#pragma once
#include "kernels/x86/bf16.h"

namespace pop::POP_ISA {
namespace {

// Rows row .. row + 15, columns first .. first + count (first a multiple of 32; the last tile is filled with zeros) to `out`.
using UnpackColumns = void (*)(const Matrix& w, int row, int first, int count, uint8_t* out);

POP_INLINE __m512i side_by_side(VF left, VF right) {
  const __m512i order = _mm512_or_si512(
      _mm512_and_si512(_mm512_set1_epi32(0xffff),
                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
      _mm512_slli_epi32(_mm512_setr_epi32(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31), 16));
  return _mm512_permutexvar_epi16(order, to_bf16(left, right));
}

template <DType T>
void unpack_columns_plain(const Matrix& w, int row, int first, int count, uint8_t* out) {
  const size_t column = size_t((w.rows + 63) / 64 * 64) * kPlainBytes<T>;
  const uint8_t* p = w.data + size_t(first) * column + size_t(row) * kPlainBytes<T>;
  for (int k = 0; k < (count + kStep - 1) / kStep * kStep; k += 2, p += 2 * column, out += 64) {
    if constexpr (T == DType::BF16) {
      const auto words = [&](const uint8_t* at) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
      };
      const __m512i left = k < count ? words(p) : _mm512_setzero_si512();
      const __m512i right = k + 1 < count ? words(p + column) : _mm512_setzero_si512();
      store512(out, _mm512_or_si512(left, _mm512_slli_epi32(right, 16)));
    } else {
      store512(out,
               side_by_side(k < count ? load_plain<T>(p) : zero(), k + 1 < count ? load_plain<T>(p + column) : zero()));
    }
  }
}

// The codes of 16 rows of one column as numbers.
template <DType T>
POP_INLINE VF column_values(const uint8_t* column, int row) {
  if constexpr (kFourBit<T>) {
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(column + row / 64 * 32)));
    return _mm512_permutexvar_ps(_mm512_srl_epi32(words, _mm_cvtsi32_si128(row % 64 / 16 * 4)), code_values<T>());
  } else {
    return bytes_to_float(column + row);
  }
}

template <DType T>
void unpack_columns_blocks(const Matrix& w, int row, int first, int count, uint8_t* out) {
  const size_t padded = size_t((w.rows + 63) / 64 * 64);
  const size_t header = padded * (T == DType::Q4_1 ? 4 : 2), column = kFourBit<T> ? padded / 2 : padded;
  const uint8_t* block = w.data + size_t(first / 32) * (header + 32 * column);
  for (int k = 0; k < count; k += 32, block += header + 32 * column) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(block) + row;
    const VF scale = from_half(halves), min = T == DType::Q4_1 ? from_half(halves + padded) : zero();
    const uint8_t* p = block + header;
    for (int i = 0; i < 16; ++i, p += 2 * column, out += 64) {
      VF left = mul(column_values<T>(p, row), scale), right = mul(column_values<T>(p + column, row), scale);
      if constexpr (T == DType::Q4_1) left = add(left, min), right = add(right, min);
      store512(out, side_by_side(left, right));
    }
  }
}

// Null: a type without tiles in Columns.
UnpackColumns unpack_columns_of(DType type) {
  switch (type) {
    case DType::F32: return unpack_columns_plain<DType::F32>;
    case DType::F16: return unpack_columns_plain<DType::F16>;
    case DType::BF16: return unpack_columns_plain<DType::BF16>;
    case DType::Q8_0: return unpack_columns_blocks<DType::Q8_0>;
    case DType::Q4_0: return unpack_columns_blocks<DType::Q4_0>;
    case DType::Q4_1: return unpack_columns_blocks<DType::Q4_1>;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace pop::POP_ISA
