// The 8-bit float E4M3 (OCP 8-bit floating point, 2023; PyTorch's float8_e4m3fn): no infinity, NaN is 0x7f and 0xff.
#pragma once
#include <cstdint>
#include <limits>

namespace pop {

constexpr float f8_e4m3_to_f32(uint8_t b) {
  const int exponent = (b >> 3) & 15, mantissa = b & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  float value = exponent == 0 ? float(mantissa) * 0x1p-9f : float(8 + mantissa) * 0x1p-10f;
  for (int e = exponent; e > 0; --e) value *= 2;
  return (b & 0x80) != 0 ? -value : value;
}

}  // namespace pop
