#include "tensor/convert_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace pop {
namespace {

// Above it values, or scales made of them, are no finite numbers any more.
float largest(DType type) {
  if (type == DType::F32) return 3.4028235e38f;
  return type == DType::BF16 ? 3.3895314e38f : 65504.f;
}

}  // namespace

std::optional<float> convert_rows(DType from, DType to, int64_t cols, int64_t rows, const uint8_t* in, uint8_t* out,
                                  std::vector<float>& scratch) {
  const size_t in_bytes = row_bytes(from, cols), out_bytes = row_bytes(to, cols);
  if (from == to) {
    std::memcpy(out, in, in_bytes * size_t(rows));
    return std::nullopt;
  }
  scratch.resize(size_t(cols));
  const float most = largest(to);
  for (int64_t r = 0; r < rows; ++r) {
    dequantize(from, in + size_t(r) * in_bytes, scratch.data(), cols);
    for (const float v : scratch)
      if (!(std::fabs(v) <= most)) return v;
    quantize(to, scratch.data(), out + size_t(r) * out_bytes, cols);
  }
  return std::nullopt;
}

DType fitting_type(DType wanted, int64_t cols) {
  if (cols % traits(wanted).block_elems == 0) return wanted;
  if (wanted == DType::Q4_K) return fitting_type(DType::Q5_0, cols);
  if (wanted == DType::Q5_K) return fitting_type(DType::Q5_1, cols);
  if (wanted == DType::Q6_K) return fitting_type(DType::Q8_0, cols);
  return DType::F16;
}

bool holds_exactly(DType type, const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [&](float v) {
    const float back = type == DType::F32    ? v
                       : type == DType::F16  ? f16_to_f32(f32_to_f16(v))
                       : type == DType::BF16 ? bf16_to_f32(f32_to_bf16(v))
                                             : std::nanf("");
    return std::bit_cast<uint32_t>(back) == std::bit_cast<uint32_t>(v);
  });
}

}  // namespace pop
