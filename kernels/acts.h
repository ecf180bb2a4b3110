// The bytes of one prepared row of x, the same in every table.
//   F32: [cols] floats in their own order.
//   I8, I16 (cols a multiple of 32): [low byte codes][I16: high byte codes][scale][sum][scaled sum][half sum], each part padded
//   with zeros to 64 bytes; the last four hold one 32-bit value per block. A block's value is scale * q, and
//     I8:  q = low, |q| <= 127;   I16: q = 255 * high + low, |q| <= 32512, |high|, |low| <= 127,
//   so that 16-bit accuracy is had from two passes of the 8-bit products, and neither byte is ever -128.
//   sum = sum of q over the block, scaled sum = scale * sum, half sum = sum of q over its first 16 elements (Q6_K has a
//   scale per 16). Codes stand in the order of the 8-bit codes of a row in the same
//   layout (tensor/layout.h): "lane = block" in Rows, their own order in Columns.
//   BF16: groups of kActsGroup rows, of kActsGroup * acts_bytes() bytes each, absent rows zeros; columns padded with zeros to
//   a multiple of 32. Values are rounded to nearest, ties to even, subnormal ones to zero. 1 KB per 32 columns; column c of
//   them in row r is at byte 4r + 64 (c / 2) + 2 (c % 2) for matrices in Rows, at 64r + 2c for Columns: what stands beside a
//   tile of weights is the right factor there, the left one here (x86/amx.cpp).
// Only names with internal linkage, because instruction-set specific sources include this file.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace pop {
namespace {

constexpr int kHighStep = 255;
constexpr float kMaxCode8 = 127.f, kMaxCode16 = 32512.f;
// Blocks whose largest value is below this count as zero: the inverse of their scale would overflow.
constexpr float kTinyBlock = 0x1p-100f;

constexpr size_t pad_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct ActsView {
  const int8_t* low = nullptr;
  const int8_t* high = nullptr;  // null for I8
  const float* scale = nullptr;
  const int32_t* sum = nullptr;
  const float* scaled_sum = nullptr;
  const int32_t* half_sum = nullptr;
};

constexpr size_t acts_planes(ActType type) { return type == ActType::I16 ? 2 : 1; }

// Byte of the value of row `row` (of its group), column `column`.
[[maybe_unused]] constexpr size_t bf16_place(Layout layout, int row, int column) {
  const auto r = size_t(row), c = size_t(column % 32), step = size_t(column / 32) * 1024;
  return step + (layout == Layout::Rows ? 4 * r + 64 * (c / 2) + 2 * (c % 2) : 64 * r + 2 * c);
}

[[maybe_unused]] size_t acts_row_bytes(ActType type, int cols) {
  // An odd number of lines, so that groups do not fall on the same sets of a cache.
  if (type == ActType::BF16) return ((size_t(cols) + 31) / 32 | 1) * 64;
  if (type != ActType::I8 && type != ActType::I16) return pad_line(size_t(cols) * 4);
  return acts_planes(type) * pad_line(size_t(cols)) + 4 * pad_line(size_t(cols) / 32 * 4);
}

[[maybe_unused]] ActsView acts_view(ActType type, int cols, const uint8_t* row) {
  const size_t codes = pad_line(size_t(cols)), values = pad_line(size_t(cols) / 32 * 4);
  const uint8_t* tail = row + acts_planes(type) * codes;
  return {reinterpret_cast<const int8_t*>(row),
          type == ActType::I16 ? reinterpret_cast<const int8_t*>(row + codes) : nullptr,
          reinterpret_cast<const float*>(tail),
          reinterpret_cast<const int32_t*>(tail + values),
          reinterpret_cast<const float*>(tail + 2 * values),
          reinterpret_cast<const int32_t*>(tail + 3 * values)};
}

}  // namespace
}  // namespace pop
