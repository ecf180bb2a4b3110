// How block types lie in Columns; R = rows rounded up to kRowTile. For each header_columns() columns, which share a header:
//   [header][column after column]
// Header, arrays over rows:
//   Half     f16 d [R]                         HalfMin  f16 d [R], f16 m [R]
//   SixBit   f16 d [R], f16 dmin [R], then for each of 8 blocks of 32 columns: R bytes, low nibble of the 6-bit scale s, of the
//            6-bit min m << 4; R / 2 bytes with their upper bits: of row 64t + 16v + i bits 0-1 (s) and 2-3 (m), shifted by
//            4 (v % 2), of byte 32t + 16 (v / 2) + i
//   Byte16   f16 d [R], then for each of 16 half blocks of 16 columns: int8 s [R]
// Column: [low plane][high plane] of the codes (block_format.h).
//   8-bit codes: byte per row. 4-bit low plane, R / 2 bytes: of rows 64t .. 64t+63 the 16-bit word at byte 32t + 2i holds rows
//   64t + i, + 16, + 32, + 48 from the low nibble up, so that 2 columns' words or 4 columns' bytes side by side are what the
//   integer products take, after one mask.
//   High plane of B bits, 8 B bytes per 64 rows: of the row whose nibble is in byte p of its 32, low or high (n = 0 or 1),
//   byte p % (8 B), shift B * (p / (8 B)) + 4 n: repeated over 32 bytes and shifted by the same in each 8 B of them, every bit
//   stands beside its nibble.
// Nothing is larger than in the file but for the padding of rows.
// Only names with internal linkage, because instruction-set specific sources include this file.
#pragma once
#include "tensor/block_format.h"

namespace pop {
namespace {

constexpr int kRowTile = 64;  // rows are padded to a multiple of this

constexpr int header_columns(const BlockFormat& f) { return has_super_blocks(f.scales) ? 256 : kBlockElems; }

constexpr size_t column_header_bytes(const BlockFormat& f, size_t padded_rows) {
  switch (f.scales) {
    case ScaleForm::Half: return 2 * padded_rows;
    case ScaleForm::HalfMin: return 4 * padded_rows;
    case ScaleForm::SixBit: return 16 * padded_rows;
    default: return 18 * padded_rows;
  }
}

constexpr size_t column_code_bytes(const BlockFormat& f, size_t padded_rows) {
  return padded_rows * size_t(f.low_bits + f.high_bits) / 8;
}
constexpr size_t high_plane_at(const BlockFormat& f, size_t padded_rows) {
  return padded_rows * size_t(f.low_bits) / 8;
}

// Where in a header the small scales of a block of 32 columns (SixBit) or half a block (Byte16) begin.
constexpr size_t six_bit_at(size_t padded_rows, int block) {
  return 4 * padded_rows + size_t(block) * padded_rows * 3 / 2;
}
constexpr size_t byte16_at(size_t padded_rows, int half) { return 2 * padded_rows + size_t(half) * padded_rows; }

struct BitPlace {
  size_t byte;
  int shift;
};
constexpr BitPlace low_place(const BlockFormat& f, int row) {
  const int in_tile = row % 64;
  if (f.low_bits == 8) return {size_t(row), 0};
  return {size_t(row / 64 * 32 + 2 * (in_tile % 16) + in_tile / 32), in_tile / 16 % 2 * 4};
}
constexpr BitPlace high_place(const BlockFormat& f, int row) {
  const BitPlace low = low_place(f, row);
  const int p = int(low.byte % 32), bytes = 8 * f.high_bits;
  return {size_t(row / 64 * bytes + p % bytes), f.high_bits * (p / bytes) + low.shift};
}
// The upper bits of a SixBit scale and min, from the first byte of them on.
constexpr BitPlace upper_place(int row) {
  const int v = row % 64 / 16;
  return {size_t(row / 64 * 32 + v / 2 * 16 + row % 16), v % 2 * 4};
}

}  // namespace
}  // namespace pop
