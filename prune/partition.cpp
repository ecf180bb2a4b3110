#include "prune/partition.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pop {
namespace {

// Unique, ascending in rank.
uint64_t rank_key(float score, int index) {
  return (uint64_t{score_key(score)} << 32) | (0xffffffffu - static_cast<uint32_t>(index));
}

int round_share(double share, int f) { return static_cast<int>(std::round(share * f)); }

}  // namespace

int kept_channels(int f, double p) { return f - round_share(p, f); }

PartitionSizes partition_sizes(int f, double p, double gamma) {
  if (f < 1) fail("partition: expected at least one channel, found {}", f);
  if (!(p >= 0 && p <= 1)) fail("FFN sparsity: expected a number from 0 to 1, found {}", p);
  if (!(gamma >= 0 && gamma <= 2)) fail("gamma: expected a number from 0 to 2, found {}", gamma);
  const int lo = round_share(std::max(0.0, p - gamma / 2), f);
  const int hi = round_share(std::min(1.0, p + gamma / 2), f);
  return {.f = f, .retained = f - hi, .candidate = hi - lo, .pruned = lo, .kept = kept_channels(f, p)};
}

Partition make_partition(const PartitionSizes& sizes) {
  Partition partition;
  partition.retained.resize(static_cast<size_t>(sizes.retained));
  partition.candidate.resize(static_cast<size_t>(sizes.candidate));
  partition.pruned.resize(static_cast<size_t>(sizes.pruned));
  partition.scores.resize(static_cast<size_t>(sizes.f));
  return partition;
}

void partition_channels(const PartitionSizes& sizes, std::span<uint64_t> rank_scratch, Partition& partition) {
  const auto keys = rank_scratch.first(static_cast<size_t>(sizes.f));
  for (int i = 0; i < sizes.f; ++i)
    keys[static_cast<size_t>(i)] = rank_key(partition.scores[static_cast<size_t>(i)], i);

  // The keys at the two borders say where every channel belongs; no full sort is needed.
  const auto first_candidate = keys.begin() + sizes.pruned;
  const auto first_retained = first_candidate + sizes.candidate;
  std::nth_element(keys.begin(), first_retained, keys.end());
  const uint64_t retained_from = first_retained == keys.end() ? ~uint64_t{0} : *first_retained;
  std::nth_element(keys.begin(), first_candidate, first_retained);
  const uint64_t candidate_from = first_candidate == first_retained ? retained_from : *first_candidate;

  int32_t* retained = partition.retained.data();
  int32_t* candidate = partition.candidate.data();
  int32_t* pruned = partition.pruned.data();
  for (int32_t i = 0; i < sizes.f; ++i) {
    const uint64_t key = rank_key(partition.scores[static_cast<size_t>(i)], i);
    int32_t*& list = key >= retained_from ? retained : key >= candidate_from ? candidate : pruned;
    *list++ = i;
  }
}

}  // namespace pop
