#include "prune/methods/mask.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/calibration.h"
#include "prune/methods/match.h"
#include "prune/methods/setup_policy.h"

namespace pop {
namespace {

// Packing asks this of every layer: one that keeps everything still has its list if another prunes.
bool keeps_everything(std::span<const Partition> masks) {
  return std::all_of(masks.begin(), masks.end(), [](const Partition& mask) { return mask.pruned.empty(); });
}

struct StaticSetup : StaticMask {
  explicit StaticSetup(StaticMask mask) : StaticMask(std::move(mask)), whole(keeps_everything(masks)) {}
  bool whole;
};

class StaticMaskState final : public PolicyState {
 public:
  explicit StaticMaskState(const StaticSetup& setup) : setup_(&setup) {}

  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}
  Selection select_prefill(Site site, int layer) override {
    return setup_->plan.prefill == "pruned" ? mask_selection(site, mask(layer)) : Selection{};
  }
  Selection select(Site site, int layer, std::span<const float>, int) override {
    selections += of_ffn(site);
    return mask_selection(site, mask(layer));
  }
  Selection reachable(Site site, int layer) const override {
    return setup_->whole ? Selection{} : mask_selection(site, mask(layer));
  }
  std::span<const float> ffn_bias(int layer) const override {
    return setup_->bias.empty() ? std::span<const float>() : setup_->bias[static_cast<size_t>(layer)];
  }
  const Matrix* repaired_down(int ffn) const override {
    if (setup_->down.empty()) return nullptr;
    const Matrix& down = setup_->down[static_cast<size_t>(ffn)];
    return down.data != nullptr ? &down : nullptr;
  }
  const Partition* ffn_partition(int layer) const override { return &mask(layer); }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<StaticMaskState>(*this); }

 private:
  const Partition& mask(int layer) const { return setup_->masks[static_cast<size_t>(layer)]; }
  const StaticSetup* setup_;
};

using StaticMaskPolicy = SetupPolicy<StaticMaskState, StaticSetup>;

}  // namespace

PrunePlan mask_plan(const PruneOptions& options, const PolicyContext& context) {
  const BlockWeights weights = count_weights(context.layers);
  const double asked = ffn_sparsity(options, weights);
  PrunePlan plan;
  plan.method = options.method;
  plan.ratio = ratio_of_sparsity(options, weights, asked);
  plan.ffn_sparsity = options.match.empty() ? asked : matched_sparsity(options, context);
  plan.prefill = options.prefill_pruned ? "pruned" : "dense";
  if (options.calibration) plan.calibration = options.calibration->description();
  return plan;
}

Selection mask_selection(Site site, const Partition& mask) {
  if (!of_ffn(site)) return {};
  return {.kind = site == Site::GateUp ? Selection::Kind::Rows : Selection::Kind::Columns,
          .list = {mask.retained.data(), static_cast<int>(mask.retained.size())},
          .zero_rest = site == Site::Down,
          .lasting = true};
}

void fill_masks(std::span<const PartitionSizes> sizes, ThreadPool& pool, std::vector<Partition>& masks) {
  std::vector<std::vector<uint64_t>> ranks(static_cast<size_t>(pool.threads()));
  pool.run(static_cast<int>(masks.size()), [&](int layer, int thread) {
    const PartitionSizes& size = sizes[static_cast<size_t>(layer)];
    std::vector<uint64_t>& scratch = ranks[static_cast<size_t>(thread)];
    scratch.resize(static_cast<size_t>(size.f));
    partition_channels(size, scratch, masks[static_cast<size_t>(layer)]);
  });
}

std::unique_ptr<Policy> static_mask(StaticMask mask) {
  return std::make_unique<StaticMaskPolicy>(StaticSetup(std::move(mask)));
}

std::unique_ptr<Policy> best_channels(PrunePlan plan, const PolicyContext& context,
                                      std::vector<std::vector<float>> scores) {
  std::vector<PartitionSizes> sizes;
  StaticMask mask{.plan = std::move(plan), .masks = {}, .bias = {}};
  for (std::vector<float>& of_ffn : scores) {
    sizes.push_back(partition_sizes(static_cast<int>(of_ffn.size()), mask.plan.ffn_sparsity, 0));
    mask.masks.push_back(make_partition(sizes.back()));
    mask.masks.back().scores = std::move(of_ffn);
  }
  fill_masks(sizes, *context.pool, mask.masks);
  return static_mask(std::move(mask));
}

PromptMaskState::PromptMaskState(const PolicyContext& context, std::vector<PartitionSizes> sizes)
    : context_(context), tokens_(sizes.size()), sizes_(std::move(sizes)) {
  for (const PartitionSizes& size : sizes_) masks_.push_back(make_partition(size));
}

void PromptMaskState::partition() {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] == 0) fail("partition: layer {} has observed no prompt token", i);
  }
  context_.pool->run(static_cast<int>(masks_.size()),
                     [&](int layer, int) { score(layer, masks_[static_cast<size_t>(layer)].scores); });
  fill_masks(sizes_, *context_.pool, masks_);
  partitioned_ = true;
}

Selection PromptMaskState::select(Site site, int layer, std::span<const float>, int) {
  if (!partitioned_) fail("select: expected partition() before the first decoded token");
  selections += of_ffn(site);
  return mask_selection(site, masks_[static_cast<size_t>(layer)]);
}

Selection PromptMaskState::reachable(Site site, int layer) const {
  if (!partitioned_ || keeps_everything(masks_)) return {};
  return mask_selection(site, masks_[static_cast<size_t>(layer)]);
}

const Partition* PromptMaskState::ffn_partition(int layer) const {
  return partitioned_ ? &masks_[static_cast<size_t>(layer)] : nullptr;
}

}  // namespace pop
