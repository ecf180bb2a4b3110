// Weights of 16 rows in Columns (regular) as bfloat16 tiles of amx.cpp: per 32 columns 1 KB, a row's two neighbouring columns
// side by side.
#pragma once
#include "kernels/x86/bf16.h"
#include "kernels/x86/columns.h"

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

// The upper bits of the codes of rows row .. row + 15 (row a multiple of 16) of one column, from bit 4 on (high_place).
template <DType T>
POP_INLINE __m512i column_upper_bits(const uint8_t* plane, int row) {
  constexpr int kBits = block_format(T).high_bits;
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const uint8_t* p =
      plane + row / 64 * 8 * kBits;  // words of 16 bits: of rows i, i + 4, ..; of i, i + 8 with two bits each
  const __m512i words = kBits == 1 ? _mm512_broadcast_i32x4(_mm_cvtepu16_epi32(load64(p)))
                                   : _mm512_broadcast_i32x8(_mm256_cvtepu16_epi32(load128(p)));
  const __m512i place = kBits == 1 ? _mm512_srli_epi32(lane, 2) : _mm512_slli_epi32(_mm512_srli_epi32(lane, 3), 1);
  const int v = row % 64 / 16;
  const __m512i bits = _mm512_srlv_epi32(words, _mm512_add_epi32(place, _mm512_set1_epi32(v / 2 * 8 + v % 2 * 4)));
  return _mm512_slli_epi32(_mm512_and_si512(bits, _mm512_set1_epi32((1 << kBits) - 1)), 4);
}

// What the codes of rows row .. row + 15 of one column stand for: whole numbers.
template <DType T>
POP_INLINE VF column_codes_16(const uint8_t* column, int row, int padded_rows) {
  constexpr BlockFormat f = block_format(T);
  if constexpr (f.low_bits == 8) {
    return bytes_to_float(column + row);
  } else {
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(column + row / 64 * 32)));
    __m512i codes = _mm512_srl_epi32(words, _mm_cvtsi32_si128(row % 64 / 16 * 4));
    if constexpr (f.high_bits == 0) return _mm512_permutexvar_ps(codes, code_values<T>());
    codes = _mm512_or_si512(_mm512_and_si512(codes, _mm512_set1_epi32(15)),
                            column_upper_bits<T>(column + high_plane_at(f, size_t(padded_rows)), row));
    if constexpr (f.high_bits == 1) return _mm512_permutex2var_ps(code_values<T>(), codes, code_values<T>(16));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(f.zero)));
  }
}

template <DType T>
void unpack_columns_blocks(const Matrix& w, int row, int first, int count, uint8_t* out) {
  const ColumnShape s = shape_of<T>(w);
  const auto values = [&](const uint8_t* column, const RowScales& scales) __attribute__((always_inline)) {
    const VF v = mul(column_codes_16<T>(column, row, s.padded_rows), scales.scale);
    return has_mins(block_format(T).scales) ? add(v, scales.min) : v;
  };
  for (int k = 0; k < count; k += s.part_columns) {
    const uint8_t* header = header_of(s, first + k);
    const uint8_t* p = column_of(s, header, first + k);
    const RowScales scales = row_scales<T>(header, first + k, row, s.padded_rows);
    for (int c = 0; c < s.part_columns; c += 2, p += 2 * s.column_bytes, out += 64)
      store512(out, side_by_side(values(p, scales), values(p + s.column_bytes, scales)));
  }
}

// Of every type that has the layout.
UnpackColumns unpack_columns_of(DType type) {
  switch (type) {
    case DType::F32: return unpack_columns_plain<DType::F32>;
    case DType::F16: return unpack_columns_plain<DType::F16>;
    case DType::BF16: return unpack_columns_plain<DType::BF16>;
    case DType::Q8_0: return unpack_columns_blocks<DType::Q8_0>;
    case DType::Q4_0: return unpack_columns_blocks<DType::Q4_0>;
    case DType::Q4_1: return unpack_columns_blocks<DType::Q4_1>;
    case DType::Q5_0: return unpack_columns_blocks<DType::Q5_0>;
    case DType::Q5_1: return unpack_columns_blocks<DType::Q5_1>;
    case DType::Q4_K: return unpack_columns_blocks<DType::Q4_K>;
    case DType::Q5_K: return unpack_columns_blocks<DType::Q5_K>;
    case DType::Q6_K: return unpack_columns_blocks<DType::Q6_K>;
    default: return unpack_columns_blocks<DType::IQ4_NL>;
  }
}

}  // namespace
}  // namespace pop::POP_ISA
