// Internal to tensor/: float32 to the super-block formats. There is no published rounding to be equal to: for each block the
// codes, scales and minima are searched that leave the least squared error.
#pragma once
#include <cmath>
#include <cstdint>

namespace pop {

// Shared with the simple formats (quant.cpp).
inline void store_u16(uint8_t* p, uint16_t v) {
  p[0] = static_cast<uint8_t>(v);
  p[1] = static_cast<uint8_t>(v >> 8);
}
// d = 0, or so small that 1 / d overflows, would make 0 * inf: such a block is all zeros in any format.
inline float inverse(float d) {
  const float inv = d == 0.0f ? 0.0f : 1.0f / d;
  return std::isfinite(inv) ? inv : 0.0f;
}

void quantize_q4_k(const float* in, uint8_t* block);  // in: [256], finite; block: 144 bytes
void quantize_q6_k(const float* in, uint8_t* block);  // in: [256], finite; block: 210 bytes

}  // namespace pop
