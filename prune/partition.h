// The coarse partition of pop-method section 4: prompt importance -> retained (R), candidate (C), pruned (P). Pure.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "prune/policy.h"

namespace pop {

// The order of scores everywhere in prune/, as an integer. A score is a magnitude: its sign bit is ignored (-0 equals
// 0). NaN, from an overflow, counts above infinity and all NaNs are equal: a channel of unknown importance is kept.
inline uint32_t score_key(float score) {
  const uint32_t key = std::bit_cast<uint32_t>(score) & 0x7fffffffu;
  return key < 0x7f800001u ? key : 0x7f800001u;
}

struct PartitionSizes {
  int f = 0, retained = 0, candidate = 0, pruned = 0;  // of f channels
  int kept = 0;  // K, R and the chosen C; retained <= kept <= retained + candidate
};

// K = f - round(p f), halves away from zero. f >= 1, p in [0, 1].
int kept_channels(int f, double p);

// With lo = max(0, p - gamma/2), hi = min(1, p + gamma/2): P has the ranks [0, round(lo f)), C [round(lo f), round(hi
// f)), R the rest. Throws Error if f < 1, p is outside [0, 1] or gamma outside [0, 2].
PartitionSizes partition_sizes(int f, double p, double gamma);

// An unfilled partition of these sizes, so that partition_channels allocates nothing.
Partition make_partition(const PartitionSizes& sizes);

// Fills the three lists, ascending, by the rank of partition.scores : [f] (ascending score; of two equal ones the
// higher index ranks first, so the lower is kept). Linear time. rank_scratch: [f].
void partition_channels(const PartitionSizes& sizes, std::span<uint64_t> rank_scratch, Partition& partition);

}  // namespace pop
