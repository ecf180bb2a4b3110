#include "prune/repair.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "tensor/layout.h"

namespace pop {
namespace {

constexpr size_t kBlock = 64;  // of the factorisation
constexpr size_t kPanel = 16;  // columns of the inverse at once
constexpr int kTokens = 64;    // summed in float32 before they are added to float64
constexpr int kRows = 64;      // of H at once

// y -= factor * x
void subtract(double factor, const double* x, size_t n, double* y) {
  for (size_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

// In eight sums, so that the compiler may use vectors.
double dot(const double* a, const double* b, size_t n) {
  std::array<double, 8> sums = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// L of a = L L^T over the lower triangle of a : [n, n], in place. False if a is not positive definite.
bool factorise(std::vector<double>& a, size_t n, ThreadPool& pool) {
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t end = std::min(n, at + kBlock);
    for (size_t i = at; i < end; ++i) {  // the block on the diagonal
      for (size_t j = at; j <= i; ++j) {
        const double left = a[i * n + j] - dot(&a[i * n + at], &a[j * n + at], j - at);
        if (i == j && !(left > 0)) return false;
        a[i * n + j] = i == j ? std::sqrt(left) : left / a[j * n + j];
      }
    }
    pool.run(int(n - end), [&](int piece, int) {  // the rows below it
      const size_t i = end + size_t(piece);
      for (size_t j = at; j < end; ++j)
        a[i * n + j] = (a[i * n + j] - dot(&a[i * n + at], &a[j * n + at], j - at)) / a[j * n + j];
    });
    pool.run(int(n - end), [&](int piece, int) {
      const size_t i = end + size_t(piece);
      for (size_t j = end; j <= i; ++j) a[i * n + j] -= dot(&a[i * n + at], &a[j * n + at], end - at);
    });
  }
  return true;
}

// (L L^T)^-1 : [n, n], whole, a few columns at once.
std::vector<double> inverse_of(const std::vector<double>& l, size_t n, ThreadPool& pool) {
  std::vector<double> inverse(n * n), panels(n * kPanel * size_t(pool.threads()));
  pool.run(int((n + kPanel - 1) / kPanel), [&](int piece, int thread) {
    const size_t first = size_t(piece) * kPanel, width = std::min(kPanel, n - first);
    const std::span<double> x = std::span(panels).subspan(n * kPanel * size_t(thread), n * kPanel);
    std::fill(x.begin(), x.end(), 0.0);
    for (size_t i = first; i < n; ++i) {  // L y = e
      double* const row = &x[i * kPanel];
      if (i < first + width) row[i - first] = 1;
      for (size_t k = first; k < i; ++k) subtract(l[i * n + k], &x[k * kPanel], kPanel, row);
      for (size_t c = 0; c < kPanel; ++c) row[c] /= l[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {  // L^T x = y
      double* const row = &x[i * kPanel];
      for (size_t c = 0; c < kPanel; ++c) row[c] /= l[i * n + i];
      for (size_t k = 0; k < i; ++k) subtract(l[i * n + k], row, kPanel, &x[k * kPanel]);
    }
    for (size_t i = 0; i < n; ++i) std::copy_n(&x[i * kPanel], width, &inverse[i * n + first]);
  });
  return inverse;
}

}  // namespace

Acts float_acts(const KernelTable& kernels, const float* x, int n, int cols, size_t ldx, ThreadPool& pool,
                AlignedBuffer& memory) {
  const size_t stride = kernels.acts_bytes(ActType::F32, Layout::Columns, cols);
  if (memory.size() < size_t(n) * stride) memory = AlignedBuffer(size_t(n) * stride);
  pool.run(n, [&](int row, int) {
    kernels.pack_acts(ActType::F32, Layout::Columns, x + size_t(row) * ldx, cols, memory.data() + size_t(row) * stride);
  });
  return {ActType::F32, Layout::Columns, n, cols, stride, memory.data()};
}

// H += X^T X of some tokens: with the tokens as columns of a matrix, and its own rows before it.
void GramMatrix::add(const float* h, int n, size_t ldh, ThreadPool& pool) {
  const auto f = size_t(f_);
  std::vector<float> channels(f * size_t(kTokens)), sums(f * size_t(kRows + 1) * size_t(pool.threads()));
  AlignedBuffer columns, packed;
  for (int at = 0; at < n; at += kTokens) {
    Matrix x{.type = DType::F32, .layout = Layout::Columns, .rows = f_, .cols = std::min(kTokens, n - at)};
    const auto tokens = size_t(x.cols);
    if (columns.size() < matrix_bytes(x)) columns = AlignedBuffer(matrix_bytes(x));
    x.data = columns.data();
    for (size_t t = 0; t < tokens; ++t) {
      const float* const token = h + (size_t(at) + t) * ldh;
      std::memcpy(columns.data() + column_offset(x, int(t)), token, f * sizeof(float));
      for (size_t k = 0; k < f; ++k) channels[k * tokens + t] = token[k];
    }
    const Acts rows = float_acts(*kernels_, channels.data(), f_, x.cols, tokens, pool, packed);
    pool.run((f_ + kRows - 1) / kRows, [&](int piece, int thread) {
      const int first = piece * kRows, end = std::min(f_, first + kRows);
      Acts below = rows;  // of the lower triangle
      below.n = f_ - first;
      below.data = rows.row(first);
      float* const y = sums.data() + f * size_t(kRows + 1) * size_t(thread);
      kernels_->gemm_columns(x, below, first, end, y, size_t(kRows));
      for (int i = first; i < f_; ++i)
        for (int j = first; j < std::min(end, i + 1); ++j)
          h_[size_t(i) * f + size_t(j)] += double(y[(i - first) * kRows + j]);
    });
  }
}

ChannelRemoval::ChannelRemoval(GramMatrix gram, const Matrix& down, ThreadPool& pool, double damping)
    : pool_(&pool), f_(size_t(gram.f())), d_(size_t(down.rows)), a_(f_ * d_), g_(f_ * d_), dead_(f_), kept_(f_) {
  std::vector<double> h = gram.take();
  double trace = 0;
  for (size_t k = 0; k < f_; ++k) trace += h[k * f_ + k];
  if (!std::isfinite(trace)) fail("the activations of this text are too large for their squares to be summed");
  const double added = trace > 0 ? damping * trace / double(f_) : 1;
  for (size_t k = 0; k < f_; ++k) {
    dead_[k] = h[k * f_ + k] == 0;
    h[k * f_ + k] += dead_[k] != 0 && added == 0 ? 1 : added;
    for (size_t j = 0; j < k; ++j) h[j * f_ + k] = h[k * f_ + j];
  }
  std::iota(kept_.begin(), kept_.end(), 0);
  std::vector<float> row(f_);
  for (size_t j = 0; j < d_; ++j) {
    read_row(down, int(j), row.data());
    for (size_t k = 0; k < f_; ++k) a_[k * d_ + j] = dead_[k] != 0 ? 0 : double(row[k]);
  }
  pool.run(int(f_), [&](int piece, int) {
    const auto i = size_t(piece);
    for (size_t k = 0; k < f_; ++k) subtract(-h[i * f_ + k], &a_[k * d_], d_, &g_[i * d_]);
  });
  if (!factorise(h, f_, pool)) fail("too few different tokens: expected a positive definite matrix of activations");
  inverse_ = inverse_of(h, f_, pool);
}

std::vector<double> ChannelRemoval::scores() const {
  std::vector<double> scores(f_);
  for (const int32_t channel : kept_) {
    const auto k = size_t(channel);
    const double* const a = &a_[k * d_];
    scores[k] = dead_[k] != 0 ? -std::numeric_limits<double>::infinity()
                              : dot(a, a, d_) / (2 * inverse_[k * f_ + k]) + dot(a, &g_[k * d_], d_);
  }
  return scores;
}

void ChannelRemoval::remove(int count) {
  const std::vector<double> score = scores();
  std::vector<int32_t> going = kept_;
  const auto end = going.begin() + std::clamp(count, 0, int(going.size()));
  std::nth_element(going.begin(), end, going.end(), [&](int32_t a, int32_t b) {
    return score[size_t(a)] < score[size_t(b)] || (score[size_t(a)] == score[size_t(b)] && a > b);
  });
  going.erase(end, going.end());
  std::sort(going.begin(), going.end());
  for (size_t at = 0; at < going.size(); at += kBlock)
    take(std::span(going).subspan(at, std::min(kBlock, going.size() - at)));
}

// With P = going: A -= H^-1[:,P] (H^-1[P,P])^-1 A[P,:], and H^-1 likewise.
void ChannelRemoval::take(std::span<const int32_t> going) {
  const size_t m = going.size();
  std::vector<int32_t> left;
  std::set_difference(kept_.begin(), kept_.end(), going.begin(), going.end(), std::back_inserter(left));
  kept_ = std::move(left);
  std::vector<double> block(m * m), of_inverse(m * f_), of_a(m * d_);
  for (size_t p = 0; p < m; ++p) {
    const double* const row = &inverse_[size_t(going[p]) * f_];
    for (size_t q = 0; q < m; ++q) block[p * m + q] = row[going[q]];
    std::copy_n(row, f_, &of_inverse[p * f_]);
    std::copy_n(&a_[size_t(going[p]) * d_], d_, &of_a[p * d_]);
  }
  if (!factorise(block, m, *pool_))
    fail("too few different tokens: expected a positive definite matrix of activations");
  const std::vector<double> between = inverse_of(block, m, *pool_);
  std::vector<double> factors(m * size_t(pool_->threads()));
  pool_->run(int(kept_.size()), [&](int piece, int thread) {
    const auto i = size_t(kept_[size_t(piece)]);
    const std::span<double> factor = std::span(factors).subspan(m * size_t(thread), m);
    std::fill(factor.begin(), factor.end(), 0.0);
    for (size_t p = 0; p < m; ++p)  // H^-1 is symmetric
      subtract(-inverse_[i * f_ + size_t(going[p])], &between[p * m], m, factor.data());
    for (size_t p = 0; p < m; ++p) {
      subtract(factor[p], &of_inverse[p * f_], f_, &inverse_[i * f_]);
      subtract(factor[p], &of_a[p * d_], d_, &a_[i * d_]);
    }
  });
  for (const int32_t k : going) std::fill_n(&a_[size_t(k) * d_], d_, 0.0);
}

}  // namespace pop
