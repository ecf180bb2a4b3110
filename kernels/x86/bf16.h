// Weights of a row in Rows as bfloat16, the values of dequantize() rounded to nearest: the tiles of amx.cpp. 32 columns of 16
// rows are a tile of 1 KB; a row is 64 bytes of each tile, in the order of the columns.
#pragma once
#include "kernels/x86/unpack.h"

namespace pop::POP_ISA {
namespace {

constexpr int kStep = 32;  // columns of a tile
constexpr size_t kTileBytes = 1024;

POP_INLINE __m512i load512(const void* p) { return _mm512_loadu_si512(p); }
POP_INLINE void store512(void* p, __m512i v) { _mm512_storeu_si512(p, v); }
POP_INLINE __m512i to_bf16(VF low, VF high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// Sixteen rows of sixteen 32-bit words to sixteen columns.
POP_INLINE void transpose16(const __m512i* r, __m512i* c) {
  __m512i t[16], u[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 2; ++k) {
      u[4 * i + 2 * k] = _mm512_unpacklo_epi64(t[4 * i + k], t[4 * i + 2 + k]);
      u[4 * i + 2 * k + 1] = _mm512_unpackhi_epi64(t[4 * i + k], t[4 * i + 2 + k]);
    }
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x44), b = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xee);
    const __m512i d = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0x44);
    const __m512i e = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0xee);
    c[j] = _mm512_shuffle_i32x4(a, d, 0x88);
    c[4 + j] = _mm512_shuffle_i32x4(a, d, 0xdd);
    c[8 + j] = _mm512_shuffle_i32x4(b, e, 0x88);
    c[12 + j] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
}

// Columns first .. first + count of a row (first a multiple of 256; the last tile is filled with zeros) to `out`.
using UnpackRow = void (*)(DType type, const uint8_t* row, int cols, int first, int count, uint8_t* out);

// Any type, by way of float32.
void unpack_bf16_any(DType type, const uint8_t* row, int cols, int first, int count, uint8_t* out) {
  alignas(64) float values[256];
  for (int k = 0; k < count; k += 256) {
    const int n = count - k < 256 ? count - k : 256;
    for (int i = n; i % kStep != 0; ++i) values[i] = 0;
    unpack_row(type, row, cols, first + k, n, values);
    for (int i = 0; i < n; i += kStep, out += kTileBytes)
      store512(out, to_bf16(load(values + i), load(values + i + kLanes)));
  }
}

void unpack_bf16_copy(DType, const uint8_t* row, int, int first, int count, uint8_t* out) {
  const uint8_t* p = row + 2 * size_t(first);
  int k = 0;
  for (; k + kStep <= count; k += kStep, out += kTileBytes) store512(out, load512(p + 2 * k));
  if (k < count) store512(out, _mm512_maskz_loadu_epi16((1u << (count - k)) - 1, p + 2 * k));
}

// Sixteen signed bytes as numbers.
POP_INLINE VF bytes_to_float(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Codes 0 .. 15, or 16 .. 31, as the numbers they stand for.
template <DType T>
POP_INLINE VF code_values(int from = 0) {
  if constexpr (block_format(T).is_table)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Codes))));
  const VF count = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return add(count, set1(float(from - block_format(T).zero)));
}

}  // namespace
}  // namespace pop::POP_ISA
