#include "prune/policy.h"

namespace pop {

const char* ffn_kind_name(FfnKind kind) {
  constexpr const char* kNames[] = {"dense", "routed", "shared"};
  return kNames[static_cast<size_t>(kind)];
}

const char* site_name(Site site) {
  constexpr const char* kNames[kSites] = {"qkv", "o", "gate_up", "down"};
  return kNames[static_cast<int>(site)];
}

std::vector<const FfnWeights*> ffns_of(std::span<const LayerWeights> layers) {
  std::vector<const FfnWeights*> ffns;
  for (const LayerWeights& layer : layers)
    for (const FfnWeights& ffn : layer.ffns) ffns.push_back(&ffn);
  return ffns;
}

const char* metric_name(Metric metric) { return metric == Metric::Down ? "down" : "gate-up"; }

const char* norm_name(Norm norm) {
  constexpr const char* kNames[] = {"1", "2", "max"};
  return kNames[static_cast<int>(norm)];
}

}  // namespace pop
