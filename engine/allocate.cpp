// How far each site of a block may go: the greedy search of TEAL's code (arXiv 2408.14690). Block by block, on the dense model's
// inputs, the block's level is raised in steps; each step goes to the site whose raise changes the block's output least, by
// the squared difference over the last quarter of each sequence.
#include <algorithm>
#include <limits>

#include "engine/impl.h"
#include "prune/allocation.h"

namespace pop {
namespace {

// Leaves out what lies below a threshold per site.
class Trial final : public PolicyState {
 public:
  Trial(const KernelTable& kernels, const std::array<float, kSites>& tau, size_t widest)
      : kernels_(&kernels), tau_(&tau), ones_(widest, 1.f), list_(widest + 16) {}
  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}
  Selection select(Site site, int, std::span<const float> x, int) override {
    const int kept =
        kernels_->select_scores(x.data(), ones_.data(), int(x.size()), (*tau_)[size_t(site)], list_.data());
    return {.kind = Selection::Kind::Columns, .list = {list_.data(), kept}};
  }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<Trial>(*this); }

 private:
  const KernelTable* kernels_;
  const std::array<float, kSites>* tau_;
  std::vector<float> ones_;
  std::vector<int32_t> list_;
};

// The sequences of the search, side by side in every pass.
class Search {
 public:
  Search(Engine::Impl& engine, std::span<const std::vector<int32_t>> sequences, RunContext& run)
      : engine_(engine), run_(run), sequences_(sequences.size()) {
    const ModelSpec& s = engine.model->spec;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& sequence = sequences_[i];
      sequence.kv = KvCache(s, engine.kv, int(sequences[i].size()));
      trials_.push_back(std::make_shared<Trial>(engine.kernels, tau_, size_t(std::max({s.d, s.q_dim(), s.f}))));
      for (size_t t = 0; t < sequences[i].size(); ++t) {
        rows_.push_back({&sequence, sequences[i][t], false});
        judged_.push_back(4 * (t + 1) > 3 * sequences[i].size());
      }
    }
    x_.resize(rows_.size() * size_t(s.d));
    for (size_t r = 0; r < rows_.size(); ++r) engine.model->embed(rows_[r].token, x_.data() + r * size_t(s.d));
    engine.model->release_embedding();
    dense_ = trial_ = x_;
  }

  // The path of a layer; layers in order. Throws PassInterrupted.
  std::vector<uint8_t> layer(int layer, const CalibrationLayer& statistics) {
    run_block(layer, nullptr, dense_);
    std::vector<uint8_t> path;
    const SiteLevels shares = site_shares(std::span(engine_.model->layers).subspan(size_t(layer), 1));
    while ((double(path.size()) + 1) * kAllocationStep <= kAllocatedLevel + 1e-9) {
      double least = std::numeric_limits<double>::infinity();
      uint8_t best = 0;
      path.push_back(0);
      for (uint8_t site = 0; site < kSites; ++site) {
        path.back() = site;
        const SiteLevels levels = site_levels(path, shares, double(path.size()) * kAllocationStep);
        if (*std::max_element(levels.begin(), levels.end()) > kMaxLevel - 1e-9) continue;
        for (size_t s = 0; s < kSites; ++s) tau_[s] = statistics.inputs[s].quantile(levels[s]);
        const double error = error_of(layer);
        if (error < least) least = error, best = site;
      }
      path.back() = best;
    }
    std::swap(x_, dense_);
    return path;
  }

 private:
  void run_block(int layer, const std::shared_ptr<Trial>* trials, std::vector<float>& out) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      sequences_[i].policy = nullptr;
      if (trials != nullptr) sequences_[i].policy = trials[i];
    }
    forward_block(*engine_.model, run_, engine_.scratch(int(rows_.size())), Phase::Decode, rows_, layer, x_, out);
  }
  double error_of(int layer) {
    run_block(layer, trials_.data(), trial_);
    const auto d = size_t(engine_.model->spec.d);
    double error = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (size_t i = r * d; judged_[r] && i < (r + 1) * d; ++i) {
        const double difference = double(trial_[i]) - double(dense_[i]);
        error += difference * difference;
      }
    }
    return error;
  }

  Engine::Impl& engine_;
  RunContext& run_;
  std::vector<Sequence> sequences_;
  std::array<float, kSites> tau_ = {};
  std::vector<std::shared_ptr<Trial>> trials_;  // one for each sequence: its lists live until it is asked again
  std::vector<ForwardRow> rows_;
  std::vector<bool> judged_;              // [rows]
  std::vector<float> x_, dense_, trial_;  // [rows, d]: the block's input, its output, its output with columns left out
};

}  // namespace

void Engine::Impl::allocate(std::span<const std::vector<int32_t>> sequences, const RunHooks& hooks,
                            Calibration& calibration) {
  RunContext run = run_context(&hooks.interrupted);
  Search search(*this, sequences, run);
  for (int layer = 0; layer < model->spec.layers; ++layer) {
    CalibrationLayer& statistics = calibration.layers[size_t(layer)];
    statistics.allocation = search.layer(layer, statistics);
    if (hooks.on_progress) hooks.on_progress(layer + 1, model->spec.layers);
  }
}

}  // namespace pop
