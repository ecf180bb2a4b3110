// --match: the budget at which a method reads as much per token as a method that selects rows does at the same ratio.
#pragma once
#include "prune/policy.h"

namespace pop {

// A method without candidates: as many weights, by element. It keeps K + (2/3)(|R| + |C| - K) channels where options.match
// has R, C and K at options.ratio or options.ffn_sparsity. Throws Error: options.match selects no rows.
double matched_sparsity(const PruneOptions& options, const PolicyContext& context);

// A method that selects columns at a level spread by that rule: as many planned bytes as options.match at options.ratio.
// Throws Error: options.match selects no rows, or a level above kMaxLevel is needed (names the largest possible ratio).
double matched_level(const PruneOptions& options, const PolicyContext& context, PlusRule rule);

}  // namespace pop
