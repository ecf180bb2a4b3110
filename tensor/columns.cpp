#include "tensor/columns.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "tensor/column_format.h"
#include "tensor/layout.h"

namespace pop {
namespace {

size_t padded_rows(const Matrix& w) { return (size_t(w.rows) + kRowTile - 1) / kRowTile * kRowTile; }

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

float plain_value(DType type, const uint8_t* p) {
  if (type == DType::F32) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
  return type == DType::F16 ? f16_to_f32(half_at(p)) : bf16_to_f32(half_at(p));
}

void put_bits(uint8_t* p, BitPlace at, int bits) { p[at.byte] = uint8_t(p[at.byte] | bits << at.shift); }

// The small scales of block `b` of its header at p.
void write_scales(const BlockFormat& f, size_t rows, size_t row, int b, const Block& block, uint8_t* p) {
  std::memcpy(p + 2 * row, &block.d, 2);
  if (has_mins(f.scales)) std::memcpy(p + 2 * (rows + row), &block.m, 2);
  if (f.scales == ScaleForm::SixBit) {
    uint8_t* s = p + six_bit_at(rows, b);
    s[row] = uint8_t((block.scale[0] & 15) | block.min << 4);
    put_bits(s + rows, upper_place(int(row)), block.scale[0] >> 4 | block.min >> 4 << 2);
  } else if (f.scales == ScaleForm::Byte16) {
    for (int half = 0; half < 2; ++half) p[byte16_at(rows, 2 * b + half) + row] = block.scale[half];
  }
}

void write_block(const Matrix& w, const BlockFormat& f, int row, int b, const Block& block, uint8_t* out) {
  const size_t rows = padded_rows(w), bytes = column_code_bytes(f, rows);
  const int columns = header_columns(f), first = b * kBlockElems;
  uint8_t* header = out + size_t(first / columns) * (column_header_bytes(f, rows) + size_t(columns) * bytes);
  write_scales(f, rows, size_t(row), first % columns / kBlockElems, block, header);
  uint8_t* column = header + column_header_bytes(f, rows) + size_t(first % columns) * bytes;
  const BitPlace low = low_place(f, row), high = f.high_bits != 0 ? high_place(f, row) : BitPlace{};
  const int mask = (1 << f.low_bits) - 1;
  for (int e = 0; e < kBlockElems; ++e, column += bytes) {
    put_bits(column, low, block.code[e] & mask);
    if (f.high_bits != 0) put_bits(column + high_plane_at(f, rows), high, block.code[e] >> 4);
  }
}

}  // namespace

void write_column_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out) {
  if (is_plain(w.type)) {
    const size_t size = size_t(traits(w.type).block_bytes), column = column_bytes(w);
    for (int c = 0; c < w.cols; ++c)
      std::memcpy(out + size_t(c) * column + size_t(row) * size, file_row + size_t(c) * size, size);
    return;
  }
  const BlockFormat f = block_format(w.type);
  for (int b = 0; b < w.cols / kBlockElems; ++b) write_block(w, f, row, b, read_file_block(w.type, file_row, b), out);
}

Block column_scales(const Matrix& w, const uint8_t* p, int column, int row) {
  const BlockFormat f = block_format(w.type);
  const size_t rows = padded_rows(w), r = size_t(row);
  const int b = column % header_columns(f) / kBlockElems;
  Block block;
  block.d = half_at(p + 2 * r);
  if (has_mins(f.scales)) block.m = half_at(p + 2 * (rows + r));
  if (f.scales == ScaleForm::SixBit) {
    const uint8_t* s = p + six_bit_at(rows, b);
    const BitPlace at = upper_place(row);
    const int upper = s[rows + at.byte] >> at.shift;
    block.scale[0] = block.scale[1] = uint8_t((s[r] & 15) | (upper & 3) << 4);
    block.min = uint8_t(s[r] >> 4 | (upper >> 2 & 3) << 4);
  } else if (f.scales == ScaleForm::Byte16) {
    for (int half = 0; half < 2; ++half) block.scale[half] = p[byte16_at(rows, 2 * b + half) + r];
  }
  return block;
}

uint8_t column_code(const Matrix& w, const uint8_t* p, int row) {
  const BlockFormat f = block_format(w.type);
  const BitPlace low = low_place(f, row);
  int code = p[low.byte] >> low.shift & ((1 << f.low_bits) - 1);
  if (f.high_bits != 0) {
    const BitPlace high = high_place(f, row);
    code |= (p[high_plane_at(f, padded_rows(w)) + high.byte] >> high.shift & ((1 << f.high_bits) - 1)) << 4;
  }
  return uint8_t(code);
}

void read_column_row(const Matrix& w, int row, float* out) {
  if (is_plain(w.type)) {
    for (int c = 0; c < w.cols; ++c)
      out[c] = plain_value(w.type, w.data + column_offset(w, c) + size_t(row) * size_t(traits(w.type).block_bytes));
    return;
  }
  for (int first = 0; first < w.cols; first += kBlockElems) {
    Block block = column_scales(w, w.data + header_offset(w, first / column_block(w.type)), first, row);
    for (int e = 0; e < kBlockElems; ++e) block.code[e] = column_code(w, w.data + column_offset(w, first + e), row);
    block_values(w.type, block, out + first);
  }
}

ColumnPart::ColumnPart(const Matrix& w, int begin)
    : w_(w), begin_(begin), count_(std::min(kBlockElems, w.cols - begin)), plain_(is_plain(w.type)) {
  for (int c = 0; c < count_; ++c) columns_[c] = w.data + column_offset(w, begin + c);
  if (plain_) return;
  high_plane_ = high_plane_at(block_format(w.type), padded_rows(w));
  header_ = w.data + header_offset(w, begin / column_block(w.type));
}

void ColumnPart::read(int row, float* out) const {
  if (plain_) {
    const size_t at = size_t(row) * size_t(traits(w_.type).block_bytes);
    for (int c = 0; c < count_; ++c) out[c] = plain_value(w_.type, columns_[c] + at);
    return;
  }
  Block block = column_scales(w_, header_, begin_, row);
  const BlockFormat f = block_format(w_.type);
  const BitPlace low = low_place(f, row);
  const int mask = (1 << f.low_bits) - 1;
  for (int c = 0; c < count_; ++c) block.code[c] = uint8_t(columns_[c][low.byte] >> low.shift & mask);
  if (f.high_bits != 0) {
    const BitPlace high = high_place(f, row);
    const int high_mask = (1 << f.high_bits) - 1;
    for (int c = 0; c < count_; ++c)
      block.code[c] = uint8_t(block.code[c] | (columns_[c][high_plane_ + high.byte] >> high.shift & high_mask) << 4);
  }
  block_values(w_.type, block, out);
}

}  // namespace pop
