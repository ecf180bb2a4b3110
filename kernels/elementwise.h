// What every instruction set computes alike of single values, in terms of its VF: exponentials, gates, caps, rotation. The same
// operations in the same order, written once. Internal linkage, as in simd.h.
#pragma once
#ifdef __x86_64__
#include "kernels/x86/simd.h"
#else
#include "kernels/neon/simd.h"
#endif

namespace pop::POP_ISA {
namespace {

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
  return {power_of_two(n), r, p};
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

// h[i] = act(gate_i) * up_i of pairs (gate, up), for the listed i.
template <class Act>
POP_INLINE void gate_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  alignas(64) float pairs[2 * kLanes], out[kLanes];
  for (int i = begin; i < end; i += kLanes) {
    const int n = end - i < kLanes ? end - i : kLanes, first = at(list, i);
    VF gate, up;
    if (n == kLanes && at(list, i + n - 1) - first == n - 1) {  // ascending, so they lie side by side
      load_pairs(gate_up + 2 * size_t(first), gate, up);
      store(h + first, gate_times<Act>(gate, up));
      continue;
    }
    for (int k = 0; k < kLanes; ++k)
      __builtin_memcpy(pairs + 2 * k, gate_up + 2 * size_t(at(list, i + (k < n ? k : 0))), 8);
    load_pairs(pairs, gate, up);
    store(out, gate_times<Act>(gate, up));
    for (int k = 0; k < n; ++k) h[at(list, i + k)] = out[k];
  }
}

POP_INLINE void cap_all(float* x, int n, float cap) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, soft_capped(load(x + i), set1(cap)));
  if (i < n) store_first(x + i, n - i, soft_capped(load_first(x + i, n - i), set1(cap)));
}

POP_INLINE void add_all(const float* x, int n, float* y) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, add(load(y + i), load(x + i)));
  if (i < n) store_first(y + i, n - i, add(load_first(y + i, n - i), load_first(x + i, n - i)));
}

// Of pairs (2i, 2i + 1) if interleaved, else (i, i + dim / 2).
POP_INLINE void rotate(float* head, int dim, bool interleaved, const float* cos_sin) {
  const int half_dim = dim / 2;
  int i = 0;
  for (; i + kLanes <= half_dim; i += kLanes) {
    VF cos, sin, a, b;
    load_pairs(cos_sin + 2 * i, cos, sin);
    if (interleaved) {
      load_pairs(head + 2 * i, a, b);
    } else {
      a = load(head + i), b = load(head + half_dim + i);
    }
    const VF new_a = sub(mul(a, cos), mul(b, sin)), new_b = add(mul(a, sin), mul(b, cos));
    if (interleaved) {
      store_pairs(head + 2 * i, new_a, new_b);
    } else {
      store(head + i, new_a), store(head + half_dim + i, new_b);
    }
  }
  for (; i < half_dim; ++i) {
    float& a = head[interleaved ? 2 * i : i];
    float& b = head[interleaved ? 2 * i + 1 : i + half_dim];
    const float cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1], a0 = a, b0 = b;
    a = a0 * cos - b0 * sin;
    b = a0 * sin + b0 * cos;
  }
}

}  // namespace
}  // namespace pop::POP_ISA
