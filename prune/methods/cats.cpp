// cats: CATS (arXiv 2404.08763). The gate of every channel is computed; of a token, a channel is used if and only if
// |act(gate)| >= t, and only then its up row and its column of W_down are read. t is per layer, the quantile of |act(gate)|
// over a calibration text.
#include <utility>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/calibration.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"

namespace pop {
namespace {

struct CatsSetup {
  PolicyContext context;
  PrunePlan plan;
  std::vector<float> tau;         // [layers]
  std::vector<uint64_t> counted;  // [layers]
  std::vector<float> ones;        // [f], the factor that other methods have in their scores
};

class CatsState final : public PolicyState {
 public:
  explicit CatsState(const CatsSetup& setup) : setup_(&setup), lists_(setup.tau.size()) {
    // select_scores writes beyond its count
    for (List& list : lists_) list.channels.resize(static_cast<size_t>(setup.context.f) + 16);
  }

  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}
  bool gate_first() const override { return true; }

  Selection select(Site site, int layer, std::span<const float> x, int) override {
    if (site != Site::GateUp && site != Site::Down) return {};
    const auto i = static_cast<size_t>(layer);
    List& list = lists_[i];
    if (site == Site::GateUp)  // x: the activated gates
      list.count = setup_->context.kernels->select_scores(x.data(), setup_->ones.data(), setup_->context.f,
                                                          setup_->tau[i], list.channels.data());
    ++selections;
    return {.kind = site == Site::GateUp ? Selection::Kind::Rows : Selection::Kind::Columns,
            .list = {list.channels.data(), list.count},
            .zero_rest = site == Site::Down};
  }

  std::optional<SiteThreshold> threshold(Site site, int layer) const override {
    if (site != Site::GateUp) return std::nullopt;
    const auto i = static_cast<size_t>(layer);
    return SiteThreshold{.level = setup_->plan.level, .tau = setup_->tau[i], .counted = setup_->counted[i]};
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<CatsState>(*this); }

 private:
  struct List {
    std::vector<int32_t> channels;  // [f + 16]
    int count = 0;                  // of the token at hand
  };
  const CatsSetup* setup_;
  std::vector<List> lists_;  // [layers]
};

class CatsPolicy final : public SetupPolicy<CatsState, CatsSetup> {
 public:
  using SetupPolicy::SetupPolicy;
  bool one_token_at_a_time() const override { return true; }
};

}  // namespace

std::unique_ptr<Policy> create_cats(const PruneOptions& options, const PolicyContext& context) {
  CatsSetup setup;
  setup.context = context;
  const BlockWeights weights = count_weights(context.layers);
  const double p = ffn_sparsity(options, weights);
  // The gate is read whole: a share s of channels left out leaves out 2/3 s of the FFN's weights.
  setup.plan.level = 1.5 * p;
  if (setup.plan.level > 1 + 1e-12)
    fail("--ratio: method cats reads the gate whole: expected an FFN sparsity of at most 0.6667, found {:.4f}", p);
  setup.plan.levels = {0, 0, setup.plan.level / 2, setup.plan.level};  // of gate_up only up's half
  setup.plan.method = options.method;
  setup.plan.ratio = ratio_of_sparsity(options, weights, p);
  setup.plan.ffn_sparsity = p;
  setup.plan.calibration = options.calibration->description();
  setup.ones.assign(static_cast<size_t>(context.f), 1.f);
  for (const CalibrationLayer& layer : options.calibration->layers) {
    setup.tau.push_back(layer.gates.quantile(setup.plan.level));
    setup.counted.push_back(layer.gates.total());
  }
  return std::make_unique<CatsPolicy>(std::move(setup));
}

}  // namespace pop
