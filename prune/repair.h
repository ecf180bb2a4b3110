// Which channels of one FFN go, and what W_down becomes where they are missing: the local pruning of Týr-the-Pruner
// (arXiv 2503.09657, section 3.1; where code and paper differ, its code). In float64, but for sums over 64 tokens at a time; no
// bit depends on threads.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "tensor/matrix.h"

namespace pop {

// The rows of x, float32, as they stand before a matrix in Columns: x : [n, cols], rows ldx apart; memory: what holds them.
Acts float_acts(const KernelTable& kernels, const float* x, int n, int cols, size_t ldx, ThreadPool& pool,
                AlignedBuffer& memory);

// H = sum over tokens of h h^T, h : [f] the input of W_down.
class GramMatrix {
 public:
  GramMatrix(int f, const KernelTable& kernels) : kernels_(&kernels), f_(f), h_(size_t(f) * size_t(f)) {}
  int f() const { return f_; }
  // n tokens, rows of `h` ldh apart. Sums depend on how tokens are cut into calls.
  void add(const float* h, int n, size_t ldh, ThreadPool& pool);
  std::vector<double> take() { return std::move(h_); }  // [f, f], the lower triangle

 private:
  const KernelTable* kernels_;
  int f_;
  std::vector<double> h_;
};

// Takes channels away in rounds. After each, W_down's other columns are those of least squared error over the tokens of H
// (damped): the columns left solve H[kept, kept] A = (H A0)[kept].
class ChannelRemoval {
 public:
  static constexpr double kDamping = 0.01;  // of the mean of H's diagonal, added to it

  // down : [d, f]. Throws Error if H is not finite or, damped, not positive definite.
  ChannelRemoval(GramMatrix gram, const Matrix& down, ThreadPool& pool, double damping = kDamping);

  // The `count` channels of the lowest scores go together. Score of channel k, A = W_down^T, G = H A of the whole model:
  //   sum_j A[k,j]^2 / (2 [H^-1]_kk) + A[k,j] G[k,j]
  // Channels that were 0 on every token go first; of equals the lower index stays.
  void remove(int count);
  std::vector<double> scores() const;  // [f], of what is kept; what went has 0

  const std::vector<int32_t>& kept() const { return kept_; }  // ascending
  std::span<const double> columns() const { return a_; }      // [f, d], row k is column k of W_down; 0 where k went

 private:
  void take(std::span<const int32_t> going);

  ThreadPool* pool_;
  size_t f_, d_;
  std::vector<double> inverse_, a_, g_;  // H^-1 of what is kept [f, f]; [f, d]; [f, d]
  std::vector<uint8_t> dead_;            // [f]
  std::vector<int32_t> kept_;
};

}  // namespace pop
