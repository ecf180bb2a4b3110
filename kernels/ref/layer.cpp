// What stands between the weight products, logits, and the pruning scores.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/ref/ref.h"
#include "tensor/layout.h"

namespace pop::ref {
void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
  float squares = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  const float inverse = 1.f / std::sqrt(squares / float(n) + eps);
  for (int i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void add(const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] += x[i];
}

void silu_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  for (int i = begin; i < end; ++i) {
    const float gate = gate_up[2 * size_t(list[i])], up = gate_up[2 * size_t(list[i]) + 1];
    h[list[i]] = gate / (1.f + std::exp(-gate)) * up;
  }
}

void gelu_mul(const float* gate_up, IndexList list, int begin, int end, float* h) {
  // (1 + tanh u) / 2 = 1 / (1 + e^-2u), without the cancellation of the left side where u is far below 0.
  constexpr float kLinear = 1.5957691216f, kCubic = 0.0713548163f;  // 2 sqrt(2 / pi), and that times 0.044715
  for (int i = begin; i < end; ++i) {
    const float gate = gate_up[2 * size_t(list[i])], up = gate_up[2 * size_t(list[i]) + 1];
    h[list[i]] = gate / (1.f + std::exp(-gate * (kLinear + kCubic * gate * gate))) * up;
  }
}

void rope(float* head, int dim, bool interleaved, const float* cos_sin) {
  for (int i = 0; i < dim / 2; ++i) {
    float& a = head[interleaved ? 2 * i : i];
    float& b = head[interleaved ? 2 * i + 1 : i + dim / 2];
    const float cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1], a0 = a, b0 = b;
    a = a0 * cos - b0 * sin;
    b = a0 * sin + b0 * cos;
  }
}

void soft_cap(float* x, int n, float cap) {
  for (int i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

int argmax(const float* x, int n) {
  int best = -1;
  for (int i = 0; i < n; ++i)
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  return std::max(best, 0);
}

double log_sum_exp(const float* x, int n) {
  const float largest = *std::max_element(x, x + n);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(double(x[i]) - double(largest));
  return double(largest) + std::log(sum);
}

bool all_finite(const float* x, int n) {
  return std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
}

void add_squares(const float* x, int n, size_t ldx, int width, double* sums) {
  for (int t = 0; t < n; ++t)
    for (int i = 0; i < width; ++i)
      sums[i] += double(x[size_t(t) * ldx + size_t(i)]) * double(x[size_t(t) * ldx + size_t(i)]);
}

void abs_scores(const Matrix& w, const float* x, Norm norm, IndexList list, int begin, int end, float* out) {
  const size_t bytes = row_bytes(w.type, w.cols);
  float values[256], sums[256];
  for (int i = begin; i < end; ++i) {
    const uint8_t* unit = w.data + unit_offset(w, list[i]);
    float total = 0;
    for (int k = 0; k < w.cols; k += 256) {
      const int count = std::min(256, w.cols - k);
      std::fill(sums, sums + count, 0.f);
      for (int u = 0; u < w.unit; ++u) {
        unpack_row(w.type, unit + size_t(u) * bytes, w.cols, k, count, values);
        for (int j = 0; j < count; ++j) sums[j] += std::fabs(values[j]);
      }
      for (int j = 0; j < count; ++j) {
        const float term = sums[j] * std::fabs(x[k + j]);
        if (norm == Norm::Max) {
          total = std::max(total, term);
        } else {
          total += norm == Norm::One ? term : term * term;
        }
      }
    }
    out[list[i]] = norm == Norm::Two ? std::sqrt(total) : total;
  }
}

void channel_scores(const float* h, const float* norm, IndexList list, float* out) {
  for (int j = 0; j < list.count; ++j) out[j] = std::fabs(h[list[j]]) * norm[list[j]];
}

int select_scores(const float* x, const float* norm, int n, float tau, int32_t* out) {
  int count = 0;
  for (int i = 0; i < n; ++i) {
    const float score = std::fabs(x[i]) * norm[i];
    out[count] = i;
    count += !(score < tau);
  }
  return count;
}

uint64_t read_lines(const uint8_t* data, size_t lines, int streams, int) {
  const size_t part = lines / size_t(streams);
  uint64_t sum = 0;
  const auto add_line = [&](size_t line) {
    uint64_t words[8];
    std::memcpy(words, data + line * 64, sizeof words);
    for (const uint64_t word : words) sum += word;
  };
  for (size_t i = 0; i < part; ++i)
    for (int s = 0; s < streams; ++s) add_line(size_t(s) * part + i);
  for (size_t line = part * size_t(streams); line < lines; ++line) add_line(line);
  return sum;
}

double multiply_adds(ActType, int rounds) {
  constexpr int kChains = 8;
  volatile float factor = 0.5f;  // the compiler must neither fold the loop nor drop it
  const float x = factor;
  float sum[kChains] = {};
  for (int i = 0; i < rounds; ++i)
    for (float& s : sum) s = s * x + x;
  for (const float s : sum) factor = s;
  return double(rounds) * kChains;
}

}  // namespace pop::ref
