#include "tensor/block.h"

#include <cstring>

#include "base/float16.h"

namespace pop {
namespace {

uint16_t load_u16(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }

// Codes of a file's block of 32 elements: 16 bytes of nibbles, the low ones first.
void read_nibbles(const uint8_t* p, Block& b) {
  for (int i = 0; i < 16; ++i) {
    b.code[i] = p[i] & 15;
    b.code[i + 16] = p[i] >> 4;
  }
}

Block read_block32(const BlockFormat& f, const uint8_t* p) {
  Block b;
  b.d = load_u16(p);
  p += 2;
  if (f.scales == ScaleForm::HalfMin) {
    b.m = load_u16(p);
    p += 2;
  }
  if (f.low_bits == 8) {
    std::memcpy(b.code, p, kBlockElems);
    return b;
  }
  const uint8_t* fifth = p;
  if (f.high_bits == 1) p += 4;
  read_nibbles(p, b);
  if (f.high_bits == 1)
    for (int i = 0; i < kBlockElems; ++i) b.code[i] = uint8_t(b.code[i] | (fifth[i / 8] >> (i % 8) & 1) << 4);
  return b;
}

// Block g of a super-block of Q4_K or Q5_K: halves d and dmin, 12 bytes of scales and minima, fifth bits, nibbles.
Block read_six_bit(const BlockFormat& f, const uint8_t* p, int g) {
  Block b;
  b.d = load_u16(p);
  b.m = load_u16(p + 2);
  const uint8_t* s = p + 4;
  if (g < 4) {
    b.scale[0] = s[g] & 63;
    b.min = s[g + 4] & 63;
  } else {
    b.scale[0] = uint8_t((s[g + 4] & 15) | s[g - 4] >> 6 << 4);
    b.min = uint8_t(s[g + 4] >> 4 | s[g] >> 6 << 4);
  }
  b.scale[1] = b.scale[0];
  const uint8_t* fifth = p + 16;
  const uint8_t* nibbles = p + 16 + 32 * f.high_bits + g / 2 * 32;
  for (int i = 0; i < kBlockElems; ++i) {
    b.code[i] = nibbles[i] >> (g % 2 * 4) & 15;
    if (f.high_bits == 1) b.code[i] = uint8_t(b.code[i] | (fifth[i] >> g & 1) << 4);
  }
  return b;
}

// Block g of a super-block of Q6_K: 128 bytes of nibbles, 64 of upper bits, 16 scales, half d.
Block read_byte16(const uint8_t* p, int g) {
  Block b;
  b.d = load_u16(p + 208);
  b.scale[0] = p[192 + 2 * g];
  b.scale[1] = p[193 + 2 * g];
  const uint8_t* nibbles = p + g / 4 * 64 + g % 2 * 32;
  const uint8_t* upper = p + 128 + g / 4 * 32;
  for (int i = 0; i < kBlockElems; ++i)
    b.code[i] = uint8_t((nibbles[i] >> (g % 4 / 2 * 4) & 15) | (upper[i] >> (g % 4 * 2) & 3) << 4);
  return b;
}

}  // namespace

Block read_file_block(DType type, const uint8_t* file_row, int block) {
  const BlockFormat f = block_format(type);
  const size_t bytes = size_t(traits(type).block_bytes);
  if (!has_super_blocks(f.scales)) return read_block32(f, file_row + size_t(block) * bytes);
  const uint8_t* p = file_row + size_t(block / kSuperBlocks) * bytes;
  return f.scales == ScaleForm::SixBit ? read_six_bit(f, p, block % kSuperBlocks)
                                       : read_byte16(p, block % kSuperBlocks);
}

int code_integer(DType type, uint8_t code) {
  const BlockFormat f = block_format(type);
  if (f.is_table) return kIq4Codes[code];
  return f.low_bits == 8 ? int8_t(code) : code - f.zero;
}

void block_integers(DType type, const Block& b, int16_t* out) {
  for (int i = 0; i < kBlockElems; ++i) out[i] = int16_t(code_integer(type, b.code[i]));
}

BlockScales block_scales(DType type, const Block& b) {
  const BlockFormat f = block_format(type);
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  switch (f.scales) {
    case ScaleForm::Half: return {{d, d}, 0.f};
    case ScaleForm::HalfMin: return {{d, d}, m};
    case ScaleForm::SixBit: return {{d * float(b.scale[0]), d * float(b.scale[1])}, -(m * float(b.min))};
    default: return {{d * float(int8_t(b.scale[0])), d * float(int8_t(b.scale[1]))}, 0.f};
  }
}

void block_values(DType type, const Block& b, float* out) {
  const BlockFormat f = block_format(type);
  int16_t integers[kBlockElems];
  block_integers(type, b, integers);
  const BlockScales s = block_scales(type, b);
  for (int i = 0; i < kBlockElems; ++i) {
    const float v = float(integers[i]) * s.scale[i / 16];
    out[i] = has_mins(f.scales) ? v + s.min : v;
  }
}

}  // namespace pop
