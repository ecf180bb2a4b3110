// What stands between the weight products, logits, and the pruning scores.
#include "kernels/neon/isa.h"
#include "kernels/neon/simd.h"

namespace pop::POP_ISA {
namespace {

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

template <class Act>
void gate_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  alignas(16) float pairs[2 * kLanes], out[kLanes];
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

}  // namespace

void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
  VF part[4] = {zero(), zero(), zero(), zero()};
  int i = 0;
  for (int k = 0; i + kLanes <= n; i += kLanes, k = (k + 1) % 4) part[k] = fma(load(x + i), load(x + i), part[k]);
  if (i < n) part[0] = fma(load_first(x + i, n - i), load_first(x + i, n - i), part[0]);
  const float squares = sum(add(add(part[0], part[1]), add(part[2], part[3])));
  const float root = vget_lane_f32(vsqrt_f32(vdup_n_f32(squares / float(n) + eps)), 0);
  const VF inverse = set1(1.f / root);
  for (i = 0; i + kLanes <= n; i += kLanes) store(out + i, mul(mul(load(x + i), inverse), load(weight + i)));
  if (i < n) store_first(out + i, n - i, mul(mul(load_first(x + i, n - i), inverse), load_first(weight + i, n - i)));
}

void add_to(const float* x, int n, float* y) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, add(load(y + i), load(x + i)));
  for (; i < n; ++i) y[i] += x[i];
}

void silu_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  gate_mul<Silu>(gate_up, list, begin, end, h);
}
void gelu_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  gate_mul<Gelu>(gate_up, list, begin, end, h);
}

void rope(float* head, int dim, bool interleaved, const float* cos_sin) {
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

void soft_cap(float* x, int n, float cap) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, soft_capped(load(x + i), set1(cap)));
  if (i < n) store_first(x + i, n - i, soft_capped(load_first(x + i, n - i), set1(cap)));
}

int argmax(const float* x, int n) {
  // Two passes: the largest value (the instruction prefers numbers to NaNs), then its first place.
  float32x4_t m = vdupq_n_f32(-__builtin_inff());
  int i = 0;
  for (; i + 4 <= n; i += 4) m = vmaxnmq_f32(m, vld1q_f32(x + i));
  float top = vmaxnmvq_f32(m);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  for (i = 0; i < n; ++i)
    if (x[i] == top) return i;
  return 0;
}

void add_squares(const float* x, int n, size_t ldx, int width, double* sums) {
  for (int t = 0; t < n; ++t, x += ldx) {
    int i = 0;
    for (; i + 2 <= width; i += 2) {
      const float64x2_t v = vcvt_f64_f32(vld1_f32(x + i));
      vst1q_f64(sums + i, vaddq_f64(vld1q_f64(sums + i), vmulq_f64(v, v)));
    }
    for (; i < width; ++i) sums[i] += double(x[i]) * double(x[i]);
  }
}

void channel_scores(const float* h, const float* norm, IndexList list, float* out) {
  int j = 0;
  for (; list.index == nullptr && j + kLanes <= list.count; j += kLanes)
    store(out + j, mul(abs(load(h + j)), load(norm + j)));
  for (; j < list.count; ++j) out[j] = __builtin_fabsf(h[at(list, j)]) * norm[at(list, j)];
}

}  // namespace pop::POP_ISA
