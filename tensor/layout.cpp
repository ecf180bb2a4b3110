#include "tensor/layout.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/column_format.h"
#include "tensor/columns.h"

namespace pop {
namespace {

constexpr size_t round_up(size_t v, size_t to) { return (v + to - 1) / to * to; }

size_t padded_rows(const Matrix& w) { return round_up(size_t(w.rows), kRowTile); }
size_t plain_bytes(DType type) { return size_t(traits(type).block_bytes); }

uint32_t word_at(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// Four elements of a block are one 32-bit word of a plane of `bits`: word s of the block at `lane` of a chunk of c blocks.
size_t word_place(int bits, int c, int lane, int s) { return size_t(s % bits * 4 * c + 4 * lane); }

void write_plane(int bits, int down, int c, int lane, const Block& block, uint8_t* chunk) {
  const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (int s = 0; s < 8; ++s) {
    uint8_t* p = chunk + word_place(bits, c, lane, s);
    const uint32_t word = word_at(p) | (word_at(block.code + 4 * s) >> down & mask) << (bits * (s / bits));
    std::memcpy(p, &word, 4);
  }
}

void read_plane(int bits, int up, int c, int lane, const uint8_t* chunk, Block& block) {
  const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = word_at(chunk + word_place(bits, c, lane, s)) >> (bits * (s / bits)) & mask;
    const uint32_t joined = word_at(block.code + 4 * s) | word << up;
    std::memcpy(block.code + 4 * s, &joined, 4);
  }
}

// Visits the scale fields of block `lane` of a group of n blocks at p: whole(value, place of a half), bits(value, place of a
// byte, shift there, bits, shift in the value), so that writing and reading share one description.
template <class Blk, class Whole, class Bits>
void visit_scales(ScaleForm form, Blk& b, int n, int lane, Whole&& whole, Bits&& bits) {
  const size_t l = size_t(lane), blocks = size_t(n), super = l / kSuperBlocks, supers = blocks / kSuperBlocks;
  switch (form) {
    case ScaleForm::Half: whole(b.d, 2 * l); break;
    case ScaleForm::HalfMin:
      whole(b.d, 2 * l);
      whole(b.m, 2 * (blocks + l));
      break;
    case ScaleForm::SixBit: {
      bits(b.scale[0], l, 0, 4, 0);
      bits(b.min, l, 4, 4, 0);
      const int shift = lane % 2 * 4;
      bits(b.scale[0], blocks + l / 2, shift, 2, 4);
      bits(b.min, blocks + l / 2, shift + 2, 2, 4);
      whole(b.d, blocks + blocks / 2 + 2 * super);
      whole(b.m, blocks + blocks / 2 + 2 * (supers + super));
      break;
    }
    case ScaleForm::Byte16:
      bits(b.scale[0], l, 0, 8, 0);
      bits(b.scale[1], blocks + l, 0, 8, 0);
      whole(b.d, 2 * blocks + 2 * super);
      break;
  }
}

void write_rows_block_row(DType type, int cols, const uint8_t* file_row, uint8_t* out) {
  const BlockFormat f = block_format(type);
  const int blocks = cols / kBlockElems;
  for (int i = 0; i < blocks; ++i) {
    const Block block = read_file_block(type, file_row, i);
    const GroupPlace group = group_place(f, i, blocks);
    const BlockPlace chunk = block_place(i, blocks);
    const int lane = i - chunk.first, before = chunk.first - group.first;
    write_plane(f.low_bits, 0, chunk.n, lane, block, out + group.low + plane_bytes(f.low_bits, before));
    if (f.high_bits != 0)
      write_plane(f.high_bits, 4, chunk.n, lane, block, out + group.high + plane_bytes(f.high_bits, before));
    uint8_t* p = out + group.scales;
    visit_scales(
        f.scales, block, group.n, i - group.first,
        [p](const uint16_t& half, size_t at) { std::memcpy(p + at, &half, 2); },
        [p](const uint8_t& value, size_t at, int shift, int bits, int from) {
          p[at] = uint8_t(p[at] | (value >> from & ((1 << bits) - 1)) << shift);
        });
  }
}

// Calls visit(first byte, bytes) for what a read of `list` touches, positions ascending. A decoded token counts its bytes
// with it in every layer: what does not depend on the index is worked out before the loop.
template <class Visit>
void visit_ranges(const Matrix& w, IndexList list, Visit&& visit) {
  const uint64_t *const offset = w.offset, *const header_at = w.header_offset;
  if (w.layout == Layout::Rows) {
    const size_t bytes = unit_bytes(w);
    for (int i = 0; i < list.count; ++i) visit(offset != nullptr ? offset[list[i]] : size_t(list[i]) * bytes, bytes);
    return;
  }
  const size_t bytes = column_bytes(w), header = header_bytes(w);
  const auto block = uint32_t(column_block(w.type));
  const size_t whole = header + block * bytes;
  uint32_t begin = 0, end = 0;  // columns of the block whose header was visited
  size_t first = 0;             // its first column's byte
  for (int i = 0; i < list.count; ++i) {
    const auto column = uint32_t(list[i]);
    if (column >= end) {
      const uint32_t b = column / block;
      begin = b * block;
      end = begin + block;
      const size_t at = header_at != nullptr ? header_at[b] : b * whole;
      first = at + header;
      if (header != 0) visit(at, header);
    }
    visit(offset != nullptr ? offset[column] : first + (column - begin) * bytes, bytes);
  }
}

}  // namespace

bool is_fast_block(DType type) { return block_format(type).low_bits != 0; }
bool is_plain(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }
bool has_columns_layout(DType type) { return is_plain(type) || is_fast_block(type); }

BlockPlace block_place(int block, int blocks) {
  BlockPlace at{block / 8 * 8, 0};
  for (at.n = chunk_at(at.first, blocks); at.first + at.n <= block; at.n = chunk_at(at.first, blocks)) at.first += at.n;
  return at;
}

Block read_row_block(DType type, const uint8_t* row, int cols, int block) {
  const BlockFormat f = block_format(type);
  const int blocks = cols / kBlockElems;
  const GroupPlace group = group_place(f, block, blocks);
  const BlockPlace chunk = block_place(block, blocks);
  const int lane = block - chunk.first, before = chunk.first - group.first;
  Block b;
  read_plane(f.low_bits, 0, chunk.n, lane, row + group.low + plane_bytes(f.low_bits, before), b);
  if (f.high_bits != 0)
    read_plane(f.high_bits, 4, chunk.n, lane, row + group.high + plane_bytes(f.high_bits, before), b);
  if (has_super_blocks(f.scales)) b.scale[0] = b.scale[1] = b.min = 0;  // filled in parts
  const uint8_t* p = row + group.scales;
  visit_scales(
      f.scales, b, group.n, block - group.first, [p](uint16_t& half, size_t at) { std::memcpy(&half, p + at, 2); },
      [p](uint8_t& value, size_t at, int shift, int bits, int to) {
        value = uint8_t(value | (p[at] >> shift & ((1 << bits) - 1)) << to);
      });
  if (f.scales == ScaleForm::SixBit) b.scale[1] = b.scale[0];
  return b;
}

int column_block(DType type) { return is_plain(type) ? 1 : header_columns(block_format(type)); }

size_t matrix_bytes(const Matrix& w) {
  if (w.layout == Layout::Rows) return row_bytes(w.type, w.cols) * size_t(w.rows);
  return size_t(w.cols / column_block(w.type)) * (header_bytes(w) + size_t(column_block(w.type)) * column_bytes(w));
}

size_t unit_bytes(const Matrix& w) { return row_bytes(w.type, w.cols) * size_t(w.unit); }

size_t column_bytes(const Matrix& w) {
  if (is_plain(w.type)) return padded_rows(w) * plain_bytes(w.type);
  return column_code_bytes(block_format(w.type), padded_rows(w));
}

size_t header_bytes(const Matrix& w) {
  return is_plain(w.type) ? 0 : column_header_bytes(block_format(w.type), padded_rows(w));
}

size_t unit_offset(const Matrix& w, int unit) {
  return w.offset != nullptr ? w.offset[unit] : size_t(unit) * unit_bytes(w);
}

size_t header_offset(const Matrix& w, int block) {
  if (w.header_offset != nullptr) return w.header_offset[block];
  return size_t(block) * (header_bytes(w) + size_t(column_block(w.type)) * column_bytes(w));
}

size_t column_offset(const Matrix& w, int column) {
  if (w.offset != nullptr) return w.offset[column];
  const int block = column_block(w.type);
  return header_offset(w, column / block) + header_bytes(w) + size_t(column % block) * column_bytes(w);
}

void write_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out) {
  if (w.layout == Layout::Columns) {
    if (!has_columns_layout(w.type)) fail("{}: this type has no input-major layout", traits(w.type).name);
    write_column_row(w, row, file_row, out);
    return;
  }
  const size_t bytes = row_bytes(w.type, w.cols);
  out += size_t(row) * bytes;
  if (is_fast_block(w.type)) {
    write_rows_block_row(w.type, w.cols, file_row, out);
  } else {
    std::memcpy(out, file_row, bytes);
  }
}

void read_row(const Matrix& w, int row, float* out) {
  if (w.layout == Layout::Columns) {
    read_column_row(w, row, out);
    return;
  }
  const uint8_t* in = w.data + unit_offset(w, row / w.unit) + size_t(row % w.unit) * row_bytes(w.type, w.cols);
  if (is_fast_block(w.type)) {
    for (int b = 0; b < w.cols / kBlockElems; ++b)
      block_values(w.type, read_row_block(w.type, in, w.cols, b), out + b * kBlockElems);
  } else {
    dequantize(w.type, in, out, w.cols);
  }
}

size_t pack_bytes(const Matrix& w, IndexList keep) {
  size_t total = 0;
  visit_ranges(w, keep, [&](size_t, size_t bytes) { total += bytes; });
  return round_up(total, kLine);
}

Matrix pack(const Matrix& w, IndexList keep, uint8_t* memory, PackedTables& tables) {
  const int block = column_block(w.type);
  const bool headers = w.layout == Layout::Columns && header_bytes(w) != 0;
  tables.offset.assign(size_t(w.layout == Layout::Rows ? w.rows / w.unit : w.cols), 0);
  tables.header_offset.assign(headers ? size_t(w.cols / block) : 0, 0);
  int i = 0, last = -1;  // the next index to copy, the block whose header is copied
  size_t end = 0;
  visit_ranges(w, keep, [&](size_t first, size_t bytes) {
    if (headers && keep[i] / block != last) {
      last = keep[i] / block;
      tables.header_offset[size_t(last)] = end;
    } else {
      tables.offset[size_t(keep[i++])] = end;
    }
    std::memcpy(memory + end, w.data + first, bytes);
    end += bytes;
  });
  Matrix packed = w;
  packed.data = memory;
  packed.offset = tables.offset.data();
  packed.header_offset = headers ? tables.header_offset.data() : nullptr;
  packed.packed_bytes = end;
  return packed;
}

size_t bytes_read(const Matrix& w, IndexList list) {
  const int all = w.layout == Layout::Rows ? w.rows / w.unit : w.cols;
  if (list.count == all && w.offset == nullptr) return round_up(matrix_bytes(w), kLine);
  size_t lines = 0, seen = 0;  // seen: first line not counted yet
  visit_ranges(w, list, [&](size_t first, size_t bytes) {
    const size_t from = std::max(seen, first / kLine), to = (first + bytes + kLine - 1) / kLine;
    lines += to - std::min(from, to);
    seen = to;
  });
  return lines * kLine;
}

std::vector<std::pair<size_t, size_t>> unread_ranges(const Matrix& w, IndexList list) {
  std::vector<std::pair<size_t, size_t>> ranges;
  size_t end = 0;  // everything before is either read or listed
  visit_ranges(w, list, [&](size_t first, size_t bytes) {
    const size_t from = first / kLine * kLine;
    if (from > end) ranges.emplace_back(end, from);
    end = std::max(end, round_up(first + bytes, kLine));
  });
  const size_t total = round_up(w.offset != nullptr ? w.packed_bytes : matrix_bytes(w), kLine);
  if (total > end) ranges.emplace_back(end, total);
  return ranges;
}

}  // namespace pop
