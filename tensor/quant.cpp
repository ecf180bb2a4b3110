// float32 to the simple block formats, rounded exactly as the `gguf` Python package rounds; K types: quant_k.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "tensor/dtype.h"
#include "tensor/quant_k.h"

namespace pop {
namespace {

// Truncates to 0..most. Never converts a float that does not fit.
uint8_t to_code(float v, float most) { return static_cast<uint8_t>(std::clamp(v, 0.0f, most)); }

// The element of largest magnitude, the first of them: it becomes the lowest code, so that the full range is used
// whatever its sign.
float extreme_of(const float* in) {
  return *std::max_element(in, in + 32, [](float x, float y) { return std::fabs(x) < std::fabs(y); });
}

void store_nibbles(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>((q[i] & 15) | q[i + 16] << 4);
}

void store_fifth_bits(const uint8_t* q, uint8_t* out) {
  std::fill_n(out, 4, uint8_t(0));
  for (int i = 0; i < 32; ++i) out[i / 8] = static_cast<uint8_t>(out[i / 8] | q[i] >> 4 << (i % 8));
}

void quantize_q8_0(const float* in, uint8_t* b) {
  float amax = 0.0f;
  for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(in[i]));
  const float d = amax / 127.0f, inv = inverse(d);
  store_u16(b, f32_to_f16(d));
  for (int i = 0; i < 32; ++i) {
    const float rounded = std::clamp(std::round(in[i] * inv), -127.0f, 127.0f);  // halves away from zero
    b[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(rounded));
  }
}

// Codes of values = d * (code - offset), and d.
void codes_of_scale(const float* in, float offset, uint8_t* d_bytes, uint8_t* q) {
  const float d = extreme_of(in) / -offset, inv = inverse(d);
  store_u16(d_bytes, f32_to_f16(d));
  for (int i = 0; i < 32; ++i) q[i] = to_code(in[i] * inv + (offset + 0.5f), 2 * offset - 1);
}

// Codes of values = d * code + min, d and min.
void codes_of_range(const float* in, float most, uint8_t* d_and_min, uint8_t* q) {
  const auto [lowest, highest] = std::minmax_element(in, in + 32);
  const float min = *lowest, d = (*highest - min) / most, inv = inverse(d);
  store_u16(d_and_min, f32_to_f16(d));
  store_u16(d_and_min + 2, f32_to_f16(min));
  for (int i = 0; i < 32; ++i) q[i] = to_code((in[i] - min) * inv + 0.5f, most);
}

void quantize_q4_0(const float* in, uint8_t* b) {
  uint8_t q[32];
  codes_of_scale(in, 8, b, q);
  store_nibbles(q, b + 2);
}

void quantize_q4_1(const float* in, uint8_t* b) {
  uint8_t q[32];
  codes_of_range(in, 15, b, q);
  store_nibbles(q, b + 4);
}

void quantize_q5_0(const float* in, uint8_t* b) {
  uint8_t q[32];
  codes_of_scale(in, 16, b, q);
  store_fifth_bits(q, b + 2);
  store_nibbles(q, b + 6);
}

void quantize_q5_1(const float* in, uint8_t* b) {
  uint8_t q[32];
  codes_of_range(in, 31, b, q);
  store_fifth_bits(q, b + 4);
  store_nibbles(q, b + 8);
}

}  // namespace

bool has_quantizer(DType type) {
  switch (type) {
    case DType::Q2_K:
    case DType::Q3_K:
    case DType::Q5_K:
    case DType::IQ4_NL:
    case DType::IQ4_XS: return false;
    default: return true;
  }
}

void quantize(DType type, const float* in, uint8_t* blocks, int64_t elems) {
  const DTypeTraits& t = traits(type);
  const int64_t count = static_cast<int64_t>(row_bytes(type, elems)) / t.block_bytes;
  for (int64_t i = 0; i < count; ++i) {
    const float* x = in + i * t.block_elems;
    uint8_t* b = blocks + i * t.block_bytes;
    switch (type) {
      case DType::F32: std::memcpy(b, x, sizeof(float)); break;
      case DType::F16: store_u16(b, f32_to_f16(*x)); break;
      case DType::BF16: store_u16(b, f32_to_bf16(*x)); break;
      case DType::Q8_0: quantize_q8_0(x, b); break;
      case DType::Q4_0: quantize_q4_0(x, b); break;
      case DType::Q4_1: quantize_q4_1(x, b); break;
      case DType::Q5_0: quantize_q5_0(x, b); break;
      case DType::Q5_1: quantize_q5_1(x, b); break;
      case DType::Q4_K: quantize_q4_k(x, b); break;
      case DType::Q6_K: quantize_q6_k(x, b); break;
      default: fail("{}: expected a type that can be written, found one that can only be read", t.name);
    }
  }
}

}  // namespace pop
