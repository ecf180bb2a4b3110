// random: K channels by lot, the floor that every importance has to beat. The K best of numbers drawn for each channel
// from (seed, FFN) or (seed, FFN, position): no generator state, so no neighbour can change a mask.
#include <utility>

#include "base/error.h"
#include "prune/methods/mask.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"
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
void draw(uint64_t seed, int ffn, int position, std::span<float> scores) {
  uint64_t key = mix(seed + kGolden);
  key = mix(key ^ (static_cast<uint64_t>(ffn) + kGolden));
  key = mix(key ^ (static_cast<uint64_t>(static_cast<int64_t>(position)) + kGolden));
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(mix(key + kGolden * i) >> 40) * 0x1p-24f;
  }
}

// --random-every token.
struct RandomSetup {
  PrunePlan plan;
  int widest = 0;
  std::vector<int> f, kept;  // [FFNs]
  uint64_t seed = 0;
};

class RandomState final : public PolicyState {
 public:
  explicit RandomState(const RandomSetup& setup)
      : setup_(&setup), masks_(setup.f.size()), top_(setup.widest), scores_(static_cast<size_t>(setup.widest)) {
    for (size_t i = 0; i < masks_.size(); ++i) masks_[i].list.resize(static_cast<size_t>(setup.f[i]) + 1);
  }

  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}

  Selection select(Site site, int ffn, std::span<const float>, int position) override {
    if (site != Site::GateUp && site != Site::Down) return {};
    ++selections;
    const auto i = static_cast<size_t>(ffn);
    Mask& mask = masks_[i];
    if (mask.position != position) {
      const std::span<float> scores = std::span(scores_).first(static_cast<size_t>(setup_->f[i]));
      draw(setup_->seed, ffn, position, scores);
      select_best(scores, setup_->kept[i], top_, mask.list.data());
      mask.position = position;
    }
    return {.kind = site == Site::GateUp ? Selection::Kind::Rows : Selection::Kind::Columns,
            .list = {mask.list.data(), setup_->kept[i]},
            .zero_rest = site == Site::Down};
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<RandomState>(*this); }

 private:
  struct Mask {
    int position = -1;
    std::vector<int32_t> list;  // [f + 1]
  };

  const RandomSetup* setup_;
  std::vector<Mask> masks_;  // [FFNs]
  TopK top_;
  std::vector<float> scores_;
};

class RandomPolicy final : public SetupPolicy<RandomState, RandomSetup> {
 public:
  using SetupPolicy::SetupPolicy;
  bool one_token_at_a_time() const override { return true; }
};

}  // namespace

std::unique_ptr<Policy> create_random(const PruneOptions& options, const PolicyContext& context) {
  PrunePlan plan = mask_plan(options, context);
  if (options.random_every == RandomEvery::Token) {
    if (options.prefill_pruned) {
      fail("--prefill pruned: expected one mask per sequence, found --random-every token");
    }
    RandomSetup setup{.plan = std::move(plan), .widest = context.f, .f = {}, .kept = {}, .seed = options.seed};
    for (const FfnWeights* ffn : context.ffns) {
      setup.f.push_back(ffn->f());
      setup.kept.push_back(kept_channels(ffn->f(), setup.plan.ffn_sparsity));
    }
    return std::make_unique<RandomPolicy>(std::move(setup));
  }
  std::vector<std::vector<float>> scores;
  for (const FfnWeights* ffn : context.ffns) {
    const int number = static_cast<int>(scores.size());
    draw(options.seed, number, -1, scores.emplace_back(static_cast<size_t>(ffn->f())));
  }
  return best_channels(std::move(plan), context, std::move(scores));
}

}  // namespace pop
