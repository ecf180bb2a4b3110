#include "prune/importance.h"

#include <algorithm>
#include <cmath>

#include "tensor/columns.h"
#include "tensor/layout.h"

namespace pop {
namespace {

constexpr int kPiece = 256;  // channels per piece of parallel work: some microseconds

int pieces_of(int n) { return (n + kPiece - 1) / kPiece; }

void add_row(std::span<const float> row, Norm norm, std::span<double> sums) {
  for (size_t c = 0; c < row.size(); ++c) {
    const double w = std::fabs(static_cast<double>(row[c]));
    sums[c] = norm == Norm::Max ? std::max(sums[c], w) : norm == Norm::One ? sums[c] + w : sums[c] + w * w;
  }
}

// Gate's rows before up's.
template <class Visit>
void for_each_row(const Matrix& w, Visit&& visit) {
  for (int part = 0; part < w.unit; ++part)
    for (int r = part; r < w.rows; r += w.unit) visit(r);
}

}  // namespace

void column_norms(std::span<const Matrix> stacked, Norm norm, std::span<float> row, std::span<double> sums,
                  std::span<float> out) {
  std::fill(sums.begin(), sums.end(), 0.0);
  for (const Matrix& w : stacked) {
    if (w.layout == Layout::Columns) {
      for (int begin = 0; begin < w.cols; begin += kBlockElems) {
        const ColumnPart part(w, begin);
        const auto at = static_cast<size_t>(begin), count = static_cast<size_t>(part.count());
        for_each_row(w, [&](int r) {
          part.read(r, row.data());
          add_row(row.first(count), norm, sums.subspan(at, count));
        });
      }
    } else {
      for_each_row(w, [&](int r) {
        read_row(w, r, row.data());
        add_row(row, norm, sums);
      });
    }
  }
  for (size_t c = 0; c < out.size(); ++c) {
    out[c] = static_cast<float>(norm == Norm::Two ? std::sqrt(sums[c]) : sums[c]);
  }
}

std::vector<std::vector<float>> column_norm_tables(const std::vector<std::vector<Matrix>>& stacks, Norm norm,
                                                   ThreadPool& pool) {
  size_t widest = 0;
  std::vector<std::vector<float>> tables;
  for (const std::vector<Matrix>& stack : stacks) {
    const auto cols = static_cast<size_t>(stack.front().cols);
    tables.emplace_back(cols);
    widest = std::max(widest, cols);
  }
  const auto threads = static_cast<size_t>(pool.threads());
  std::vector<std::vector<float>> rows(threads, std::vector<float>(widest));
  std::vector<std::vector<double>> sums(threads, std::vector<double>(widest));
  pool.run(static_cast<int>(stacks.size()), [&](int piece, int thread) {
    const auto i = static_cast<size_t>(piece), t = static_cast<size_t>(thread);
    const size_t cols = tables[i].size();
    column_norms(stacks[i], norm, std::span(rows[t]).first(cols), std::span(sums[t]).first(cols), tables[i]);
  });
  return tables;
}

SiteNorms site_column_norms(const PolicyContext& context) {
  std::array<std::vector<std::vector<Matrix>>, kSites> stacks;
  for (const LayerWeights& l : context.layers) {
    stacks[0].push_back({l.q, l.k, l.v});
    stacks[1].push_back({l.o});
  }
  for (const FfnWeights* ffn : context.ffns) {
    stacks[2].push_back({ffn->gate_up});
    stacks[3].push_back({ffn->down});
  }
  SiteNorms norms;
  for (size_t s = 0; s < kSites; ++s) norms[s] = column_norm_tables(stacks[s], Norm::Two, *context.pool);
  return norms;
}

UnitScorer::UnitScorer(const KernelTable& kernels, const Matrix& shape) : kernels_(&kernels) {
  if (shape.layout == Layout::Rows) return;
  copy_.rows = copy_.unit = shape.unit;
  copy_.cols = shape.cols;
  row_.resize(static_cast<size_t>(shape.cols));
  bytes_.resize(matrix_bytes(copy_));
}

void UnitScorer::score(const Matrix& w, const float* x, Norm norm, IndexList list, int begin, int end, float* out) {
  if (w.layout == Layout::Rows) {
    kernels_->abs_scores(w, x, norm, list, begin, end, out);
    return;
  }
  copy_.data = bytes_.data();
  for (int i = begin; i < end; ++i) {
    std::fill(bytes_.begin(), bytes_.end(), uint8_t{0});
    for (int part = 0; part < w.unit; ++part) {
      read_row(w, list[i] * w.unit + part, row_.data());
      write_row(copy_, part, reinterpret_cast<const uint8_t*>(row_.data()), bytes_.data());
    }
    kernels_->abs_scores(copy_, x, norm, {nullptr, 1}, 0, 1, out + list[i]);
  }
}

void accumulate_squares(const PolicyContext& context, const float* x, int n, size_t ldx, std::span<double> sums) {
  const int width = static_cast<int>(sums.size());
  context.pool->run(pieces_of(width), [&](int piece, int) {
    const int begin = piece * kPiece, count = std::min(kPiece, width - begin);
    context.kernels->add_squares(x + begin, n, ldx, count, sums.data() + begin);
  });
}

void down_scores(std::span<const double> sums, std::span<const float> norms, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(std::sqrt(sums[i]) * static_cast<double>(norms[i]));
  }
}

void gate_up_scores(const PolicyContext& context, const Matrix& gate_up, std::span<const double> sums, Norm norm,
                    std::span<float> x_norm, std::span<float> out) {
  for (size_t k = 0; k < sums.size(); ++k) x_norm[k] = static_cast<float>(std::sqrt(sums[k]));
  const int f = static_cast<int>(out.size());
  std::vector<UnitScorer> scorers(static_cast<size_t>(context.pool->threads()), UnitScorer(*context.kernels, gate_up));
  context.pool->run(pieces_of(f), [&](int piece, int thread) {
    const int begin = piece * kPiece, end = std::min(begin + kPiece, f);
    scorers[static_cast<size_t>(thread)].score(gate_up, x_norm.data(), norm, {nullptr, f}, begin, end, out.data());
  });
}

}  // namespace pop
