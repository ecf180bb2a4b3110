// Integer products of the blocks of a row in Rows (tensor/block_format.h) with prepared x: P = 1 or 2 planes of codes
// (acts.h), chunks of N blocks.
#pragma once
#include "kernels/acts.h"
#include "kernels/neon/simd.h"
#include "tensor/block_format.h"

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

// 16 codes of a plane of B bits of a chunk of N blocks, those that meet bytes place .. place + 15 of x: the plane's bytes are
// used again and again, B bits further each time.
template <int B, int N>
POP_INLINE uint8x16_t plane_codes(const uint8_t* plane, int place) {
  constexpr int kBytes = 4 * N * B;
  if constexpr (B == 8) return vld1q_u8(plane + place);
  uint8x16_t v;
  int8_t shift[16];
  for (int i = 0; i < 16; ++i) shift[i] = int8_t(-B * ((place + i) / kBytes));
  if constexpr (kBytes >= 16) {
    v = vld1q_u8(plane + place % kBytes);
  } else if constexpr (kBytes == 8) {
    v = vcombine_u8(vld1_u8(plane), vld1_u8(plane));
  } else {
    uint32_t word;
    __builtin_memcpy(&word, plane, 4);
    v = vreinterpretq_u8_u32(vdupq_n_u32(word));
  }
  return vandq_u8(vshlq_u8(v, vld1q_s8(shift)), vdupq_n_u8((1 << B) - 1));
}

// What the codes multiply, but for format.zero.
template <DType T, int N>
POP_INLINE int8x16_t codes_at(const uint8_t* low, const uint8_t* high, int place) {
  constexpr BlockFormat kFormat = block_format(T);
  uint8x16_t v = plane_codes<kFormat.low_bits, N>(low, place);
  if constexpr (kFormat.high_bits != 0)
    v = vorrq_u8(v, vshlq_n_u8(plane_codes<kFormat.high_bits, N>(high, place), kFormat.low_bits));
  if constexpr (kFormat.is_table) return vqtbl1q_s8(vld1q_s8(kIq4Codes), v);
  return vreinterpretq_s8_u8(v);
}

// The integer sums of N blocks, one per lane, over the elements that meet bytes [begin, end) of x; lanes from N on are zero. A
// register holds four groups of four elements: with eight blocks the groups of half of them, with fewer those of each
// block once, twice or four times.
template <DType T, int P, int N>
POP_INLINE VI chunk_sum(const uint8_t* low, const uint8_t* high, const int8_t* x_low, const int8_t* x_high, int begin,
                        int end) {
  Products<P> s[2];
#pragma GCC unroll 16
  for (int place = begin; place < end; place += 16)
    Products<P>::add(s[N == 8 ? place / 16 % 2 : 0], codes_at<T, N>(low, high, place), x_low + place, x_high + place);
  const int32x4_t nothing = vdupq_n_s32(0), t = Products<P>::total(s[0]);
  if constexpr (N == 8) return {t, Products<P>::total(s[1])};
  if constexpr (N == 4) return {t, nothing};
  if constexpr (N == 2) return {vcombine_s32(vadd_s32(vget_low_s32(t), vget_high_s32(t)), vdup_n_s32(0)), nothing};
  return {vsetq_lane_s32(vaddvq_s32(t), nothing, 0), nothing};
}

POP_INLINE VF to_float(VI v) { return {vcvtq_f32_s32(v.a), vcvtq_f32_s32(v.b)}; }

// Of N values in a row; lanes from N on are zero and not read.
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
POP_INLINE VF set_half(const uint8_t* p) {
  uint16_t h;
  __builtin_memcpy(&h, p, 2);
  const float32x4_t v = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
  return {v, v};
}

struct ChunkScales {
  VF scale[2], min;  // of elements 0-15 and 16-31, if they differ; min with its sign
};

POP_INLINE VF widen_u8(uint8x8_t v) {
  const uint16x8_t w = vmovl_u8(v);
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(w))), vcvtq_f32_u32(vmovl_high_u16(w))};
}
POP_INLINE VF widen_s8(int8x8_t v) {
  const int16x8_t w = vmovl_s8(v);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), vcvtq_f32_s32(vmovl_high_s16(w))};
}

// Upper bits of the eight 6-bit numbers of a word, from bit `first` of each four on, where they belong.
POP_INLINE uint8x8_t upper_bits(uint32_t word, int first) {
  uint8_t bits[8];
  for (int b = 0; b < 8; ++b) bits[b] = uint8_t((word >> (4 * b + first) & 3) << 4);
  return vld1_u8(bits);
}

// Of the chunk of N blocks from `lane` on of a group of n. Super-blocks are whole chunks.
template <DType T, int N>
POP_INLINE ChunkScales chunk_scales(const uint8_t* scales, int n, int lane) {
  constexpr ScaleForm kForm = block_format(T).scales;
  const size_t place = size_t(lane), size = size_t(n), super = place / kSuperBlocks;
  if constexpr (kForm == ScaleForm::SixBit) {
    const uint8_t* words = scales + size;
    const uint8_t* factors = words + size / 2;
    uint32_t word;
    __builtin_memcpy(&word, words + 4 * super, 4);
    const uint8x8_t both = vld1_u8(scales + place);
    const VF s = widen_u8(vorr_u8(vand_u8(both, vdup_n_u8(15)), upper_bits(word, 0)));
    const VF m = widen_u8(vorr_u8(vshr_n_u8(both, 4), upper_bits(word, 2)));
    const VF d = set_half(factors + 2 * super), dmin = set_half(factors + size / 4 + 2 * super);
    return {{mul(d, s), zero()}, sub(zero(), mul(dmin, m))};
  } else if constexpr (kForm == ScaleForm::Byte16) {
    const int8_t* s = reinterpret_cast<const int8_t*>(scales + place);
    const VF d = set_half(scales + 2 * size + 2 * super);
    return {{mul(d, widen_s8(vld1_s8(s))), mul(d, widen_s8(vld1_s8(s + size)))}, zero()};
  } else {
    return {{first_halves<N>(scales + 2 * place), zero()},
            kForm == ScaleForm::HalfMin ? first_halves<N>(scales + 2 * size + 2 * place) : zero()};
  }
}

}  // namespace
}  // namespace pop::POP_ISA
