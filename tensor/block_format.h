// What a block of 32 weights of each fast block type consists of, and how a row's blocks lie in Rows: the one description that
// the layout, the scalar kernels and (as template constants) the vector kernels share.
//
// A code is up to two planes of bits: `low_bits` below, `high_bits` above them. Rows keeps the planes apart, "lane = block":
//   A row is a sequence of groups of kGroupBlocks blocks; the last is shorter. A group of n blocks is
//     [low plane][high plane][scales], without padding. A plane of B bits takes 4 B bytes per block.
//   Inside a group blocks stand in chunks of c = 8 and, at the end of a row, 4, 2, 1 (binary digits of what is left), so that
//   a vector of 32-bit lanes holds 4 elements of each block of a chunk and the sums of c blocks need no shuffles:
//     bits of element 4s + j of block b of a chunk: byte (s % B) * 4c + 4b + j of the chunk's 4 B c, shift B * (s / B), s in [0, 8).
//   For B = 8 that is one element per byte; for B = 4 the low nibbles are elements 0-15, the high ones 16-31.
//   Scales of a group of n blocks, each an array over its blocks (or over its n / 8 super-blocks of 256 elements):
//     Half     f16 d [n]                                                          value = d * code
//     HalfMin  f16 d [n], f16 m [n]                                               value = d * code + m
//     SixBit   [n] bytes: low nibble of the 6-bit scale s, of the 6-bit min m << 4;
//              [n / 8] words of 32 bits: bits 4b..4b+1 upper bits of s of block b, 4b+2..4b+3 of m;
//              f16 d [n / 8], f16 dmin [n / 8]                                    value = (d * s) * code - dmin * m
//     Byte16   int8 s of elements 0-15 [n], of elements 16-31 [n], f16 d [n / 8]  value = (d * s) * code
// Nothing is larger or smaller than in the file, so a row has row_bytes() bytes.
// Only names with internal linkage, because instruction-set specific sources include this file.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace pop {
namespace {

enum class ScaleForm : uint8_t { Half, HalfMin, SixBit, Byte16 };

struct BlockFormat {
  int low_bits = 0, high_bits = 0;  // of the planes; low_bits 0: the type is not a fast block type
  int zero = 0;                     // the code that stands for 0: what is multiplied is code - zero
  bool is_table = false;            // codes are places in kIq4Codes
  ScaleForm scales = ScaleForm::Half;
};

constexpr BlockFormat block_format(DType type) {
  switch (type) {
    case DType::Q8_0: return {.low_bits = 8};  // codes are two's complement
    case DType::Q4_0: return {.low_bits = 4, .zero = 8};
    case DType::Q4_1: return {.low_bits = 4, .scales = ScaleForm::HalfMin};
    case DType::Q5_0: return {.low_bits = 4, .high_bits = 1, .zero = 16};
    case DType::Q5_1: return {.low_bits = 4, .high_bits = 1, .scales = ScaleForm::HalfMin};
    case DType::Q4_K: return {.low_bits = 4, .scales = ScaleForm::SixBit};
    case DType::Q5_K: return {.low_bits = 4, .high_bits = 1, .scales = ScaleForm::SixBit};
    case DType::Q6_K: return {.low_bits = 4, .high_bits = 2, .zero = 32, .scales = ScaleForm::Byte16};
    case DType::IQ4_NL: return {.low_bits = 4, .is_table = true};
    default: return {};
  }
}

// The sixteen values of the codes of IQ4_NL and IQ4_XS (part of the formats).
constexpr int8_t kIq4Codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

constexpr int kBlockElems = 32;
constexpr int kGroupBlocks = 32;  // 1024 elements: the planes of a whole group are whole 64-byte lines
constexpr int kSuperBlocks =
    8;  // blocks that share a d in SixBit and Byte16; their number in a row is a multiple of it

constexpr bool has_super_blocks(ScaleForm f) { return f == ScaleForm::SixBit || f == ScaleForm::Byte16; }
constexpr bool has_mins(ScaleForm f) { return f == ScaleForm::HalfMin || f == ScaleForm::SixBit; }

constexpr size_t plane_bytes(int bits, int blocks) { return size_t(4 * bits) * size_t(blocks); }
constexpr size_t scale_bytes(ScaleForm f, int blocks) {
  const size_t n = size_t(blocks);
  switch (f) {
    case ScaleForm::Half: return 2 * n;
    case ScaleForm::HalfMin: return 4 * n;
    case ScaleForm::SixBit: return n + n / 2 + n / 2;
    default: return 2 * n + n / 4;
  }
}
constexpr size_t group_bytes(const BlockFormat& f, int blocks) {
  return plane_bytes(f.low_bits + f.high_bits, blocks) + scale_bytes(f.scales, blocks);
}

// Where the parts of a group of a row stand, in bytes from the row's first.
struct GroupPlace {
  int first = 0, n = 0;  // its blocks
  size_t low = 0, high = 0, scales = 0;
};
constexpr GroupPlace group_place(const BlockFormat& f, int block, int blocks) {
  GroupPlace g;
  g.first = block / kGroupBlocks * kGroupBlocks;
  g.n = blocks - g.first < kGroupBlocks ? blocks - g.first : kGroupBlocks;
  g.low = group_bytes(f, g.first);  // sizes are proportional to the number of blocks
  g.high = g.low + plane_bytes(f.low_bits, g.n);
  g.scales = g.high + plane_bytes(f.high_bits, g.n);
  return g;
}

// The number of blocks in the chunk that begins at `first` of `blocks`.
constexpr int chunk_at(int first, int blocks) {
  const int left = blocks - first;
  return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

}  // namespace
}  // namespace pop
