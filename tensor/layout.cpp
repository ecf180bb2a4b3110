#include "tensor/layout.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace pop {
namespace {

constexpr size_t round_up(size_t v, size_t to) { return (v + to - 1) / to * to; }

bool four_bit(DType type) { return type == DType::Q4_0 || type == DType::Q4_1; }
bool has_mins(DType type) { return type == DType::Q4_1; }

size_t padded_rows(const Matrix& w) { return round_up(size_t(w.rows), kRowTile); }
size_t plain_bytes(DType type) { return size_t(traits(type).block_bytes); }

// One block of a file row, taken apart.
struct FileBlock {
  uint8_t code[kBlockElems];  // 4-bit codes 0..15, or the bits of an int8
  uint16_t scale = 0, min = 0;
};

FileBlock read_file_block(DType type, const uint8_t* p) {
  FileBlock b;
  std::memcpy(&b.scale, p, 2);
  if (type == DType::Q8_0) {
    std::memcpy(b.code, p + 2, kBlockElems);
    return b;
  }
  p += 2;
  if (has_mins(type)) {
    std::memcpy(&b.min, p, 2);
    p += 2;
  }
  for (int i = 0; i < 16; ++i) {
    b.code[i] = p[i] & 15;
    b.code[i + 16] = p[i] >> 4;
  }
  return b;
}

// Where a code of a row lies: byte from the row's first, and bit shift inside it (4-bit types).
struct CodePlace {
  size_t byte;
  int shift;
};

CodePlace row_code_place(bool nibbles, BlockPlace at, int block, int e) {
  const int n = at.n, lane = block - at.first, s = e / 4, j = e % 4;
  if (nibbles) return {size_t(at.first) * 16 + size_t((s % 4) * 4 * n + 4 * lane + j), s < 4 ? 0 : 4};
  return {size_t(at.first) * 32 + size_t(s * 4 * n + 4 * lane + j), 0};
}

CodePlace column_code_place(DType type, int row) {
  const int in_tile = row % 64;
  if (four_bit(type)) return {size_t(row / 64 * 32 + 2 * (in_tile % 16) + in_tile / 32), in_tile / 16 % 2 * 4};
  return {size_t(row), 0};
}

size_t row_codes_bytes(DType type, int cols) { return four_bit(type) ? size_t(cols) / 2 : size_t(cols); }

float block_value(DType type, int code, float scale, float min) {
  switch (type) {
    case DType::Q8_0: return float(int8_t(code)) * scale;
    case DType::Q4_0: return float(code - 8) * scale;
    default: return float(code) * scale + min;
  }
}

float plain_value(DType type, const uint8_t* p) {
  if (type == DType::F32) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
  uint16_t h;
  std::memcpy(&h, p, 2);
  return type == DType::F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

float half_at(const uint8_t* p, size_t i) {
  uint16_t h;
  std::memcpy(&h, p + 2 * i, 2);
  return f16_to_f32(h);
}

void write_rows_block_row(DType type, int cols, const uint8_t* file_row, uint8_t* out) {
  const int blocks = cols / kBlockElems;
  const size_t file_bytes = plain_bytes(type), codes = row_codes_bytes(type, cols);
  for (int b = 0; b < blocks; ++b) {
    const FileBlock block = read_file_block(type, file_row + size_t(b) * file_bytes);
    const BlockPlace chunk = block_place(b, blocks);
    for (int e = 0; e < kBlockElems; ++e) {
      const CodePlace at = row_code_place(four_bit(type), chunk, b, e);
      out[at.byte] = uint8_t(out[at.byte] | block.code[e] << at.shift);
    }
    std::memcpy(out + codes + 2 * size_t(b), &block.scale, 2);
    if (has_mins(type)) std::memcpy(out + codes + 2 * size_t(blocks + b), &block.min, 2);
  }
}

void write_columns_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out) {
  const size_t column = column_bytes(w);
  if (is_plain(w.type)) {
    const size_t size = plain_bytes(w.type);
    for (int c = 0; c < w.cols; ++c)
      std::memcpy(out + size_t(c) * column + size_t(row) * size, file_row + size_t(c) * size, size);
    return;
  }
  const size_t header = header_bytes(w), whole = header + kBlockElems * column;
  const CodePlace at = column_code_place(w.type, row);
  for (int b = 0; b < w.cols / kBlockElems; ++b) {
    const FileBlock block = read_file_block(w.type, file_row + size_t(b) * plain_bytes(w.type));
    uint8_t* base = out + size_t(b) * whole;
    std::memcpy(base + 2 * size_t(row), &block.scale, 2);
    if (has_mins(w.type)) std::memcpy(base + 2 * (padded_rows(w) + size_t(row)), &block.min, 2);
    for (int e = 0; e < kBlockElems; ++e) {
      uint8_t& byte = base[header + size_t(e) * column + at.byte];
      byte = uint8_t(byte | block.code[e] << at.shift);
    }
  }
}

void read_rows_block_row(DType type, int cols, const uint8_t* in, float* out) {
  const int blocks = cols / kBlockElems;
  const uint8_t* scales = in + row_codes_bytes(type, cols);
  for (int b = 0; b < blocks; ++b) {
    const float scale = half_at(scales, size_t(b)), min = has_mins(type) ? half_at(scales, size_t(blocks + b)) : 0.f;
    const BlockPlace chunk = block_place(b, blocks);
    for (int e = 0; e < kBlockElems; ++e) {
      const CodePlace at = row_code_place(four_bit(type), chunk, b, e);
      const int code = four_bit(type) ? in[at.byte] >> at.shift & 15 : in[at.byte];
      out[b * kBlockElems + e] = block_value(type, code, scale, min);
    }
  }
}

void read_columns_row(const Matrix& w, int row, float* out) {
  if (is_plain(w.type)) {
    for (int c = 0; c < w.cols; ++c)
      out[c] = plain_value(w.type, w.data + column_offset(w, c) + size_t(row) * plain_bytes(w.type));
    return;
  }
  const CodePlace at = column_code_place(w.type, row);
  for (int c = 0; c < w.cols; ++c) {
    const uint8_t* header = w.data + header_offset(w, c / kBlockElems);
    const int byte = w.data[column_offset(w, c) + at.byte];
    const int code = four_bit(w.type) ? byte >> at.shift & 15 : byte;
    const float min = has_mins(w.type) ? half_at(header, padded_rows(w) + size_t(row)) : 0.f;
    out[c] = block_value(w.type, code, half_at(header, size_t(row)), min);
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

bool is_fast_block(DType type) { return type == DType::Q8_0 || type == DType::Q4_0 || type == DType::Q4_1; }
bool is_plain(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }
bool has_columns_layout(DType type) { return is_plain(type) || is_fast_block(type); }

BlockPlace block_place(int block, int blocks) {
  const int whole = blocks / 8 * 8;
  if (block < whole) return {block / 8 * 8, 8};
  int first = whole;
  for (int n = 4; n > 1; n /= 2) {
    if (((blocks - whole) & n) == 0) continue;
    if (block < first + n) return {first, n};
    first += n;
  }
  return {first, 1};
}

int column_block(DType type) { return is_plain(type) ? 1 : kBlockElems; }

size_t matrix_bytes(const Matrix& w) {
  if (w.layout == Layout::Rows) return row_bytes(w.type, w.cols) * size_t(w.rows);
  return size_t(w.cols / column_block(w.type)) * (header_bytes(w) + size_t(column_block(w.type)) * column_bytes(w));
}

size_t unit_bytes(const Matrix& w) { return row_bytes(w.type, w.cols) * size_t(w.unit); }

size_t column_bytes(const Matrix& w) {
  if (is_plain(w.type)) return padded_rows(w) * plain_bytes(w.type);
  return four_bit(w.type) ? padded_rows(w) / 2 : padded_rows(w);
}

size_t header_bytes(const Matrix& w) { return is_plain(w.type) ? 0 : padded_rows(w) * (has_mins(w.type) ? 4 : 2); }

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
    write_columns_row(w, row, file_row, out);
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
    read_columns_row(w, row, out);
    return;
  }
  const uint8_t* in = w.data + unit_offset(w, row / w.unit) + size_t(row % w.unit) * row_bytes(w.type, w.cols);
  if (is_fast_block(w.type)) {
    read_rows_block_row(w.type, w.cols, in, out);
  } else {
    dequantize(w.type, in, out, w.cols);
  }
}

Matrix pack(const Matrix& w, IndexList keep, AlignedBuffer& memory, PackedTables& tables) {
  size_t total = 0;
  visit_ranges(w, keep, [&](size_t, size_t bytes) { total += bytes; });
  if (memory.size() < round_up(total, kLine)) memory = AlignedBuffer(round_up(total, kLine));
  const int block = column_block(w.type);
  const bool headers = w.layout == Layout::Columns && header_bytes(w) != 0;
  tables.offset.assign(size_t(w.layout == Layout::Rows ? w.rows / w.unit : w.cols), 0);
  tables.header_offset.assign(headers ? size_t(w.cols / block) : 0, 0);
  uint8_t* out = memory.data();
  int i = 0, last = -1;  // the next index to copy, the block whose header is copied
  size_t end = 0;
  visit_ranges(w, keep, [&](size_t first, size_t bytes) {
    if (headers && keep[i] / block != last) {
      last = keep[i] / block;
      tables.header_offset[size_t(last)] = end;
    } else {
      tables.offset[size_t(keep[i++])] = end;
    }
    std::memcpy(out + end, w.data + first, bytes);
    end += bytes;
  });
  Matrix packed = w;
  packed.data = out;
  packed.offset = tables.offset.data();
  packed.header_offset = headers ? tables.header_offset.data() : nullptr;
  packed.packed_bytes = total;
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
