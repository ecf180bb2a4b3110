// What stands between the weight products, logits, and the pruning scores.
#include "kernels/elementwise.h"
#include "kernels/neon/isa.h"
#include "kernels/neon/simd.h"

namespace pop::POP_ISA {

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

void add_to(const float* x, int n, float* y) { add_all(x, n, y); }

void silu_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  gate_mul<Silu>(gate_up, list, begin, end, h);
}
void gelu_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  gate_mul<Gelu>(gate_up, list, begin, end, h);
}

void rope(float* head, int dim, bool interleaved, const float* cos_sin) { rotate(head, dim, interleaved, cos_sin); }

void soft_cap(float* x, int n, float cap) { cap_all(x, n, cap); }

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
