// One block of 32 weights of a fast block type, taken apart: what the layouts are written from and read back to.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/block_format.h"

namespace pop {

// Fields that a type lacks (block_format.h: ScaleForm) keep their neutral values.
struct Block {
  uint8_t code[kBlockElems] = {};  // as stored, planes joined; Q8_0: the bits of an int8
  uint16_t d = 0, m = 0;           // f16: factor of the scales; the min (HalfMin) or its factor (SixBit)
  uint8_t scale[2] = {1, 1};       // of elements 0-15 and 16-31; Byte16: the bits of an int8
  uint8_t min = 1;
};

// Block `block` of a row as it stands in a file.
Block read_file_block(DType type, const uint8_t* file_row, int block);

// What the codes multiply: small signed integers.
int code_integer(DType type, uint8_t code);
void block_integers(DType type, const Block& block, int16_t* out);

// value = scale * integer + min, in float32 exactly as dequantize() has it.
struct BlockScales {
  float scale[2];  // of elements 0-15 and 16-31
  float min;       // with its sign; 0 for types without mins
};
BlockScales block_scales(DType type, const Block& block);
void block_values(DType type, const Block& block, float* out);

}  // namespace pop
