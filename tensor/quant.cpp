// Reference quantisers: float32 to the simple block formats, rounded exactly as the `gguf` Python package rounds.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "tensor/dtype.h"

namespace pop {
namespace {

void store_u16(uint8_t* p, uint16_t v) {
  p[0] = static_cast<uint8_t>(v);
  p[1] = static_cast<uint8_t>(v >> 8);
}

// d = 0, or so small that 1 / d overflows, would make 0 * inf: such a block is all zeros in any format.
float inverse(float d) {
  const float inv = d == 0.0f ? 0.0f : 1.0f / d;
  return std::isfinite(inv) ? inv : 0.0f;
}

// Truncates to 0..15. Never converts a float that does not fit.
uint8_t to_nibble(float v) { return static_cast<uint8_t>(std::clamp(v, 0.0f, 15.0f)); }

void store_nibbles(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>(q[i] | q[i + 16] << 4);
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

void quantize_q4_0(const float* in, uint8_t* b) {
  // The element of largest magnitude (the first of them) becomes code 0, that is -8: the full range, whatever its sign.
  const float extreme = *std::max_element(in, in + 32, [](float x, float y) { return std::fabs(x) < std::fabs(y); });
  const float d = extreme / -8.0f, inv = inverse(d);
  store_u16(b, f32_to_f16(d));
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = to_nibble(in[i] * inv + 8.5f);
  store_nibbles(q, b + 2);
}

void quantize_q4_1(const float* in, uint8_t* b) {
  const auto [lowest, highest] = std::minmax_element(in, in + 32);
  const float min = *lowest, d = (*highest - min) / 15.0f, inv = inverse(d);
  store_u16(b, f32_to_f16(d));
  store_u16(b + 2, f32_to_f16(min));
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = to_nibble((in[i] - min) * inv + 0.5f);
  store_nibbles(q, b + 4);
}

}  // namespace

void quantize_reference(DType type, const float* in, uint8_t* blocks, int64_t elems) {
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
      default: fail("{}: no reference quantiser for this type; expected F32, F16, BF16, Q8_0, Q4_0 or Q4_1", t.name);
    }
  }
}

}  // namespace pop
