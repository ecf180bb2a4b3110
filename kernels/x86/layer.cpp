// What stands between the weight products, logits, and the pruning scores.
#include "kernels/elementwise.h"
#include "kernels/x86/isa.h"
#include "kernels/x86/unpack.h"

namespace pop::POP_ISA {
namespace {

#ifdef __AVX512F__
POP_INLINE bool any_not_finite(VF v) { return _mm512_fpclass_ps_mask(v, 0x99) != 0; }  // both NaNs, both infinities
POP_INLINE void add_squares_of(const float* x, double* sums) {
  const __m512d v = _mm512_cvtps_pd(_mm256_loadu_ps(x));
  _mm512_storeu_pd(sums, _mm512_add_pd(_mm512_loadu_pd(sums), _mm512_mul_pd(v, v)));
}
constexpr int kDoubles = 8;
POP_INLINE double sum_double(VF v) {
  return _mm512_reduce_add_pd(
      _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))));
}
POP_INLINE void store_halves(uint16_t* p, VF v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
POP_INLINE uint32_t not_below(VF v, float limit) { return _mm512_cmp_ps_mask(v, set1(limit), _CMP_NLT_UQ); }
// first + k for every bit k of `bits`, ascending; returns how many. Writes whole vectors.
POP_INLINE int store_places(uint32_t bits, int first, int32_t* out) {
  const VI lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  _mm512_storeu_si512(out,
                      _mm512_maskz_compress_epi32(__mmask16(bits), _mm512_add_epi32(lane, _mm512_set1_epi32(first))));
  return __builtin_popcount(bits);
}
#else
POP_INLINE uint32_t not_below(VF v, float limit) {
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(v, set1(limit), _CMP_NLT_UQ)));
}
struct Places {
  uint64_t of[256];  // the places of a byte's bits, a byte each
};
constexpr Places places_of_bits() {
  Places p{};
  for (unsigned bits = 0; bits < 256; ++bits)
    for (uint64_t k = 0, count = 0; k < 8; ++k)
      if ((bits >> k & 1) != 0) p.of[bits] |= k << (8 * count++);
  return p;
}
alignas(64) constexpr Places kPlaces = places_of_bits();
// first + k for every bit k of `bits`, ascending; returns how many. Writes whole vectors.
POP_INLINE int store_places(uint32_t bits, int first, int32_t* out) {
  const __m256i place = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kPlaces.of[bits])));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_add_epi32(place, _mm256_set1_epi32(first)));
  return __builtin_popcount(bits);
}
POP_INLINE bool any_not_finite(VF v) {
  return _mm256_movemask_ps(_mm256_cmp_ps(abs(v), set1(3.40282347e38f), _CMP_NLE_UQ)) != 0;
}
POP_INLINE void add_squares_of(const float* x, double* sums) {
  const __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x));
  _mm256_storeu_pd(sums, _mm256_add_pd(_mm256_loadu_pd(sums), _mm256_mul_pd(v, v)));
}
constexpr int kDoubles = 4;
POP_INLINE double sum_double(VF v) {
  const __m256d s =
      _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)), _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
  const __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
  return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}
POP_INLINE void store_halves(uint16_t* p, VF v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#endif

// exp(x[i] - top) for a masked rest adds nothing.
POP_INLINE VF exp_first(const float* x, int n, float top) {
  alignas(64) float lanes[kLanes];
  store(lanes, exp(sub(load_first(x, n), set1(top))));
  return load_first(lanes, n);
}

POP_INLINE float largest_of(const float* x, int n) {
  float top = x[0];
  int i = 0;
  if (n >= kLanes) {
    VF m = load(x);
    for (i = kLanes; i + kLanes <= n; i += kLanes) m = max(load(x + i), m);
    top = largest(m);
  }
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

struct Scores {
  VF total = zero();
  Norm norm;
  POP_INLINE void add_terms(Scores& s, VF term) {
    if (s.norm == Norm::Max) {
      s.total = max(s.total, term);
    } else {
      s.total = add(s.total, s.norm == Norm::One ? term : mul(term, term));
    }
  }
};

}  // namespace

void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
  VF part[4] = {zero(), zero(), zero(), zero()};
  int i = 0;
  for (int k = 0; i + kLanes <= n; i += kLanes, k = (k + 1) % 4) part[k] = fma(load(x + i), load(x + i), part[k]);
  if (i < n) part[0] = fma(load_first(x + i, n - i), load_first(x + i, n - i), part[0]);
  const float squares = sum(add(add(part[0], part[1]), add(part[2], part[3])));
  const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(squares / float(n) + eps)));
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
  // Two passes: the largest value (NaNs lose), then its first place.
  VF m = set1(-__builtin_inff());
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) m = max(load(x + i), m);  // the second operand wins against a NaN in the first
  float top = largest(m);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  for (i = 0; i < n; ++i)
    if (x[i] == top) return i;
  return 0;
}

double log_sum_exp(const float* x, int n) {
  const float top = largest_of(x, n);
  double total = 0;
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total += sum_double(exp(sub(load(x + i), set1(top))));
  if (i < n) total += sum_double(exp_first(x + i, n - i, top));
  return double(top) + __builtin_log(total);
}

bool all_finite(const float* x, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    if (any_not_finite(load(x + i))) return false;
  return i == n || !any_not_finite(load_first(x + i, n - i));
}

void add_squares(const float* x, int n, size_t ldx, int width, double* sums) {
  for (int t = 0; t < n; ++t, x += ldx) {
    int i = 0;
    for (; i + kDoubles <= width; i += kDoubles) add_squares_of(x + i, sums + i);
    for (; i < width; ++i) sums[i] += double(x[i]) * double(x[i]);
  }
}

void abs_scores(const Matrix& w, const float* x, Norm norm, IndexList list, int begin, int end, float* out) {
  const size_t bytes = row_bytes(w.type, w.cols);
  alignas(64) float values[256], sums[256];
  for (int i = begin; i < end; ++i) {
    const int unit = at(list, i);
    const uint8_t* rows = w.data + (w.offset != nullptr ? w.offset[unit] : size_t(unit) * size_t(w.unit) * bytes);
    Scores s{zero(), norm};
    for (int k = 0; k < w.cols; k += 256) {
      const int n = w.cols - k < 256 ? w.cols - k : 256;
      for (int j = n; j < (n + kLanes - 1) / kLanes * kLanes; ++j) values[j] = sums[j] = 0;
      for (int u = 0; u < w.unit; ++u) {
        unpack_row(w.type, rows + size_t(u) * bytes, w.cols, k, n, values);
        for (int j = 0; j < n; j += kLanes)
          store(sums + j, u == 0 ? abs(load(values + j)) : add(load(sums + j), abs(load(values + j))));
      }
      for (int j = 0; j < n; j += kLanes) {
        const VF xs = n - j < kLanes ? load_first(x + k + j, n - j) : load(x + k + j);
        Scores::add_terms(s, mul(load(sums + j), abs(xs)));
      }
    }
    const float total = norm == Norm::Max ? largest(s.total) : sum(s.total);
    out[unit] = norm == Norm::Two ? _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(total))) : total;
  }
}

void channel_scores(const float* h, const float* norm, IndexList list, float* out) {
  int j = 0;
  for (; list.index == nullptr && j + kLanes <= list.count; j += kLanes)
    store(out + j, mul(abs(load(h + j)), load(norm + j)));
#ifdef __AVX512F__
  for (; j + kLanes <= list.count; j += kLanes) {
    const VI index = _mm512_loadu_si512(list.index + j);
    store(out + j, mul(abs(_mm512_i32gather_ps(index, h, 4)), _mm512_i32gather_ps(index, norm, 4)));
  }
#endif
  for (; j < list.count; ++j) out[j] = __builtin_fabsf(h[at(list, j)]) * norm[at(list, j)];
}

int select_scores(const float* x, const float* norm, int n, float tau, int32_t* out) {
  int count = 0;
  for (int i = 0; i < n; i += kLanes) {
    const int here = n - i < kLanes ? n - i : kLanes;
    const VF score = here == kLanes ? mul(abs(load(x + i)), load(norm + i))
                                    : mul(abs(load_first(x + i, here)), load_first(norm + i, here));
    count += store_places(not_below(score, tau) & ((1u << here) - 1), i, out + count);
  }
  return count;
}

}  // namespace pop::POP_ISA
