#include "prune/allocation.h"

#include <algorithm>

namespace pop {
namespace {

double elements(const Matrix& w) { return static_cast<double>(w.rows) * static_cast<double>(w.cols); }

}  // namespace

std::array<double, kSites> site_shares(const LayerWeights& layer) {
  std::array<double, kSites> shares = {elements(layer.q) + elements(layer.k) + elements(layer.v), elements(layer.o),
                                       elements(layer.gate_up), elements(layer.down)};
  double all = 0;
  for (const double share : shares) all += share;
  for (double& share : shares) share /= all;
  return shares;
}

std::array<double, kSites> site_levels(std::span<const uint8_t> path, const std::array<double, kSites>& shares,
                                       double v) {
  std::array<double, kSites> levels = {};
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
  while (left > 1e-12) {  // beyond the path: alike, a site that is full drops out
    double open = 0;
    for (size_t s = 0; s < levels.size(); ++s) open += levels[s] < kMaxLevel ? shares[s] : 0;
    if (open == 0) break;
    double rise = left / open;
    for (const double level : levels) rise = level < kMaxLevel ? std::min(rise, kMaxLevel - level) : rise;
    for (double& level : levels) level = level < kMaxLevel ? level + rise : level;
    left -= rise * open;
  }
  return levels;
}

}  // namespace pop
