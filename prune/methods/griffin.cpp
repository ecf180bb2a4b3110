// griffin: GRIFFIN (arXiv 2404.01365). The FFN channels that were strongest over the prompt, kept for the whole answer:
// each token's h is divided by its 2-norm, so that no token counts more than another, and a channel's score is the 2-norm
// of what it has left over the tokens, s_i = sqrt(sum_t h[t,i]^2 / ||h[t]||^2). W_down is not looked at.
#include <algorithm>
#include <cmath>
#include <utility>

#include "prune/methods/mask.h"
#include "prune/methods/methods.h"

namespace pop {
namespace {

constexpr int kPiece = 256;  // channels per piece of parallel work

class GriffinState final : public PromptMaskState {
 public:
  GriffinState(const PolicyContext& context, const std::vector<PartitionSizes>& sizes)
      : PromptMaskState(context, sizes), sums_(sizes.size(), std::vector<double>(static_cast<size_t>(context.f))) {}

  void observe(Site site, int layer, const float* x, int n, size_t ldx, int) override {
    if (site != Site::Down) return;
    const int f = context_.f;
    shares_.resize(static_cast<size_t>(n));
    context_.pool->run(n, [&](int t, int) {  // 1 / ||h[t]||^2; a token that has nothing gives nothing
      const float* h = x + static_cast<size_t>(t) * ldx;
      double sum = 0;
      for (int i = 0; i < f; ++i) sum += static_cast<double>(h[i]) * static_cast<double>(h[i]);
      shares_[static_cast<size_t>(t)] = sum == 0 ? 0 : 1 / sum;
    });
    double* const sums = sums_[static_cast<size_t>(layer)].data();
    context_.pool->run((f + kPiece - 1) / kPiece, [&](int piece, int) {
      const int begin = piece * kPiece, end = std::min(begin + kPiece, f);
      for (int t = 0; t < n; ++t) {
        const float* h = x + static_cast<size_t>(t) * ldx;
        const double share = shares_[static_cast<size_t>(t)];
        for (int i = begin; i < end; ++i) sums[i] += static_cast<double>(h[i]) * static_cast<double>(h[i]) * share;
      }
    });
    tokens_[static_cast<size_t>(layer)] += static_cast<uint64_t>(n);
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<GriffinState>(*this); }

 private:
  void score(int layer, std::span<float> scores) const override {
    const std::vector<double>& sums = sums_[static_cast<size_t>(layer)];
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(std::sqrt(sums[i]));
  }

  std::vector<std::vector<double>> sums_;  // [layers][f]
  std::vector<double> shares_;             // scratch: [tokens of a chunk]
};

class GriffinPolicy final : public Policy {
 public:
  GriffinPolicy(PrunePlan plan, const PolicyContext& context)
      : plan_(std::move(plan)),
        context_(context),
        sizes_(context.layers.size(), partition_sizes(context.f, plan_.ffn_sparsity, 0)) {}
  const PrunePlan& plan() const override { return plan_; }
  std::unique_ptr<PolicyState> begin() const override { return std::make_unique<GriffinState>(context_, sizes_); }

 private:
  PrunePlan plan_;
  PolicyContext context_;
  std::vector<PartitionSizes> sizes_;
};

}  // namespace

std::unique_ptr<Policy> create_griffin(const PruneOptions& options, const PolicyContext& context) {
  return std::make_unique<GriffinPolicy>(mask_plan(options, context), context);
}

}  // namespace pop
