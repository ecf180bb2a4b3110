// Preparing x: blocks of 32 to 8-bit codes, the same bytes as the scalar table's.
#include "kernels/acts.h"
#include "kernels/neon/isa.h"
#include "kernels/neon/simd.h"

namespace pop::POP_ISA {
namespace {

struct Block {
  alignas(16) int8_t low[32];
  alignas(16) int8_t high[32];
  int32_t half_sum[2];
  float scale;
};

POP_INLINE uint32x4_t size_bits(float32x4_t v) { return vreinterpretq_u32_f32(vabsq_f32(v)); }

// 8 codes of 32 bits as bytes.
POP_INLINE void store_bytes(VF v, int8_t* out) {
  vst1_s8(out, vmovn_s16(vcombine_s16(vmovn_s32(vcvtq_s32_f32(v.a)), vmovn_s32(vcvtq_s32_f32(v.b)))));
}

template <bool TwoPlanes>
POP_INLINE void pack_block(const float* x, Block& out) {
  VF v[4];
  uint32x4_t top = vdupq_n_u32(0);  // by bits: an infinity is above every number, a NaN above both
  for (int i = 0; i < 4; ++i) {
    v[i] = load(x + i * kLanes);
    top = vmaxq_u32(top, vmaxq_u32(size_bits(v[i].a), size_bits(v[i].b)));
  }
  const uint32_t bits = vmaxvq_u32(top);
  float size;
  __builtin_memcpy(&size, &bits, 4);
  const float steps = TwoPlanes ? kMaxCode16 : kMaxCode8;
  const bool finite = bits < 0x7f800000u, live = finite && size >= kTinyBlock;
  out.scale = live ? size / steps : finite ? 0.f : __builtin_nanf("");
  const VF inverse = set1(live ? steps / size : 0.f);
  int32x4_t total[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int i = 0; i < 4; ++i) {
    // Of a dead block x may be infinite: zeros by selection, not by multiplication.
    const VF q = live ? round(mul(v[i], inverse)) : zero();
    const VF h = TwoPlanes ? round(mul(q, set1(1.f / kHighStep))) : zero();
    total[i / 2] = vaddq_s32(total[i / 2], vaddq_s32(vcvtq_s32_f32(q.a), vcvtq_s32_f32(q.b)));
    store_bytes(sub(q, mul(h, set1(float(kHighStep)))), out.low + i * kLanes);
    if constexpr (TwoPlanes) store_bytes(h, out.high + i * kLanes);
  }
  for (int i = 0; i < 2; ++i) out.half_sum[i] = vaddvq_s32(total[i]);
}

POP_INLINE void place_words(const int8_t* from, int8_t* to, size_t step) {
  for (int s = 0; s < 8; ++s) __builtin_memcpy(to + size_t(s) * step, from + 4 * s, 4);
}

template <bool TwoPlanes>
void pack_integer(Layout layout, const float* x, int cols, uint8_t* out) {
  const int blocks = cols / 32;
  const size_t codes = pad_line(size_t(cols)), values = pad_line(size_t(blocks) * 4);
  int8_t* low = reinterpret_cast<int8_t*>(out);
  int8_t* high = low + codes;
  uint8_t* tail = out + (TwoPlanes ? 2 : 1) * codes;
  float* scale = reinterpret_cast<float*>(tail);
  int32_t* sum = reinterpret_cast<int32_t*>(tail + values);
  float* scaled_sum = reinterpret_cast<float*>(tail + 2 * values);
  int32_t* half_sum = reinterpret_cast<int32_t*>(tail + 3 * values);
  Block block;
  for (int first = 0; first < blocks;) {
    const int left = blocks - first, n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    for (int lane = 0; lane < n; ++lane) {
      const int b = first + lane;
      pack_block<TwoPlanes>(x + b * 32, block);
      const bool rows = layout == Layout::Rows;
      const size_t at = rows ? size_t(first) * 32 + 4 * size_t(lane) : size_t(b) * 32, step = rows ? 4 * size_t(n) : 4;
      place_words(block.low, low + at, step);
      if constexpr (TwoPlanes) place_words(block.high, high + at, step);
      scale[b] = block.scale;
      sum[b] = block.half_sum[0] + block.half_sum[1];
      scaled_sum[b] = block.scale * float(sum[b]);
      half_sum[b] = block.half_sum[0];
    }
    first += n;
  }
  for (size_t i = size_t(cols); i < codes; ++i) {
    low[i] = 0;
    if constexpr (TwoPlanes) high[i] = 0;
  }
  for (size_t i = size_t(blocks); i < values / 4; ++i) scale[i] = scaled_sum[i] = 0, sum[i] = half_sum[i] = 0;
}

}  // namespace

void pack_acts(ActType type, Layout layout, const float* x, int cols, uint8_t* out) {
  if (type == ActType::I8) return pack_integer<false>(layout, x, cols, out);
  if (type == ActType::I16) return pack_integer<true>(layout, x, cols, out);
  __builtin_memcpy(out, x, size_t(cols) * 4);
  for (size_t i = size_t(cols) * 4; i < pad_line(size_t(cols) * 4); ++i) out[i] = 0;
}

}  // namespace pop::POP_ISA
