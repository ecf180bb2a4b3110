// For the tests of prune/: weights of a model that nobody trained, and inputs of its sites.
#pragma once
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "kernels/select.h"
#include "prune/calibration.h"
#include "prune/partition.h"
#include "prune/policy.h"
#include "tensor/layout.h"

namespace pop {

inline std::vector<float> normal_floats(std::mt19937& random, size_t n, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// A float32 matrix of the given layout. values : [rows, cols], in the matrix's own order of rows.
inline Matrix make_matrix(std::deque<AlignedBuffer>& memory, Layout layout, int rows, int cols, int unit,
                          const std::vector<float>& values) {
  Matrix w;
  w.layout = layout;
  w.rows = rows;
  w.cols = cols;
  w.unit = unit;
  AlignedBuffer& bytes = memory.emplace_back(matrix_bytes(w));
  for (int r = 0; r < rows; ++r) {
    const float* row = values.data() + static_cast<size_t>(r) * static_cast<size_t>(cols);
    write_row(w, r, reinterpret_cast<const uint8_t*>(row), bytes.data());
  }
  w.data = bytes.data();
  return w;
}

class ToyModel {
 public:
  ToyModel(int layers, int d, int f, int q_dim, int kv_dim, uint32_t seed, Layout layout = Layout::Rows)
      : d_(d), f_(f), q_dim_(q_dim), kv_dim_(kv_dim) {
    std::mt19937 random(seed);
    const auto matrix = [&](Layout where, int rows, int cols, int unit) {
      return make_matrix(memory_, where, rows, cols, unit,
                         normal_floats(random, static_cast<size_t>(rows) * static_cast<size_t>(cols)));
    };
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(
          {.q = matrix(layout, q_dim, d, 1),
           .k = matrix(layout, kv_dim, d, 1),
           .v = matrix(layout, kv_dim, d, 1),
           .o = matrix(layout, d, q_dim, 1),
           .ffns = {{.gate_up = matrix(layout, 2 * f, d, 2), .down = matrix(Layout::Columns, d, f, 1), .layer = i}}});
    }
  }

  PolicyContext context(ThreadPool& pool) const {
    return {.layers = layers_,
            .ffns = ffns_of(layers_),
            .d = d_,
            .f = f_,
            .q_dim = q_dim_,
            .kv_dim = kv_dim_,
            .kernels = &select_kernels("scalar"),
            .pool = &pool};
  }
  CalibrationModel calibration_model() const {
    CalibrationModel model{.sha256 = std::string(64, '0'), .layers = layers(), .d = d_, .q_dim = q_dim_, .ffns = {}};
    for (int i = 0; i < layers(); ++i) model.ffns.push_back({.layer = i, .f = f_});
    return model;
  }
  int layers() const { return static_cast<int>(layers_.size()); }
  int width(Site site) const {
    const int widths[kSites] = {d_, q_dim_, d_, f_};
    return widths[static_cast<int>(site)];
  }

 private:
  int d_, f_, q_dim_, kv_dim_;
  std::deque<AlignedBuffer> memory_;
  std::vector<LayerWeights> layers_;
};

// What `tokens` tokens bring to every site of every layer. Channels differ in size, as in a real model.
class SiteInputs {
 public:
  SiteInputs(const ToyModel& model, int tokens, uint32_t seed) : model_(&model), tokens_(tokens) {
    std::mt19937 random(seed);
    for (int i = 0; i < model.layers() * kSites; ++i) {
      const auto width = static_cast<size_t>(model.width(Site(i % kSites)));
      const std::vector<float> size = normal_floats(random, width);
      std::vector<float> x = normal_floats(random, static_cast<size_t>(tokens) * width);
      for (size_t j = 0; j < x.size(); ++j) x[j] *= std::exp(size[j % width]);
      values_.push_back(std::move(x));
    }
  }

  int tokens() const { return tokens_; }
  std::span<float> at(Site site, int layer, int token) {
    const auto width = static_cast<size_t>(model_->width(site));
    return std::span(values_[static_cast<size_t>(layer * kSites + static_cast<int>(site))])
        .subspan(static_cast<size_t>(token) * width, width);
  }

  // Tokens [begin, end) as prompt positions begin .. end-1, in chunks, in the order a forward pass has.
  void prefill(PolicyState& state, int begin, int end, int chunk) {
    for (int t = begin; t < end; t += chunk) {
      for (int layer = 0; layer < model_->layers(); ++layer) {
        for (int s = 0; s < kSites; ++s) {
          const std::span<float> x = at(Site(s), layer, t);
          const int n = std::min(chunk, end - t);
          if (Site(s) == Site::GateUp) state.observe_residual(layer, x.data(), n, x.size(), t);
          state.observe(Site(s), layer, x.data(), n, x.size(), t);
          for (int i = t; Site(s) == Site::GateUp && state.gate_first() && i < t + n; ++i) {
            state.observe_gates(layer, at(Site::Down, layer, i));
          }
        }
      }
    }
  }

 private:
  const ToyModel* model_;
  int tokens_;
  std::vector<std::vector<float>> values_;  // [layers * kSites], each [tokens, width]
};

// Statistics of a text that nobody wrote.
inline std::shared_ptr<const Calibration> toy_calibration(const ToyModel& model, uint32_t seed, int sequences = 3,
                                                          int positions = 8) {
  ThreadPool pool(1);
  CalibrationCollector collector(model.calibration_model(), positions, pool);
  for (int n = 0; n < sequences; ++n) {
    SiteInputs inputs(model, 12, seed + static_cast<uint32_t>(n));
    inputs.prefill(collector, 0, inputs.tokens(), 5);
    collector.partition();
  }
  return std::make_shared<const Calibration>(collector.result("toy"));
}

// The same with a model for method tyr: a third of the channels gone, the last ones; the others halved.
inline std::shared_ptr<const Calibration> toy_repaired(const ToyModel& model, uint32_t seed) {
  Calibration calibration = *toy_calibration(model, seed);
  ThreadPool pool(1);
  RepairedModel repaired{.ffn_sparsity = 0, .search = "none", .ffns = {}};
  for (const FfnWeights* ffn : model.context(pool).ffns) {
    RepairedFfn& of = repaired.ffns.emplace_back();
    for (int k = 0; k < kept_channels(ffn->f(), 1.0 / 3); ++k) of.kept.push_back(k);
    repaired.ffn_sparsity = 1 - static_cast<double>(of.kept.size()) / ffn->f();
    std::vector<float> row(static_cast<size_t>(ffn->f()));
    for (int j = 0; j < ffn->down.rows && static_cast<int>(of.kept.size()) < ffn->f(); ++j) {
      read_row(ffn->down, j, row.data());
      for (const int32_t k : of.kept) of.down.push_back(f32_to_bf16(row[static_cast<size_t>(k)] / 2));
    }
  }
  calibration.repaired = std::move(repaired);
  return std::make_shared<const Calibration>(std::move(calibration));
}

}  // namespace pop
