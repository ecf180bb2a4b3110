// wina: WINA (arXiv 2505.19427). Input columns of every matrix by |x_k| * ||W[:,k]||_2, the k best of each token; the score
// is that of pop+, the count is fixed. The paper scores each matrix for itself; here matrices that share their input share
// the mask, as in pop+, with the norm of their columns stacked.
#include <algorithm>
#include <utility>

#include "prune/budget.h"
#include "prune/importance.h"
#include "prune/methods/match.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"
#include "prune/partition.h"
#include "prune/select.h"

namespace pop {
namespace {

struct WinaSetup {
  PolicyContext context;
  PrunePlan plan;
  SiteNorms norms;
  size_t widest() const { return static_cast<size_t>(std::max({context.d, context.q_dim, context.f})); }
};

class WinaState final : public PolicyState {
 public:
  explicit WinaState(const WinaSetup& setup)
      : setup_(&setup), top_(static_cast<int>(setup.widest())), scores_(setup.widest()) {
    for (std::vector<int32_t>& list : lists_) list.resize(setup.widest() + 1);
  }

  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}

  Selection select(Site site, int place, std::span<const float> x, int) override {
    const auto s = static_cast<size_t>(site);
    const std::vector<float>& norms = setup_->norms[s][static_cast<size_t>(place)];
    const std::span<float> scores = std::span(scores_).first(norms.size());
    const int width = static_cast<int>(norms.size());
    setup_->context.kernels->channel_scores(x.data(), norms.data(), {nullptr, width}, scores.data());
    const int kept = select_best(scores, kept_channels(width, setup_->plan.level), top_, lists_[s].data());
    ++selections;
    return {.kind = Selection::Kind::Columns, .list = {lists_[s].data(), kept}, .zero_rest = false};
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<WinaState>(*this); }

 private:
  const WinaSetup* setup_;
  std::array<std::vector<int32_t>, kSites> lists_;  // [widest + 1], of the layer at hand
  TopK top_;                                        // scratch from here on
  std::vector<float> scores_;
};

using WinaPolicy = SetupPolicy<WinaState, WinaSetup>;

}  // namespace

std::unique_ptr<Policy> create_wina(const PruneOptions& options, const PolicyContext& context) {
  WinaSetup setup;
  setup.context = context;
  setup.norms = site_column_norms(context);
  setup.plan.method = options.method;
  setup.plan.ratio = options.ratio.value_or(kDefaultRatio);
  setup.plan.level = options.match.empty() ? column_level(options, count_weights(context.layers))
                                           : matched_level(options, context, PlusRule::Prompt);
  setup.plan.levels.fill(setup.plan.level);
  return std::make_unique<WinaPolicy>(std::move(setup));
}

}  // namespace pop
