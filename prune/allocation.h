// How one block's level is shared out over its sites (method teal): a path of small raises, each of one site, along which
// every level of the block is a point.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "prune/budget.h"
#include "prune/policy.h"

namespace pop {

// A step raises the block's level, the share of its weights that is left out, by this much.
constexpr double kAllocationStep = 0.02;
constexpr double kAllocatedLevel = 0.6;  // the search ends here

// Shares of a block's weights that lie at each site; they add up to 1.
std::array<double, kSites> site_shares(const LayerWeights& layer);

// The level of each site where the block's level is v: the first steps of `path` (sites, in the order in which they are raised),
// the last one in part. Where the path ends, or was never made, what is missing is raised at all sites alike; no site goes
// beyond kMaxLevel while others can.
std::array<double, kSites> site_levels(std::span<const uint8_t> path, const std::array<double, kSites>& shares,
                                       double v);

}  // namespace pop
