#include "prune/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace pop {
namespace {

constexpr int kPiece = 256;         // channels per piece of parallel work
constexpr int kTokensPerPiece = 8;  // of histograms

}  // namespace

std::string Calibration::description() const {
  return fmt::format("{}; {} sequences, {} tokens", source, sequences, tokens);
}

CalibrationCollector::CalibrationCollector(CalibrationModel model, int positions, ThreadPool& pool)
    : pool_(&pool), scratch_(static_cast<size_t>(pool.threads())) {
  const auto f = static_cast<size_t>(model.f);
  data_.layers.resize(static_cast<size_t>(model.layers));
  for (CalibrationLayer& layer : data_.layers) {
    layer.squares.resize(f), layer.mean.resize(f), layer.fluctuation.resize(f);
    layer.history.resize(static_cast<size_t>(positions) * f);
  }
  sums_.assign(data_.layers.size(), Sums{std::vector<double>(f), std::vector<double>(f)});
  data_.positions = positions;
  data_.model = std::move(model);
}

void CalibrationCollector::count(ScoreHistogram& histogram, const float* x, int n, size_t ldx, int width) {
  pool_->run((n + kTokensPerPiece - 1) / kTokensPerPiece, [&](int piece, int thread) {
    ScoreHistogram& counts = scratch_[static_cast<size_t>(thread)];
    for (int t = piece * kTokensPerPiece; t < std::min(n, (piece + 1) * kTokensPerPiece); ++t) {
      for (int k = 0; k < width; ++k) {
        const float magnitude = std::fabs(x[static_cast<size_t>(t) * ldx + static_cast<size_t>(k)]);
        counts.add({&magnitude, 1});
      }
    }
  });
  for (ScoreHistogram& counts : scratch_) {
    histogram.add(counts);
    counts.clear();
  }
}

void CalibrationCollector::observe(Site site, int layer, const float* x, int n, size_t ldx, int first_pos) {
  const CalibrationModel& m = data_.model;
  CalibrationLayer& l = data_.layers[static_cast<size_t>(layer)];
  const int widths[kSites] = {m.d, m.q_dim, m.d, m.f};
  count(l.inputs[static_cast<int>(site)], x, n, ldx, widths[static_cast<int>(site)]);
  if (site != Site::Down) return;
  length_ = first_pos + n;
  Sums& sums = sums_[static_cast<size_t>(layer)];
  const auto f = static_cast<size_t>(m.f);
  pool_->run((m.f + kPiece - 1) / kPiece, [&](int piece, int) {
    const auto begin = static_cast<size_t>(piece) * kPiece, end = std::min(begin + kPiece, f);
    for (int t = 0; t < n; ++t) {
      const float* h = x + static_cast<size_t>(t) * ldx;
      const bool remembered = first_pos + t < data_.positions;
      double* history = remembered ? l.history.data() + static_cast<size_t>(first_pos + t) * f : nullptr;
      for (size_t i = begin; i < end; ++i) {
        const auto value = static_cast<double>(h[i]);
        sums.h[i] += value;
        sums.squares[i] += value * value;
        if (remembered) history[i] += value * value;
      }
    }
  });
}

void CalibrationCollector::observe_gates(int layer, std::span<const float> gates) {
  count(data_.layers[static_cast<size_t>(layer)].gates, gates.data(), 1, gates.size(), static_cast<int>(gates.size()));
}

// Of a closed sequence sum_t (h - m_n)^2 is sum h^2 - 2 m_n sum h + T m_n^2.
void CalibrationCollector::partition() {
  const auto n = static_cast<double>(++data_.sequences), tokens = static_cast<double>(length_);
  data_.tokens += static_cast<uint64_t>(length_);
  for (size_t layer = 0; layer < sums_.size(); ++layer) {
    CalibrationLayer& l = data_.layers[layer];
    Sums& sums = sums_[layer];
    for (size_t i = 0; i < l.mean.size(); ++i) {
      double& mean = l.mean[i];
      mean = mean * (n - 1) / n + sums.h[i] / tokens / n;
      const double deviation = std::max(0.0, sums.squares[i] - 2 * mean * sums.h[i] + tokens * mean * mean);
      l.fluctuation[i] = n == 1 ? 0 : l.fluctuation[i] * (n - 2) / (n - 1) + deviation / n;
      l.squares[i] += sums.squares[i];
    }
    std::fill(sums.h.begin(), sums.h.end(), 0.0);
    std::fill(sums.squares.begin(), sums.squares.end(), 0.0);
  }
  length_ = 0;
}

Calibration CalibrationCollector::result(std::string source) const {
  Calibration calibration = data_;
  calibration.source = std::move(source);
  return calibration;
}

}  // namespace pop
