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

// What e^x is made of, x within [-87, 88]: two * (1 + rest * tail), two a power of 2, |rest| <= 0.35.
struct PowerOfE {
  VF two, rest, tail;
};
POP_INLINE PowerOfE power_of_e(VF x) {
  x = max(set1(-87.f), min(set1(88.f), x));
  const VF n = round(mul(x, set1(1.44269504f)));
  VF r = fma(n, set1(-0.693359375f), x);  // ln 2 in two parts, the first exact in few bits
  r = fma(n, set1(2.12194440e-4f), r);
  VF p = set1(1.f / 5040);  // Taylor: the first term left out is below 6e-9
  for (const float c : {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1.f}) p = fma(p, r, set1(c));
  return {{power_of_two(n.a), power_of_two(n.b)}, r, p};
}

// e^x, relative error below 2e-7 for x in [-87, 88]; beyond, the value at that border. NaN stays NaN.
POP_INLINE VF exp(VF x) {
  const PowerOfE e = power_of_e(x);
  return mul(fma(e.tail, e.rest, set1(1.f)), e.two);
}

// tanh x = (e^2x - 1) / (e^2x - 1 + 2), the difference made without cancellation; relative error below 5e-7. NaN stays NaN.
POP_INLINE VF tanh(VF x) {
  const PowerOfE e = power_of_e(add(x, x));
  const VF less_one = fma(mul(e.tail, e.rest), e.two, sub(e.two, set1(1.f)));
  return div(less_one, add(less_one, set1(2.f)));
}

POP_INLINE VF soft_capped(VF x, VF cap) { return mul(cap, tanh(div(x, cap))); }

// act(gate) * up: with the gate itself as power act is silu, with 2 sqrt(2 / pi) (gate + 0.044715 gate^3) it is the form of gelu
// with tanh, for (1 + tanh u) / 2 = 1 / (1 + e^-2u).
struct Silu {
  POP_INLINE VF power(VF gate) { return gate; }
};
struct Gelu {
  POP_INLINE VF power(VF gate) { return mul(gate, fma(mul(gate, gate), set1(0.0713548163f), set1(1.5957691216f))); }
};
template <class Act>
POP_INLINE VF gate_times(VF gate, VF up) {
  return mul(div(gate, add(set1(1.f), exp(sub(zero(), Act::power(gate))))), up);
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
