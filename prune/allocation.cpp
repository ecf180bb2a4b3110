#include "prune/allocation.h"

#include <algorithm>

namespace pop {
namespace {

// Raises the sites' levels in proportion to `rates` until `left` more of the weights is left out; a site at kMaxLevel drops out.
void raise(SiteLevels& levels, const SiteLevels& shares, const SiteLevels& rates, double left) {
  while (left > 1e-12) {
    double weight = 0;  // left out per unit of rise
    for (size_t s = 0; s < kSites; ++s) weight += levels[s] < kMaxLevel ? shares[s] * rates[s] : 0;
    if (weight == 0) break;
    double rise = left / weight;
    for (size_t s = 0; s < kSites; ++s)
      if (levels[s] < kMaxLevel) rise = std::min(rise, (kMaxLevel - levels[s]) / rates[s]);
    for (size_t s = 0; s < kSites; ++s) {
      if (levels[s] >= kMaxLevel) continue;
      const bool full = rise >= (kMaxLevel - levels[s]) / rates[s];
      levels[s] = full ? kMaxLevel : levels[s] + rise * rates[s];  // exactly, so that it drops out
    }
    left -= rise * weight;
  }
}

}  // namespace

SiteLevels site_shares(std::span<const LayerWeights> layers) {
  SiteLevels shares = {};
  for (const LayerWeights& layer : layers) {
    shares[0] += elements(layer.q) + elements(layer.k) + elements(layer.v);
    shares[1] += elements(layer.o);
    for (const FfnWeights& ffn : layer.ffns) {
      shares[2] += elements(ffn.gate_up) * ffn.use;
      shares[3] += elements(ffn.down) * ffn.use;
    }
  }
  double all = 0;
  for (const double share : shares) all += share;
  for (double& share : shares) share /= all;
  return shares;
}

SiteLevels spread_level(std::span<const LayerWeights> layers, double level, PlusRule rule) {
  SiteLevels levels = {};
  if (rule == PlusRule::Prompt || level >= kMaxLevel)
    levels.fill(level);
  else
    raise(levels, site_shares(layers), kSiteShare, level);
  return levels;
}

SiteLevels site_levels(std::span<const uint8_t> path, const SiteLevels& shares, double v) {
  SiteLevels levels = {};
  if (path.empty()) {
    levels.fill(v);
    return levels;
  }
  double left = v;
  for (size_t i = 0; i < path.size() && left > 0; ++i) {
    const double step = std::min({left, kAllocationStep, (kMaxLevel - levels[path[i]]) * shares[path[i]]});
    levels[path[i]] += step / shares[path[i]];
    left -= step;
  }
  raise(levels, shares, {1, 1, 1, 1}, left);
  return levels;
}

}  // namespace pop
