// Integer products of the blocks of a row in Rows with prepared x: P = 1 or 2 planes of codes (acts.h), chunks of N blocks.
#pragma once
#include "kernels/acts.h"
#include "kernels/neon/simd.h"

namespace pop::POP_ISA {
namespace {

// Sums of four neighbouring products each.
#ifdef __ARM_FEATURE_DOTPROD
struct Quads {
  int32x4_t sum = vdupq_n_s32(0);
  POP_INLINE void add(Quads& q, int8x16_t w, int8x16_t x) { q.sum = vdotq_s32(q.sum, w, x); }
  POP_INLINE int32x4_t total(const Quads& q) { return q.sum; }
};
#else
struct Quads {  // |w x| <= 128 * 127, so a product fits 16 bits; pairs are added in 32
  int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
  POP_INLINE void add(Quads& q, int8x16_t w, int8x16_t x) {
    q.low = vpadalq_s16(q.low, vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    q.high = vpadalq_s16(q.high, vmull_high_s8(w, x));
  }
  POP_INLINE int32x4_t total(const Quads& q) { return vpaddq_s32(q.low, q.high); }
};
#endif

template <int P>
struct Products {
  Quads low, high;
  POP_INLINE void add(Products& s, int8x16_t w, const int8_t* x_low, const int8_t* x_high) {
    Quads::add(s.low, w, vld1q_s8(x_low));
    if constexpr (P == 2) Quads::add(s.high, w, vld1q_s8(x_high));
  }
  POP_INLINE int32x4_t total(const Products& s) {
    const int32x4_t low = Quads::total(s.low);
    if constexpr (P == 1) return low;
    const int32x4_t high = Quads::total(s.high);
    return vaddq_s32(low, vsubq_s32(vshlq_n_s32(high, 8), high));  // kHighStep = 255
  }
};

struct VI {
  int32x4_t a, b;
};

// The integer sums of N blocks, one per lane; lanes from N on are zero. A register holds four groups of four elements: with
// eight blocks the groups of half of them, with fewer those of each block once, twice or four times.
template <DType T, int P, int N>
POP_INLINE VI chunk_sum(const uint8_t* codes, const int8_t* low, const int8_t* high) {
  constexpr int kRegisters = N == 8 ? 2 : 1, kBytes = N * kCodeBytes<T>, kStep = 16 * kRegisters;
  constexpr int kHalf = N * 16;  // 4-bit: low nibbles are the first half of the elements
  Products<P> s[kRegisters];
#pragma GCC unroll 8
  for (int i = 0; i < kBytes; i += kStep)
    for (int k = 0; k < kRegisters; ++k) {
      const int place = i + 16 * k;
      const uint8x16_t v = vld1q_u8(codes + place);
      if constexpr (kFourBit<T>) {
        const int8x16_t l = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))),
                        h = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
        Products<P>::add(s[k], l, low + place, high + place);
        Products<P>::add(s[k], h, low + kHalf + place, high + kHalf + place);
      } else {
        Products<P>::add(s[k], vreinterpretq_s8_u8(v), low + place, high + place);
      }
    }
  const int32x4_t nothing = vdupq_n_s32(0), t = Products<P>::total(s[0]);
  if constexpr (N == 8) return {t, Products<P>::total(s[1])};
  if constexpr (N == 4) return {t, nothing};
  if constexpr (N == 2) return {vcombine_s32(vadd_s32(vget_low_s32(t), vget_high_s32(t)), vdup_n_s32(0)), nothing};
  return {vsetq_lane_s32(vaddvq_s32(t), nothing, 0), nothing};
}

template <int N>
POP_INLINE VF first_floats(const float* p) {
  const float32x4_t nothing = vdupq_n_f32(0);
  if constexpr (N == 8) return load(p);
  if constexpr (N == 4) return {vld1q_f32(p), nothing};
  if constexpr (N == 2) return {vcombine_f32(vld1_f32(p), vdup_n_f32(0)), nothing};
  return {vsetq_lane_f32(*p, nothing, 0), nothing};
}
template <int N>
POP_INLINE VI first_ints(const int32_t* p) {
  const VF v = first_floats<N>(reinterpret_cast<const float*>(p));
  return {vreinterpretq_s32_f32(v.a), vreinterpretq_s32_f32(v.b)};
}
template <int N>
POP_INLINE VF first_halves(const uint8_t* p) {
  if constexpr (N == 8) return widen_half(load_halves(p));
  return widen_half(load_halves_first(p, N));
}

}  // namespace
}  // namespace pop::POP_ISA
