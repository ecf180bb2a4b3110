// Vectors of 8 floats as two NEON registers, because 8 blocks of weights lie side by side (tensor/layout.h), and the few
// operations the kernels share. Everything has internal linkage: the sources are compiled once without and once with the
// dot-product instructions, and a shared definition could end up in code that runs before the CPU is known.
#pragma once
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

// Inline assembly, because GCC 12 deletes calls of helpers whose only effect is a prefetch intrinsic.
#define POP_PREFETCH(p) asm volatile("prfm pldl1keep, %0" ::"Q"(*reinterpret_cast<const char*>(p)))
#define POP_INLINE [[maybe_unused]] __attribute__((always_inline)) static inline

namespace pop::POP_ISA {
namespace {

constexpr int kLanes = 8;
struct VF {
  float32x4_t a, b;
};

POP_INLINE int at(const IndexList& list, int i) { return list.index != nullptr ? list.index[i] : i; }

POP_INLINE VF set1(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
POP_INLINE VF zero() { return set1(0.f); }
POP_INLINE VF load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
POP_INLINE void store(float* p, VF v) { vst1q_f32(p, v.a), vst1q_f32(p + 4, v.b); }
POP_INLINE VF fma(VF x, VF y, VF z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
POP_INLINE VF add(VF x, VF y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
POP_INLINE VF sub(VF x, VF y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
POP_INLINE VF mul(VF x, VF y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
POP_INLINE VF div(VF x, VF y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
POP_INLINE VF max(VF x, VF y) { return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b)}; }  // NaN if either is NaN
POP_INLINE VF min(VF x, VF y) { return {vminq_f32(x.a, y.a), vminq_f32(x.b, y.b)}; }  // NaN if either is NaN
POP_INLINE VF abs(VF x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
POP_INLINE VF round(VF x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }

// The first n of 8 elements; the rest is zero and not read.
POP_INLINE VF load_first(const float* p, int n) {
  float held[kLanes] = {};
  for (int i = 0; i < n; ++i) held[i] = p[i];
  return load(held);
}
POP_INLINE void store_first(float* p, int n, VF v) {
  float held[kLanes];
  store(held, v);
  for (int i = 0; i < n; ++i) p[i] = held[i];
}

POP_INLINE VF widen_half(uint16x8_t v) {
  const float16x8_t h = vreinterpretq_f16_u16(v);
  return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
POP_INLINE VF widen_bf16(uint16x8_t v) {
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
}
POP_INLINE uint16x8_t load_halves(const uint8_t* p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }
POP_INLINE uint16x8_t load_halves_first(const uint8_t* p, int n) {
  uint16_t held[kLanes] = {};
  __builtin_memcpy(held, p, 2 * size_t(n));
  return vld1q_u16(held);
}

// The sums of the lanes, always in this one order.
POP_INLINE float sum(VF v) { return vaddvq_f32(vaddq_f32(v.a, v.b)); }
POP_INLINE float largest(VF v) { return vmaxvq_f32(vmaxq_f32(v.a, v.b)); }

// 2^n, n whole and in [-126, 127].
POP_INLINE float32x4_t power_of_two(float32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}
POP_INLINE VF power_of_two(VF n) { return {power_of_two(n.a), power_of_two(n.b)}; }

// Pairs (even place, odd place) of 16 floats, and back.
POP_INLINE void load_pairs(const float* p, VF& even, VF& odd) {
  const float32x4x2_t a = vld2q_f32(p), b = vld2q_f32(p + 8);
  even = {a.val[0], b.val[0]};
  odd = {a.val[1], b.val[1]};
}
POP_INLINE void store_pairs(float* p, VF even, VF odd) {
  vst2q_f32(p, {{even.a, odd.a}});
  vst2q_f32(p + 8, {{even.b, odd.b}});
}

template <DType T>
constexpr int kPlainBytes = T == DType::F32 ? 4 : 2;

// Elements of a plain type, widened.
template <DType T>
POP_INLINE VF load_plain(const uint8_t* p) {
  if constexpr (T == DType::F32) return load(reinterpret_cast<const float*>(p));
  if constexpr (T == DType::F16) return widen_half(load_halves(p));
  if constexpr (T == DType::BF16) return widen_bf16(load_halves(p));
}
template <DType T>
POP_INLINE VF load_plain_first(const uint8_t* p, int n) {
  if constexpr (T == DType::F32) return load_first(reinterpret_cast<const float*>(p), n);
  if constexpr (T == DType::F16) return widen_half(load_halves_first(p, n));
  if constexpr (T == DType::BF16) return widen_bf16(load_halves_first(p, n));
}

}  // namespace
}  // namespace pop::POP_ISA
