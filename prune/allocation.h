// How a level, the share of the weights of one block or of all that is left out, is shared out over the four sites: by fixed
// proportions (method pop+), or along a path of small raises, each of one site, that a search has found (method teal).
#pragma once
#include <cstdint>
#include <span>

#include "prune/budget.h"
#include "prune/policy.h"

namespace pop {

// Shares of the weights that a token uses of these layers (of experts, those that it goes through), by site; they add up to 1.
SiteLevels site_shares(std::span<const LayerWeights> layers);

// pop+. Prompt: `level` at every site. Sites: in proportion to kSiteShare, which the development set decided (docs/pruning.md):
// what `down` leaves out costs least, what `gate_up` leaves out most. No site goes beyond kMaxLevel while others can; a level
// above it is the same everywhere.
constexpr SiteLevels kSiteShare = {1.0, 1.0, 0.8, 1.6};
SiteLevels spread_level(std::span<const LayerWeights> layers, double level, PlusRule rule);

// teal: a step of a path raises the block's level by this much; the search ends at kAllocatedLevel.
constexpr double kAllocationStep = 0.02;
constexpr double kAllocatedLevel = 0.6;

// The level of each site where the block's level is v: the first steps of `path` (sites, in the order in which they are raised),
// the last one in part. Where the path ends, or was never made, what is missing is raised at all sites alike; no site goes
// beyond kMaxLevel while others can.
SiteLevels site_levels(std::span<const uint8_t> path, const SiteLevels& shares, double v);

}  // namespace pop
