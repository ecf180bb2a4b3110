// Both searches have two stages. First each group of a super-block alone: from a number of step sizes around the one that just
// covers its values, the codes that each gives, and for these codes the scale (and minimum) that fits best in the sense of
// least squares, in closed form. Then, as scales are small integers times a common half float: the integers beside each
// scale and minimum, with codes rounded again for them, so that the error of rounding scales is made up for where it can be.
#include "tensor/quant_k.h"

#include <algorithm>
#include <cmath>

#include "base/float16.h"

namespace pop {
namespace {

constexpr int kLanes = 8;  // partial sums: loops over them become vector code, in one order on every machine

// The nearest integer, halves to even, for |v| below 2^22; plain additions, so that loops of it become vector code.
float nearest(float v) { return (v + 12582912.f) - 12582912.f; }

template <int N, class Term>
float sum(Term term) {
  float lanes[kLanes] = {};
  for (int i = 0; i < N; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

// Codes 0 to 15 of (x + min) / scale, and the squared error of scale * code - min.
struct Codes {
  float q[32];
};
void round_codes(const float* x, float inv, float min, Codes& c) {
  for (int i = 0; i < 32; ++i) c.q[i] = std::min(std::max(nearest((x[i] + min) * inv), 0.f), 15.f);
}
float error(const float* x, const Codes& c, float scale, float min) {
  return sum<32>([&](int i) {
    const float e = scale * c.q[i] - min - x[i];
    return e * e;
  });
}

struct Line {
  float scale = 0, min = 0;  // value = scale * code - min; min >= 0
};

// Least squares for given codes, min kept from being negative.
Line fit(const float* x, const Codes& c) {
  const float sx = sum<32>([&](int i) { return x[i]; }), sq = sum<32>([&](int i) { return c.q[i]; });
  const float sxq = sum<32>([&](int i) { return x[i] * c.q[i]; }),
              sqq = sum<32>([&](int i) { return c.q[i] * c.q[i]; });
  const float det = 32 * sqq - sq * sq;
  Line line;
  if (det > 0) line = {(32 * sxq - sx * sq) / det, (sq * sxq - sqq * sx) / det};
  if (det <= 0 || line.min < 0) line = {sxq * inverse(sqq), 0};
  return line;
}

Line search_line(const float* x) {
  const auto [low_at, high_at] = std::minmax_element(x, x + 32);
  const float low = std::min(*low_at, 0.f), range = *high_at - low;
  Line best{range / 15, -low};
  Codes c;
  round_codes(x, inverse(best.scale), best.min, c);
  float least = error(x, c, best.scale, best.min);
  constexpr int kSteps = 9;  // of a quarter of a code each, from 14 codes over the range to 16; finer ones gain 0.1%
  for (int step = 0; step < kSteps && range > 0; ++step) {
    round_codes(x, (14 + 0.25f * float(step)) * inverse(range), -low, c);
    Line line = fit(x, c);
    round_codes(x, inverse(line.scale), line.min, c);  // codes of the fit are better than those it came from
    line = fit(x, c);
    const float now = error(x, c, line.scale, line.min);
    if (line.scale > 0 && now < least) least = now, best = line;
  }
  return best;
}

struct Scaled {
  int scale = 0, min = 0;  // of d and dmin
  Codes codes;
};

Scaled round_line(const float* x, const Line& line, float d, float dmin) {
  const int s0 = int(std::clamp(nearest(line.scale * inverse(d)), 0.f, 63.f));
  const int m0 = int(std::clamp(nearest(line.min * inverse(dmin)), 0.f, 63.f));
  Scaled best, now;
  float least = INFINITY;
  for (now.scale = std::max(0, s0 - 1); now.scale <= std::min(63, s0 + 1); ++now.scale)
    for (now.min = std::max(0, m0 - 1); now.min <= std::min(63, m0 + 1); ++now.min) {
      const float scale = d * float(now.scale), min = dmin * float(now.min);
      round_codes(x, inverse(scale), min, now.codes);
      const float e = error(x, now.codes, scale, min);
      if (e < least) least = e, best = now;
    }
  return best;
}

// A scale for codes -32 to 31 of 16 values; what is maximised is the part of the sum of squares that it explains.
float search_scale(const float* x) {
  const float extreme = *std::max_element(x, x + 16, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (extreme == 0) return 0;
  float best = 0, most = -1;
  constexpr int kSteps = 8;  // of 0.3 of a code each; the extreme becomes code -30.6 to -32.7
  for (int step = 0; step < kSteps; ++step) {
    const float inv = -(30.6f + 0.3f * float(step)) * inverse(extreme);
    float q[16];
    for (int i = 0; i < 16; ++i) q[i] = std::min(std::max(nearest(x[i] * inv), -32.f), 31.f);
    const float sxq = sum<16>([&](int i) { return x[i] * q[i]; }), sqq = sum<16>([&](int i) { return q[i] * q[i]; });
    const float explained = sxq * sxq * inverse(sqq);
    if (explained > most) most = explained, best = sxq * inverse(sqq);
  }
  return best;
}

// The factor, -128 to 127 times d, and its codes as stored, 0 to 63.
int round_scale(const float* x, float scale, float d, uint8_t* codes) {
  const int s0 = int(std::clamp(nearest(scale * inverse(d)), -128.f, 127.f));
  int best = s0;
  float least = INFINITY;
  for (int s = std::max(-128, s0 - 1); s <= std::min(127, s0 + 1); ++s) {
    const float step = d * float(s), inv = inverse(step);
    float q[16];
    for (int i = 0; i < 16; ++i) q[i] = std::min(std::max(nearest(x[i] * inv), -32.f), 31.f);
    const float e = sum<16>([&](int i) { return (step * q[i] - x[i]) * (step * q[i] - x[i]); });
    if (!(e < least)) continue;
    least = e;
    best = s;
    for (int i = 0; i < 16; ++i) codes[i] = uint8_t(int(q[i]) + 32);
  }
  return best;
}

}  // namespace

void quantize_q4_k(const float* in, uint8_t* block) {
  Line lines[8];
  float scale = 0, min = 0;
  for (int g = 0; g < 8; ++g) {
    lines[g] = search_line(in + 32 * g);
    scale = std::max(scale, lines[g].scale);
    min = std::max(min, lines[g].min);
  }
  const uint16_t d = f32_to_f16(scale / 63), dmin = f32_to_f16(min / 63);
  std::fill_n(block, 144, uint8_t(0));
  store_u16(block, d);
  store_u16(block + 2, dmin);
  uint8_t* const s = block + 4;  // dequant.cpp, scale_min(): how 16 numbers of 6 bits lie in 12 bytes
  for (int g = 0; g < 8; ++g) {
    const Scaled r = round_line(in + 32 * g, lines[g], f16_to_f32(d), f16_to_f32(dmin));
    if (g < 4) {
      s[g] = uint8_t(s[g] | r.scale);
      s[g + 4] = uint8_t(s[g + 4] | r.min);
    } else {
      s[g + 4] = uint8_t((r.scale & 15) | (r.min & 15) << 4);
      s[g - 4] = uint8_t(s[g - 4] | r.scale >> 4 << 6);
      s[g] = uint8_t(s[g] | r.min >> 4 << 6);
    }
    uint8_t* const nibbles = block + 16 + 32 * (g / 2);
    for (int i = 0; i < 32; ++i) nibbles[i] = uint8_t(nibbles[i] | int(r.codes.q[i]) << (4 * (g % 2)));
  }
}

void quantize_q6_k(const float* in, uint8_t* block) {
  float scales[16];
  for (int g = 0; g < 16; ++g) scales[g] = search_scale(in + 16 * g);
  const float extreme =
      *std::max_element(scales, scales + 16, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const uint16_t d = f32_to_f16(extreme / -128);
  std::fill_n(block, 210, uint8_t(0));
  store_u16(block + 208, d);
  for (int g = 0; g < 16; ++g) {
    uint8_t codes[16] = {};
    block[192 + g] = uint8_t(int8_t(round_scale(in + 16 * g, scales[g], f16_to_f32(d), codes)));
    // dequant.cpp: element i of a half of 128 has its nibble in byte i % 64, its upper bits in byte i % 32.
    for (int i = 0; i < 16; ++i) {
      const int at = 16 * g + i, half = at / 128, in_half = at % 128;
      uint8_t& low = block[64 * half + in_half % 64];
      uint8_t& high = block[128 + 32 * half + in_half % 32];
      low = uint8_t(low | (codes[i] & 15) << (in_half / 64 * 4));
      high = uint8_t(high | codes[i] >> 4 << (in_half / 32 * 2));
    }
  }
}

}  // namespace pop
