#include "apps/bench/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace pop::app {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

void fill_bits(uint64_t seed, std::span<uint8_t> out) {
  size_t at = 0;
  for (uint64_t state = mix(seed); at < out.size(); state += kGolden, at += 8) {
    const uint64_t word = mix(state);
    std::memcpy(out.data() + at, &word, std::min<size_t>(8, out.size() - at));
  }
}

// Of a float type: the sign and the lower bits of the mantissa stay random, the exponent and the mantissa's upper three bits
// are set, so that magnitudes lie within 6 % of the deviation. The pattern of one element is repeated over a word.
void float_row(DType type, double deviation, std::span<uint8_t> row) {
  int exponent = 0;
  const double mantissa = std::frexp(deviation, &exponent) * 2;  // deviation = mantissa * 2^(exponent - 1), in [1, 2)
  const auto upper = uint64_t(std::clamp((mantissa - 1) * 8 - 0.5, 0.0, 7.0));
  const auto set = [&](int mantissa_bits, int bias, int max_exponent, uint64_t repeat) {
    const uint64_t kept = (uint64_t{1} << (mantissa_bits - 3)) - 1;
    const uint64_t sign = uint64_t{1} << (type == DType::F32 ? 31 : 15);
    const auto e = uint64_t(std::clamp(bias + exponent - 1, 1, max_exponent));
    const uint64_t keep = (kept | sign) * repeat,
                   pattern = (e << mantissa_bits | upper << (mantissa_bits - 3)) * repeat;
    for (size_t at = 0; at < row.size(); at += 8) {
      uint64_t word = 0;
      const size_t n = std::min<size_t>(8, row.size() - at);
      std::memcpy(&word, row.data() + at, n);
      word = (word & keep) | pattern;
      std::memcpy(row.data() + at, &word, n);
    }
  };
  constexpr uint64_t kTwice = 0x0000000100000001ull, kFourTimes = 0x0001000100010001ull;
  if (type == DType::F32) return set(23, 127, 254, kTwice);
  if (type == DType::BF16) return set(7, 127, 254, kFourTimes);
  set(10, 15, 30, kFourTimes);
}

// Where the float16 scale of a block stands, the standard deviation of a weight whose scale is 1 while every quant's bits
// are random, and what the minimum's factor is to that scale so that weights lie around 0.
struct BlockScale {
  int at;
  double deviation;
  int min_at;  // -1: none
  double min_factor;
};

BlockScale block_scale(DType type) {
  switch (type) {
    case DType::Q4_0: return {0, 4.61, -1, 0};    // uniform in -8..7
    case DType::Q4_1: return {0, 4.61, 2, -7.5};  // uniform in 0..15, plus the minimum
    case DType::Q5_0: return {0, 9.23, -1, 0};
    case DType::Q5_1: return {0, 9.23, 2, -15.5};
    case DType::Q8_0: return {0, 73.9, -1, 0};
    // d * scale * quant - dmin * min; scale and min uniform in 0..63
    case DType::Q4_K: return {0, 253, 2, 7.5};
    case DType::Q5_K: return {0, 508, 2, 15.5};
    case DType::Q6_K: return {208, 1365, -1, 0};  // d * (-128..127) * (-32..31)
    case DType::IQ4_NL: return {0, 69.5, -1, 0};  // a table of 16 values
    default: return {-1, 0, -1, 0};
  }
}

void put_half(uint8_t* at, double value) {
  const uint16_t bits = f32_to_f16(float(value));
  std::memcpy(at, &bits, 2);
}

}  // namespace

uint64_t mix(uint64_t z) {
  z += kGolden;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

bool has_random_blocks(DType type) { return traits(type).block_elems == 1 || block_scale(type).at >= 0; }

void random_row(DType type, int cols, double deviation, uint64_t seed, std::span<uint8_t> row) {
  if (!has_random_blocks(type)) fail("random weights: no rule for type {}", traits(type).name);
  if (row.size() != row_bytes(type, cols)) fail("random weights: expected {} bytes", row_bytes(type, cols));
  fill_bits(seed, row);
  if (traits(type).block_elems == 1) return float_row(type, deviation, row);
  const BlockScale scale = block_scale(type);
  const double d = deviation / scale.deviation;
  uint16_t d_bits = 0, min_bits = 0;
  put_half(reinterpret_cast<uint8_t*>(&d_bits), d);
  put_half(reinterpret_cast<uint8_t*>(&min_bits), d * scale.min_factor);
  for (size_t at = 0; at < row.size(); at += size_t(traits(type).block_bytes)) {
    std::memcpy(row.data() + at + scale.at, &d_bits, 2);
    if (scale.min_at >= 0) std::memcpy(row.data() + at + scale.min_at, &min_bits, 2);
  }
}

}  // namespace pop::app
