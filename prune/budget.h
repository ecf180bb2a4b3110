// From the ratio a user types to what a method may keep (pop-method section 2).
#pragma once
#include <array>
#include <span>

#include "prune/policy.h"

namespace pop {

constexpr double kDefaultRatio = 0.2;
constexpr double kDefaultGamma = 0.1;
constexpr int kDefaultMinTokens = 8;
constexpr double kMaxLevel = 0.95;  // pop+: more would leave single columns

double elements(const Matrix& w);  // rows * cols

// Weights (elements) of all blocks: attention and FFN matrices; no embeddings, head, norms, routers.
struct BlockWeights {
  double attention = 0, ffn = 0;
  double active_ffn = 0;  // of the experts that a token uses; without experts all of ffn
  std::array<double, kFfnKinds> kinds = {}, active_kinds = {};  // both by FfnKind
  double all() const { return attention + ffn; }
  double active() const { return attention + active_ffn; }
};
BlockWeights count_weights(std::span<const LayerWeights> layers);

// The weights that options.ratio is a share of. Throws Error if they are unknown.
double ratio_base(const PruneOptions& options, const BlockWeights& weights);

// p of the channels of every FFN: options.ffn_sparsity, or ratio * base / ffn (--ratio-of active: both of a token's experts
// alone). Throws Error: ratio or p outside [0, 1], both
// given, or p > 1 needed (names the largest possible ratio).
double ffn_sparsity(const PruneOptions& options, const BlockWeights& weights);
// The ratio that was asked for, or that the FFN sparsity p asked for comes to.
double ratio_of_sparsity(const PruneOptions& options, const BlockWeights& weights, double p);

// The other way round: what shares of the weights that tokens go through were left out comes to as a ratio of each
// kind. Of all experts, those that were met stand for those that were not.
struct LeftOut {
  double attention = 0;
  std::array<double, kFfnKinds> ffns = {};  // by FfnKind
};
struct Ratios {
  double blocks = 0, active = 0, total = 0;
};
Ratios realised_ratios(const BlockWeights& weights, const LeftOut& left_out, double total_weights);

// pop+: v at options.ratio, the share of every block matrix. Throws Error above kMaxLevel (names the largest possible
// ratio).
double column_level(const PruneOptions& options, const BlockWeights& weights);

}  // namespace pop
