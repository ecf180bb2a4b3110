// From the ratio a user types to what a method may keep (pop-method section 2).
#pragma once
#include <span>

#include "prune/policy.h"

namespace pop {

constexpr double kDefaultRatio = 0.2;
constexpr double kDefaultGamma = 0.1;
constexpr double kMaxLevel = 0.95;  // pop+: more would leave single columns

// Weights (elements) of all blocks: attention and FFN matrices; no embeddings, head, norms.
struct BlockWeights {
  double attention = 0, ffn = 0;
  double all() const { return attention + ffn; }
};
BlockWeights count_weights(std::span<const LayerWeights> layers);

// The weights that options.ratio is a share of. Throws Error if they are unknown.
double ratio_base(const PruneOptions& options, const BlockWeights& weights);

// p of the FFN's channels: options.ffn_sparsity, or ratio * base / ffn. Throws Error: ratio or p outside [0, 1], both
// given, or p > 1 needed (names the largest possible ratio).
double ffn_sparsity(const PruneOptions& options, const BlockWeights& weights);

// pop+: v at options.ratio, the share of every block matrix. Throws Error above kMaxLevel (names the largest possible
// ratio).
double column_level(const PruneOptions& options, const BlockWeights& weights);

// The level of each site, at most kMaxLevel, so that `level` is the share of all block weights that is skipped. Prompt: the same
// at every site. Sites: in proportion to kSiteShare, found on the development set (docs/pruning.md): what `down` leaves out
// costs least, what `gate_up` leaves out most. level in [0, 1]; above kMaxLevel it is the same everywhere.
constexpr SiteLevels kSiteShare = {1.0, 1.0, 0.8, 1.6};
SiteLevels spread_level(std::span<const LayerWeights> layers, double level, PlusRule rule);

}  // namespace pop
