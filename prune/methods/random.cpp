// random: K channels by lot, the floor that every importance has to beat. The K best of numbers drawn for each channel
// from (seed, layer) or (seed, layer, position): no generator state, so no neighbour can change a mask.
#include <utility>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/methods/methods.h"
#include "prune/partition.h"
#include "prune/select.h"

namespace pop {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

uint64_t mix(uint64_t z) {  // finaliser of SplitMix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Uniform in [0, 1), 24 bits. position -1: the mask of a whole sequence.
void draw(uint64_t seed, int layer, int position, std::span<float> scores) {
  uint64_t key = mix(seed + kGolden);
  key = mix(key ^ (static_cast<uint64_t>(layer) + kGolden));
  key = mix(key ^ (static_cast<uint64_t>(static_cast<int64_t>(position)) + kGolden));
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(mix(key + kGolden * i) >> 40) * 0x1p-24f;
  }
}

struct RandomSetup {
  PrunePlan plan;
  PartitionSizes sizes;
  uint64_t seed = 0;
  bool per_token = false, prefill_pruned = false;
  int layers = 0;
  std::vector<Partition> partitions;  // [layers] of every sequence; empty if per token
};

class RandomState final : public PolicyState {
 public:
  explicit RandomState(const RandomSetup& setup)
      : setup_(&setup),
        top_(setup.per_token ? setup.sizes.f : 0),
        scores_(setup.per_token ? static_cast<size_t>(setup.sizes.f) : 0) {
    if (setup.per_token) {
      masks_.resize(static_cast<size_t>(setup.layers));
      for (Mask& mask : masks_) mask.list.resize(static_cast<size_t>(setup.sizes.kept) + 1);
    }
  }

  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}

  Selection select_prefill(Site site, int layer) override {
    if (!setup_->prefill_pruned || (site != Site::GateUp && site != Site::Down)) return {};
    return selection(site, sequence_mask(layer));
  }

  Selection select(Site site, int layer, std::span<const float>, int position) override {
    if (site != Site::GateUp && site != Site::Down) return {};
    ++selections;
    return selection(site, setup_->per_token ? token_mask(layer, position) : sequence_mask(layer));
  }

  Selection reachable(Site site, int layer) const override {
    if (setup_->per_token || setup_->sizes.kept == setup_->sizes.f) return {};
    if (site != Site::GateUp && site != Site::Down) return {};
    return selection(site, sequence_mask(layer));
  }

  const Partition* ffn_partition(int layer) const override {
    return setup_->per_token ? nullptr : &setup_->partitions[static_cast<size_t>(layer)];
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<RandomState>(*this); }

 private:
  struct Mask {
    int position = -1;
    std::vector<int32_t> list;  // [kept + 1]
  };

  Selection selection(Site site, IndexList list) const {
    return {.kind = site == Site::GateUp ? Selection::Kind::Rows : Selection::Kind::Columns,
            .list = list,
            .zero_rest = site == Site::Down,
            .lasting = !setup_->per_token};
  }

  IndexList sequence_mask(int layer) const {
    return {setup_->partitions[static_cast<size_t>(layer)].retained.data(), setup_->sizes.kept};
  }

  IndexList token_mask(int layer, int position) {
    Mask& mask = masks_[static_cast<size_t>(layer)];
    if (mask.position != position) {
      draw(setup_->seed, layer, position, scores_);
      const uint8_t* keep = top_.mark(scores_, setup_->sizes.kept);
      size_t count = 0;
      for (int32_t i = 0; i < setup_->sizes.f; ++i) {
        mask.list[count] = i;
        count += keep[i];
      }
      mask.position = position;
    }
    return {mask.list.data(), setup_->sizes.kept};
  }

  const RandomSetup* setup_;
  std::vector<Mask> masks_;  // [layers] if per token
  TopK top_;
  std::vector<float> scores_;
};

class RandomPolicy final : public Policy {
 public:
  explicit RandomPolicy(RandomSetup setup) : setup_(std::move(setup)) {}
  const PrunePlan& plan() const override { return setup_.plan; }
  bool one_token_at_a_time() const override { return setup_.per_token; }
  std::unique_ptr<PolicyState> begin() const override { return std::make_unique<RandomState>(setup_); }

 private:
  RandomSetup setup_;
};

}  // namespace

std::unique_ptr<Policy> create_random(const PruneOptions& options, const PolicyContext& context) {
  const BlockWeights weights = count_weights(context.layers);
  const double p = ffn_sparsity(options, weights);
  RandomSetup setup;
  setup.sizes = partition_sizes(context.f, p, 0);
  setup.seed = options.seed;
  setup.per_token = options.random_every == RandomEvery::Token;
  setup.prefill_pruned = options.prefill_pruned;
  setup.layers = static_cast<int>(context.layers.size());
  if (setup.per_token && setup.prefill_pruned) {
    fail("--prefill pruned: expected one mask per sequence, found --random-every token");
  }
  setup.plan.method = options.method;
  setup.plan.ffn_sparsity = p;
  setup.plan.ratio =
      options.ffn_sparsity ? p * weights.ffn / ratio_base(options, weights) : options.ratio.value_or(kDefaultRatio);
  setup.plan.prefill = options.prefill_pruned ? "pruned" : "dense";

  std::vector<uint64_t> ranks(static_cast<size_t>(context.f));
  for (int layer = 0; layer < setup.layers && !setup.per_token; ++layer) {
    Partition& partition = setup.partitions.emplace_back(make_partition(setup.sizes));
    draw(setup.seed, layer, -1, partition.scores);
    partition_channels(setup.sizes, ranks, partition);
  }
  return std::make_unique<RandomPolicy>(std::move(setup));
}

}  // namespace pop
