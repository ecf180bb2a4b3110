#include "tensor/relayout.h"

#include <algorithm>
#include <cstring>

#include "tensor/column_format.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// Types of one plane with their scales as halves before the codes: a file's block has what the layouts want, in another order.
bool is_simple(DType type) {
  const BlockFormat f = block_format(type);
  return f.low_bits != 0 && f.high_bits == 0 && !has_super_blocks(f.scales);
}

// Where their parts stand in a file's block.
struct BlockShape {
  int bytes, codes, code_bytes, headers;  // whole block, offset of the codes, their bytes, float16 values before them
};

BlockShape block_shape(DType type) {
  const int bytes = traits(type).block_bytes, code_bytes = block_format(type).low_bits * kBlockElems / 8;
  return {bytes, bytes - code_bytes, code_bytes, (bytes - code_bytes) / 2};
}

// One chunk of n blocks: 32-bit words of n blocks side by side. Four-bit blocks of a file hold elements e and e + 16 in a
// byte, which is what the layout wants, so that both widths are a transposition of words.
template <int N>
void write_chunk(const BlockShape& shape, const uint8_t* in, uint8_t* out) {
  for (int lane = 0; lane < N; ++lane)
    for (int word = 0; word < shape.code_bytes / 4; ++word)
      std::memcpy(out + 4 * (word * N + lane), in + lane * shape.bytes + shape.codes + 4 * word, 4);
}

void write_block_row(DType type, int cols, const uint8_t* in, uint8_t* out) {
  const BlockFormat format = block_format(type);
  const BlockShape shape = block_shape(type);
  const int blocks = cols / kBlockElems;
  for (int first = 0; first < blocks; first += kGroupBlocks) {
    const GroupPlace group = group_place(format, first, blocks);
    const uint8_t* from = in + size_t(first) * size_t(shape.bytes);
    uint8_t* header = out + group.scales;
    for (int h = 0; h < shape.headers; ++h)
      for (int b = 0; b < group.n; ++b, header += 2)
        std::memcpy(header, from + size_t(b) * size_t(shape.bytes) + 2 * h, 2);
    uint8_t* to = out + group.low;
    for (int b = first, n = 0; b < first + group.n; b += n) {
      n = chunk_at(b, blocks);
      if (n == 8)
        write_chunk<8>(shape, from, to);
      else if (n == 4)
        write_chunk<4>(shape, from, to);
      else if (n == 2)
        write_chunk<2>(shape, from, to);
      else
        write_chunk<1>(shape, from, to);
      from += size_t(n) * size_t(shape.bytes);
      to += size_t(n) * size_t(shape.code_bytes);
    }
  }
}

// Vector operations of the compiler, which every target has: no instruction set is named here.
using Bytes16 = uint8_t __attribute__((vector_size(16)));

Bytes16 load(const uint8_t* p) {
  Bytes16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
void store(uint8_t* p, Bytes16 v) { std::memcpy(p, &v, sizeof v); }
Bytes16 interleave_low(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
Bytes16 interleave_high(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Byte j of the i-th vector becomes byte i of the j-th: four rounds of interleaving the first half with the second.
void transpose(Bytes16 (&m)[16]) {
  Bytes16 t[16];
  for (int round = 0; round < 2; ++round) {
    for (int j = 0; j < 8; ++j) {
      t[2 * j] = interleave_low(m[j], m[j + 8]);
      t[2 * j + 1] = interleave_high(m[j], m[j + 8]);
    }
    for (int j = 0; j < 8; ++j) {
      m[2 * j] = interleave_low(t[j], t[j + 8]);
      m[2 * j + 1] = interleave_high(t[j], t[j + 8]);
    }
  }
}

constexpr uint8_t kNoBlock[64] = {};  // of the rows that fill up the last tile

// Blocks `block` of the 64 rows of a tile, from the file.
class TileBlocks {
 public:
  TileBlocks(std::span<const uint8_t* const> rows, const BlockShape& shape, int block) {
    for (int r = 0; r < kRowTile; ++r)
      at_[r] = size_t(r) < rows.size() ? rows[size_t(r)] + size_t(block) * size_t(shape.bytes) : kNoBlock;
  }
  const uint8_t* operator[](int row) const { return at_[row]; }
  // Bytes [offset, offset + 16) of 16 rows, transposed.
  void transposed(int first, int offset, Bytes16 (&m)[16]) const {
    for (int i = 0; i < 16; ++i) m[i] = load(at_[first + i] + offset);
    transpose(m);
  }

 private:
  const uint8_t* at_[kRowTile];
};

void write_tile_bytes(const TileBlocks& in, const BlockShape& shape, size_t column, uint8_t* out) {
  Bytes16 m[16];
  for (int half = 0; half < 2; ++half)
    for (int first = 0; first < kRowTile; first += 16) {
      in.transposed(first, shape.codes + 16 * half, m);
      for (int k = 0; k < 16; ++k) store(out + size_t(16 * half + k) * column + first, m[k]);
    }
}

// Byte k of a block holds columns k and k + 16; 16-bit word i of a column holds rows i, i + 16, i + 32, i + 48.
void write_tile_nibbles(const TileBlocks& in, const BlockShape& shape, size_t column, uint8_t* out) {
  Bytes16 m[4][16];
  for (int g = 0; g < 4; ++g) in.transposed(16 * g, shape.codes, m[g]);
  for (int k = 0; k < 16; ++k) {
    const Bytes16 low_a = (m[0][k] & 15) | m[1][k] << 4, low_b = (m[2][k] & 15) | m[3][k] << 4;
    const Bytes16 high_a = m[0][k] >> 4 | (m[1][k] & 0xf0), high_b = m[2][k] >> 4 | (m[3][k] & 0xf0);
    uint8_t *const low = out + size_t(k) * column, *const high = low + 16 * column;
    store(low, interleave_low(low_a, low_b));
    store(low + 16, interleave_high(low_a, low_b));
    store(high, interleave_low(high_a, high_b));
    store(high + 16, interleave_high(high_a, high_b));
  }
}

// Up to 64 rows from `first` (a multiple of 64) on.
void write_block_tile(const Matrix& w, int first, std::span<const uint8_t* const> rows, uint8_t* out) {
  const BlockShape shape = block_shape(w.type);
  const size_t column = column_bytes(w), whole = header_bytes(w) + kBlockElems * column;
  const size_t header = header_bytes(w) / size_t(shape.headers);  // one float16 of every row
  const bool nibbles = shape.code_bytes < kBlockElems;
  for (int b = 0; b < w.cols / kBlockElems; ++b) {
    const TileBlocks in(rows, shape, b);
    uint8_t* const base = out + size_t(b) * whole;
    for (int h = 0; h < shape.headers; ++h)
      for (int r = 0; r < kRowTile; ++r)
        std::memcpy(base + size_t(h) * header + 2 * size_t(first + r), in[r] + 2 * h, 2);
    uint8_t* const codes = base + header_bytes(w);
    if (nibbles)
      write_tile_nibbles(in, shape, column, codes + first / 2);
    else
      write_tile_bytes(in, shape, column, codes + first);
  }
}

// Up to 64 rows of whole numbers of `Size` bytes, a cache line of each row at a time.
template <int Size>
void write_plain_tile(const Matrix& w, int first, std::span<const uint8_t* const> rows, uint8_t* out) {
  const size_t column = column_bytes(w);
  constexpr int kStep = 64 / Size;
  for (int c0 = 0; c0 < w.cols; c0 += kStep)
    for (int c = c0; c < std::min(w.cols, c0 + kStep); ++c) {
      uint8_t* to = out + size_t(c) * column + size_t(first) * Size;
      for (const uint8_t* row : rows) {
        std::memcpy(to, row + size_t(c) * Size, Size);
        to += Size;
      }
    }
}

using WriteTile = void (*)(const Matrix& w, int first, std::span<const uint8_t* const> rows, uint8_t* out);

WriteTile tile_writer(DType type) {
  if (is_simple(type) && has_columns_layout(type)) return write_block_tile;
  if (type == DType::F32) return write_plain_tile<4>;
  return type == DType::F16 || type == DType::BF16 ? write_plain_tile<2> : nullptr;
}

}  // namespace

void write_rows(const Matrix& w, int first, std::span<const uint8_t* const> file_rows, uint8_t* out) {
  const int count = int(file_rows.size());
  const WriteTile tile = w.layout == Layout::Columns && first % kRowTile == 0 ? tile_writer(w.type) : nullptr;
  if (tile != nullptr) {
    for (int r = 0; r < count; r += kRowTile)
      tile(w, first + r, file_rows.subspan(size_t(r), size_t(std::min(kRowTile, count - r))), out);
  } else if (w.layout == Layout::Rows && is_simple(w.type)) {
    const size_t bytes = row_bytes(w.type, w.cols);
    for (int r = 0; r < count; ++r)
      write_block_row(w.type, w.cols, file_rows[size_t(r)], out + size_t(first + r) * bytes);
  } else {
    for (int r = 0; r < count; ++r) write_row(w, first + r, file_rows[size_t(r)], out);
  }
}

}  // namespace pop
