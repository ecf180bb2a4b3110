// How much a channel matters: from weights and activations to one number each (pop-method section 3, arXiv 2602.06822
// eq. 1-2).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "prune/policy.h"
#include "tensor/matrix.h"

namespace pop {

// Norms of the columns of matrices stacked one on another: out[c] = A_j |W[j, c]| over all their rows j, of the values
// as stored. Sums in float64 by ascending row, then float32; of a unit-2 matrix gate's rows stand before up's. All have
// out.size() columns. row: [cols], sums: [cols], scratch.
void column_norms(std::span<const Matrix> stacked, Norm norm, std::span<float> row, std::span<double> sums,
                  std::span<float> out);

// column_norms of many stacks, on all threads.
std::vector<std::vector<float>> column_norm_tables(const std::vector<std::vector<Matrix>>& stacks, Norm norm,
                                                   ThreadPool& pool);

// c of every site (pop-method section 8b): the 2-norms of the columns of its matrices stacked, [site][place][width].
using SiteNorms = std::array<std::vector<std::vector<float>>, kSites>;
SiteNorms site_column_norms(const PolicyContext& context);

// KernelTable::abs_scores for a matrix in either layout: it takes Rows only, so units of Columns go through a copy as
// rows of float32 (reference speed).
class UnitScorer {
 public:
  UnitScorer(const KernelTable& kernels, const Matrix& shape);  // a matrix of the shape and layout to come
  void score(const Matrix& w, const float* x, Norm norm, IndexList list, int begin, int end, float* out);

 private:
  const KernelTable* kernels_;
  Matrix copy_;
  std::vector<float> row_;
  std::vector<uint8_t> bytes_;
};

// sums[c] += x[t][c]^2 for t ascending: statistics of a prompt, continued over its chunks. x : [n, sums.size()].
void accumulate_squares(const PolicyContext& context, const float* x, int n, size_t ldx, std::span<double> sums);

// `down`: out[i] = sqrt(sums[i]) * norms[i], sums of h_i^2 over the prompt, norms of W_down's columns. All [f].
void down_scores(std::span<const double> sums, std::span<const float> norms, std::span<float> out);

// `gate-up`: out[i] = A_k((|W_gate[i,k]| + |W_up[i,k]|) * sqrt(sums[k])), sums of x_k^2 over the prompt : [d]; x_norm :
// [d], scratch; out : [f]. On all threads.
void gate_up_scores(const PolicyContext& context, const Matrix& gate_up, std::span<const double> sums, Norm norm,
                    std::span<float> x_norm, std::span<float> out);

}  // namespace pop
