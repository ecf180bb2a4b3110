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

DType repaired_type(const std::string& repaired, DType own) {
  return repaired == "bf16" || !has_quantizer(own) ? DType::BF16 : own;
}

std::string Calibration::description() const {
  return fmt::format("{}; {} sequences, {} tokens", source, sequences, tokens);
}

CalibrationCollector::CalibrationCollector(CalibrationModel model, int positions, ThreadPool& pool)
    : pool_(&pool), scratch_(static_cast<size_t>(pool.threads())) {
  data_.layers.resize(static_cast<size_t>(model.layers));
  for (const FfnShape& shape : model.ffns) {
    const auto f = static_cast<size_t>(shape.f);
    CalibrationFfn& ffn = data_.ffns.emplace_back();
    ffn.squares.resize(f), ffn.mean.resize(f), ffn.fluctuation.resize(f);
    ffn.history.resize(static_cast<size_t>(positions) * f);
    sums_.push_back({std::vector<double>(f), std::vector<double>(f)});
  }
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

void CalibrationCollector::observe(Site site, int place, const float* x, int n, size_t ldx, int first_pos) {
  const CalibrationModel& m = data_.model;
  length_ = std::max(length_, first_pos + n);
  const auto i = static_cast<size_t>(place);
  if (!m.has_experts()) {
    const int widths[kSites] = {m.d, m.q_dim, m.d, m.ffns[i].f};
    count(data_.layers[i].inputs[static_cast<int>(site)], x, n, ldx, widths[static_cast<int>(site)]);
  }
  if (site != Site::Down) return;
  CalibrationFfn& ffn = data_.ffns[i];
  Sums& sums = sums_[i];
  sums.tokens += static_cast<uint64_t>(n);
  const auto f = ffn.squares.size();
  pool_->run((m.ffns[i].f + kPiece - 1) / kPiece, [&](int piece, int) {
    const auto begin = static_cast<size_t>(piece) * kPiece, end = std::min(begin + kPiece, f);
    for (int t = 0; t < n; ++t) {
      const float* h = x + static_cast<size_t>(t) * ldx;
      const bool remembered = first_pos + t < data_.positions;
      double* history = remembered ? ffn.history.data() + static_cast<size_t>(first_pos + t) * f : nullptr;
      for (size_t k = begin; k < end; ++k) {
        const auto value = static_cast<double>(h[k]);
        sums.h[k] += value;
        sums.squares[k] += value * value;
        if (remembered) history[k] += value * value;
      }
    }
  });
}

void CalibrationCollector::observe_gates(int layer, std::span<const float> gates) {
  count(data_.layers[static_cast<size_t>(layer)].gates, gates.data(), 1, gates.size(), static_cast<int>(gates.size()));
}

// Of a closed sequence sum_t (h - m_n)^2 is sum h^2 - 2 m_n sum h + T m_n^2.
void CalibrationCollector::close(CalibrationFfn& ffn, Sums& sums) const {
  const auto n = static_cast<double>(++ffn.sequences), tokens = static_cast<double>(sums.tokens);
  ffn.tokens += sums.tokens;
  for (size_t k = 0; k < ffn.mean.size(); ++k) {
    double& mean = ffn.mean[k];
    mean = mean * (n - 1) / n + sums.h[k] / tokens / n;
    const double deviation = std::max(0.0, sums.squares[k] - 2 * mean * sums.h[k] + tokens * mean * mean);
    ffn.fluctuation[k] = n == 1 ? 0 : ffn.fluctuation[k] * (n - 2) / (n - 1) + deviation / n;
    ffn.squares[k] += sums.squares[k];
  }
  std::fill(sums.h.begin(), sums.h.end(), 0.0);
  std::fill(sums.squares.begin(), sums.squares.end(), 0.0);
  sums.tokens = 0;
}

void CalibrationCollector::partition() {
  ++data_.sequences;
  data_.tokens += static_cast<uint64_t>(length_);
  length_ = 0;
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (sums_[i].tokens > 0) close(data_.ffns[i], sums_[i]);
  }
}

Calibration CalibrationCollector::result(std::string source) const {
  Calibration calibration = data_;
  calibration.source = std::move(source);
  return calibration;
}

}  // namespace pop
