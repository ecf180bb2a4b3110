// teal: TEAL (arXiv 2408.14690). Input column k of a site is left out if and only if |x_k| < t. The thresholds are quantiles of
// |x| over a calibration text; how far each site of a block goes is decided by the greedy search of its code, which
// `pop calibrate --allocate` runs (engine/allocate.cpp): without it all sites have the same level. Matrices that share their
// input share the threshold.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "prune/allocation.h"
#include "prune/budget.h"
#include "prune/calibration.h"
#include "prune/methods/match.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"

namespace pop {
namespace {

struct TealSetup {
  PolicyContext context;
  PrunePlan plan;
  std::vector<double> levels;  // [layers * kSites]
  std::vector<float> tau;      // [layers * kSites]
  std::vector<float> ones;     // [widest], the factor that other methods have in their scores
  std::vector<uint64_t> counted;
};

class TealState final : public PolicyState {
 public:
  explicit TealState(const TealSetup& setup) : setup_(&setup) {
    for (size_t i = 0; i < setup.tau.size(); ++i) {
      lists_.emplace_back(static_cast<size_t>(setup.context.width(Site(i % kSites))) +
                          16);  // select_scores writes beyond its count
    }
  }

  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}

  Selection select(Site site, int layer, std::span<const float> x, int) override {
    const size_t i = index(site, layer);
    const int kept = setup_->context.kernels->select_scores(x.data(), setup_->ones.data(), setup_->context.width(site),
                                                            setup_->tau[i], lists_[i].data());
    ++selections;
    return {.kind = Selection::Kind::Columns, .list = {lists_[i].data(), kept}, .zero_rest = false};
  }

  std::optional<SiteThreshold> threshold(Site site, int layer) const override {
    const size_t i = index(site, layer);
    return SiteThreshold{.level = setup_->levels[i], .tau = setup_->tau[i], .counted = setup_->counted[i]};
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<TealState>(*this); }

 private:
  static size_t index(Site site, int layer) { return static_cast<size_t>(layer) * kSites + static_cast<size_t>(site); }

  const TealSetup* setup_;
  std::vector<std::vector<int32_t>> lists_;  // [layers * kSites]
};

using TealPolicy = SetupPolicy<TealState, TealSetup>;

}  // namespace

std::unique_ptr<Policy> create_teal(const PruneOptions& options, const PolicyContext& context) {
  TealSetup setup{.context = context, .plan = {}, .levels = {}, .tau = {}, .ones = {}, .counted = {}};
  setup.plan.method = options.method;
  setup.plan.ratio = options.ratio.value_or(kDefaultRatio);
  setup.plan.level = options.match.empty() ? column_level(options, count_weights(context.layers))
                                           : matched_level(options, context, PlusRule::Prompt);
  setup.plan.levels.fill(setup.plan.level);  // of all layers together; each has its own
  setup.plan.calibration = options.calibration->description();
  setup.ones.assign(static_cast<size_t>(std::max({context.d, context.q_dim, context.f})), 1.f);
  for (size_t i = 0; i < context.layers.size(); ++i) {
    const CalibrationLayer& layer = options.calibration->layers[i];
    const SiteLevels levels =
        site_levels(layer.allocation, site_shares(context.layers.subspan(i, 1)), setup.plan.level);
    for (int s = 0; s < kSites; ++s) {
      setup.levels.push_back(levels[static_cast<size_t>(s)]);
      setup.tau.push_back(layer.inputs[s].quantile(setup.levels.back()));
      setup.counted.push_back(layer.inputs[s].total());
    }
  }
  return std::make_unique<TealPolicy>(std::move(setup));
}

}  // namespace pop
