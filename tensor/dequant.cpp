// Block formats of GGUF to float32, one element after another: these functions are the specification the kernels are
// compared with. Every product and sum is written (and, contraction being off, computed) in the format's own order.
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "tensor/block_format.h"
#include "tensor/dtype.h"

namespace pop {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are read as little-endian");

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t load_u32(const uint8_t* p) { return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16; }
float load_half(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

// 32 4-bit numbers in 16 bytes: numbers 0..15 in the low halves, 16..31 in the high halves.
int nibble32(const uint8_t* qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

// 256 2-bit numbers in 64 bytes: each 32 bytes hold 128 of them, 32 per bit position.
int crumb256(const uint8_t* qs, int i) { return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

// 256 4-bit numbers in 128 bytes: each `run` bytes hold `run` numbers in their low halves, then `run` in the high ones.
int nibble256(const uint8_t* qs, int run, int i) { return qs[i / (2 * run) * run + i % run] >> (i / run % 2 * 4) & 15; }

// The 6-bit scales and minima of the eight 32-element groups of Q4_K and Q5_K, in 12 bytes: groups 0-3 have their scale in
// the low six bits of bytes 0-3 and their minimum in bytes 4-7; groups 4-7 have four bits of each in bytes 8-11 and the
// upper two in the upper bits of bytes 0-3 (scale) and 4-7 (minimum).
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* p, int group) {
  if (group < 4) return {p[group] & 63, p[group + 4] & 63};
  const int k = group - 4;
  return {(p[k + 8] & 15) | p[k] >> 6 << 4, p[k + 8] >> 4 | p[k + 4] >> 6 << 4};
}

// Half d, 16 bytes of 4-bit numbers offset by 8.
void block_q4_0(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble32(b + 2, i) - 8);
}

// Half d, half minimum, 16 bytes of 4-bit numbers.
void block_q4_1(const uint8_t* b, float* out) {
  const float d = load_half(b), m = load_half(b + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble32(b + 4, i)) + m;
}

// Half d, 32 fifth bits, 16 bytes of the lower four; offset by 16.
void block_q5_0(const uint8_t* b, float* out) {
  const float d = load_half(b);
  const uint32_t high = load_u32(b + 2);
  for (int i = 0; i < 32; ++i) {
    const int q = nibble32(b + 6, i) | static_cast<int>(high >> i & 1) << 4;
    out[i] = d * static_cast<float>(q - 16);
  }
}

// Half d, half minimum, 32 fifth bits, 16 bytes of the lower four.
void block_q5_1(const uint8_t* b, float* out) {
  const float d = load_half(b), m = load_half(b + 2);
  const uint32_t high = load_u32(b + 4);
  for (int i = 0; i < 32; ++i) {
    const int q = nibble32(b + 8, i) | static_cast<int>(high >> i & 1) << 4;
    out[i] = d * static_cast<float>(q) + m;
  }
}

// Half d, 32 signed bytes.
void block_q8_0(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

// 16 bytes (scale, minimum: 4 bits each) for 16 groups of 16, 64 bytes of 2-bit numbers, half d, half dmin.
void block_q2_k(const uint8_t* b, float* out) {
  const float d = load_half(b + 80), dmin = load_half(b + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(b[i / 16] & 15), min = dmin * static_cast<float>(b[i / 16] >> 4);
    out[i] = scale * static_cast<float>(crumb256(b + 16, i)) - min;
  }
}

// 32 bytes of third bits (0 means "minus 4"), 64 bytes of 2-bit numbers, 16 6-bit scales offset by 32 in 12 bytes, half d.
void block_q3_k(const uint8_t* b, float* out) {
  const uint8_t* scales = b + 96;
  const float d = load_half(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = scales[group % 8] >> (group / 8 * 4) & 15, high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const int third_bit = b[i % 32] >> (i / 32) & 1;
    out[i] = scale * static_cast<float>(crumb256(b + 32, i) - (third_bit ? 0 : 4));
  }
}

// Half d, half dmin, 12 bytes of scales and minima, 128 bytes of 4-bit numbers.
void block_q4_k(const uint8_t* b, float* out) {
  const float d = load_half(b), dmin = load_half(b + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin s = scale_min(b + 4, i / 32);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    out[i] = scale * static_cast<float>(nibble256(b + 16, 32, i)) - min;
  }
}

// As Q4_K, with 32 bytes of fifth bits (bit g of byte i belongs to element i of group g) before the 4-bit numbers.
void block_q5_k(const uint8_t* b, float* out) {
  const float d = load_half(b), dmin = load_half(b + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin s = scale_min(b + 4, i / 32);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    const int q = nibble256(b + 48, 32, i) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
    out[i] = scale * static_cast<float>(q) - min;
  }
}

// 128 bytes of the lower four bits, 64 bytes of the upper two, 16 signed byte scales, half d; offset by 32.
void block_q6_k(const uint8_t* b, float* out) {
  const float d = load_half(b + 208);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + i / 16]));
    const int q = nibble256(b, 64, i) | crumb256(b + 128, i) << 4;
    out[i] = scale * static_cast<float>(q - 32);
  }
}

// Half d, 16 bytes of 4-bit codes.
void block_iq4_nl(const uint8_t* b, float* out) {
  const float d = load_half(b);
  for (int i = 0; i < 32; ++i) out[i] = d * float(kIq4Codes[nibble32(b + 2, i)]);
}

// Half d, the upper two bits of eight 6-bit scales, 4 bytes of their lower four, 128 bytes of codes; scales offset by 32.
void block_iq4_xs(const uint8_t* b, float* out) {
  const float d = load_half(b);
  const int high = load_u16(b + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = b[4 + group / 2] >> (group % 2 * 4) & 15;
    const float scale = d * static_cast<float>((low | (high >> (2 * group) & 3) << 4) - 32);
    for (int i = 0; i < 32; ++i) out[32 * group + i] = scale * float(kIq4Codes[nibble32(b + 8 + 16 * group, i)]);
  }
}

using BlockFunction = void (*)(const uint8_t* block, float* out);

BlockFunction block_function(DType type) {
  switch (type) {
    case DType::F32: return [](const uint8_t* b, float* out) { std::memcpy(out, b, sizeof(float)); };
    case DType::F16: return [](const uint8_t* b, float* out) { *out = load_half(b); };
    case DType::BF16: return [](const uint8_t* b, float* out) { *out = bf16_to_f32(load_u16(b)); };
    case DType::Q4_0: return block_q4_0;
    case DType::Q4_1: return block_q4_1;
    case DType::Q5_0: return block_q5_0;
    case DType::Q5_1: return block_q5_1;
    case DType::Q8_0: return block_q8_0;
    case DType::Q2_K: return block_q2_k;
    case DType::Q3_K: return block_q3_k;
    case DType::Q4_K: return block_q4_k;
    case DType::Q5_K: return block_q5_k;
    case DType::Q6_K: return block_q6_k;
    case DType::IQ4_NL: return block_iq4_nl;
    case DType::IQ4_XS: return block_iq4_xs;
  }
  fail("data type number {}: no such type", static_cast<int>(type));
}

}  // namespace

void dequantize(DType type, const uint8_t* blocks, float* out, int64_t elems) {
  const DTypeTraits& t = traits(type);
  const int64_t count = static_cast<int64_t>(row_bytes(type, elems)) / t.block_bytes;
  const BlockFunction block = block_function(type);
  for (int64_t i = 0; i < count; ++i) block(blocks + i * t.block_bytes, out + i * t.block_elems);
}

}  // namespace pop
