// Block types in Columns (tensor/column_format.h), a vector of neighbouring rows at a time: scales, and values as float32
// (exactly dequantize()'s).
#pragma once
#include "kernels/x86/codes.h"
#include "tensor/column_format.h"

namespace pop::POP_ISA {
namespace {

// Where the columns of a matrix lie.
struct ColumnShape {
  const Matrix& w;
  int padded_rows, part_columns, header_columns;  // part_columns: share a scale
  size_t column_bytes, header_bytes;
};

template <DType T>
POP_INLINE ColumnShape shape_of(const Matrix& w) {
  constexpr BlockFormat f = block_format(T);
  const int padded = (w.rows + kRowTile - 1) / kRowTile * kRowTile;
  return {w,
          padded,
          f.scales == ScaleForm::Byte16 ? 16 : 32,
          header_columns(f),
          column_code_bytes(f, size_t(padded)),
          column_header_bytes(f, size_t(padded))};
}

POP_INLINE const uint8_t* header_of(const ColumnShape& s, int column) {
  const int i = column / s.header_columns;
  if (s.w.header_offset != nullptr) return s.w.data + s.w.header_offset[i];
  return s.w.data + size_t(i) * (s.header_bytes + size_t(s.header_columns) * s.column_bytes);
}
POP_INLINE const uint8_t* column_of(const ColumnShape& s, const uint8_t* header, int column) {
  if (s.w.offset != nullptr) return s.w.data + s.w.offset[column];
  return header + s.header_bytes + size_t(column % s.header_columns) * s.column_bytes;
}

POP_INLINE __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
POP_INLINE __m128i load64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

#ifdef __AVX512F__
POP_INLINE VI widen_bytes(const uint8_t* p) { return _mm512_cvtepu8_epi32(load128(p)); }
POP_INLINE VF signed_bytes(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p))); }
POP_INLINE VI low_bits(VI v, int mask) { return _mm512_and_si512(v, _mm512_set1_epi32(mask)); }
POP_INLINE VI down(VI v, int n) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(n)); }
POP_INLINE VI up(VI v, int n) { return _mm512_slli_epi32(v, unsigned(n)); }
POP_INLINE VI join(VI a, VI b) { return _mm512_or_si512(a, b); }
POP_INLINE VF int_values(VI v) { return _mm512_cvtepi32_ps(v); }
#else
POP_INLINE VI widen_bytes(const uint8_t* p) { return _mm256_cvtepu8_epi32(load64(p)); }
POP_INLINE VF signed_bytes(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(p))); }
POP_INLINE VI low_bits(VI v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi32(mask)); }
POP_INLINE VI down(VI v, int n) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(n)); }
POP_INLINE VI up(VI v, int n) { return _mm256_slli_epi32(v, n); }
POP_INLINE VI join(VI a, VI b) { return _mm256_or_si256(a, b); }
POP_INLINE VF int_values(VI v) { return _mm256_cvtepi32_ps(v); }
#endif

struct RowScales {
  VF scale, min;
};

// Of the column's scale, for rows row .. row + kLanes - 1; row a multiple of kLanes.
template <DType T>
POP_INLINE RowScales row_scales(const uint8_t* header, int column, int row, int padded_rows) {
  constexpr BlockFormat f = block_format(T);
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(header) + row;
  const VF d = from_half(halves);
  const size_t padded = size_t(padded_rows);
  if constexpr (f.scales == ScaleForm::Half) return {d, zero()};
  if constexpr (f.scales == ScaleForm::HalfMin) return {d, from_half(halves + padded)};
  if constexpr (f.scales == ScaleForm::Byte16)
    return {mul(d, signed_bytes(header + byte16_at(padded, column % 256 / 16) + size_t(row))), zero()};
  if constexpr (f.scales == ScaleForm::SixBit) {
    const uint8_t* small = header + six_bit_at(padded, column % 256 / 32);
    const BitPlace at = upper_place(row);
    const VI lower = widen_bytes(small + row), upper = down(widen_bytes(small + padded + at.byte), at.shift);
    const VI s = join(low_bits(lower, 15), up(low_bits(upper, 3), 4));
    const VI m = join(down(lower, 4), up(low_bits(upper, 12), 2));
    return {mul(d, int_values(s)), sub(zero(), mul(from_half(halves + padded), int_values(m)))};
  }
}

// The bits above the nibbles of 64 rows of a column, each in its nibble's byte: of upper nibbles at bit 4, of lower ones at bit 0.
// p: the high plane at those rows.
template <DType T>
POP_INLINE __m256i high_plane_bits(const uint8_t* p) {
  if constexpr (kHighBits<T> == 1)
    return _mm256_srlv_epi64(_mm256_broadcastq_epi64(load64(p)), _mm256_setr_epi64x(0, 1, 2, 3));
  return _mm256_srlv_epi64(_mm256_broadcastsi128_si256(load128(p)), _mm256_setr_epi64x(0, 0, 2, 2));
}

// Codes of rows row .. row + 15 (row a multiple of 16) of one column, one byte each; of tables the values.
template <DType T>
POP_INLINE __m128i column_codes(const uint8_t* column, int row, [[maybe_unused]] size_t padded_rows) {
  constexpr BlockFormat f = block_format(T);
  if constexpr (f.low_bits == 8) return load128(column + row);
  const size_t tile = size_t(row) / 64;
  const bool upper = row % 32 != 0, odd = row % 64 >= 32;  // nibble of the byte, byte of the word
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column + tile * 32));
  __m256i v = _mm256_and_si256(upper ? _mm256_srli_epi16(bytes, 4) : bytes, _mm256_set1_epi8(15));
  if constexpr (f.high_bits != 0) {
    const __m256i bits = high_plane_bits<T>(column + high_plane_at(f, padded_rows) + tile * 8 * f.high_bits);
    v = _mm256_or_si256(v, _mm256_and_si256(upper ? bits : _mm256_slli_epi16(bits, 4), _mm256_set1_epi8(kHighMask<T>)));
  }
  v = odd ? _mm256_srli_epi16(v, 8) : _mm256_and_si256(v, _mm256_set1_epi16(255));
  const __m128i codes = _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return f.is_table ? _mm_shuffle_epi8(load128(kIq4Codes), codes) : codes;
}

// What the codes of kLanes rows of one column stand for: whole numbers, as float32.
template <DType T>
POP_INLINE VF column_numbers(const uint8_t* column, int row, int padded_rows) {
  const int i = row % 16;
  __m128i codes = column_codes<T>(column, row - i, size_t(padded_rows));
  if (i != 0) codes = _mm_srli_si128(codes, 8);
  codes = _mm_sub_epi8(codes, _mm_set1_epi8(char(block_format(T).zero)));
#ifdef __AVX512F__
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
#else
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
#endif
}

// Their values, given the scales of those rows.
template <DType T>
POP_INLINE VF column_values(const uint8_t* column, int row, int padded_rows, const RowScales& s) {
  const VF value = mul(column_numbers<T>(column, row, padded_rows), s.scale);
  return has_mins(block_format(T).scales) ? add(value, s.min) : value;
}

}  // namespace
}  // namespace pop::POP_ISA
