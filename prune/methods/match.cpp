#include "prune/methods/match.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/byte_ideal.h"
#include "prune/methods/methods.h"
#include "prune/partition.h"

namespace pop {
namespace {

double gamma_of_match(const PruneOptions& options) {
  const std::optional<double> gamma = row_gamma(options.match);
  if (!gamma)
    fail("--match: expected a method that selects rows (pop, fixed, full, random), found \"{}\"",
         printable(options.match));
  return *gamma;
}

// The FFN sparsity that the matched method has at a ratio.
double sparsity_of_match(const PruneOptions& options, const PolicyContext& context, std::optional<double> ratio) {
  PruneOptions rows;
  rows.method = options.match;
  rows.ratio = ratio;
  rows.ffn_sparsity = options.ffn_sparsity;
  rows.ratio_of = options.ratio_of;
  rows.total_weights = options.total_weights;
  return ffn_sparsity(rows, count_weights(context.layers));
}

}  // namespace

double matched_sparsity(const PruneOptions& options, const PolicyContext& context) {
  const PartitionSizes sizes =
      partition_sizes(context.f, sparsity_of_match(options, context, options.ratio), gamma_of_match(options));
  const int reachable = sizes.retained + sizes.candidate;
  const double kept = std::round(sizes.kept + (reachable - sizes.kept) * 2 / 3.0);
  return (sizes.f - kept) / sizes.f;
}

double matched_level(const PruneOptions& options, const PolicyContext& context, PlusRule rule) {
  const auto level_at = [&](double ratio) {
    const double p = sparsity_of_match(options, context, ratio);
    const double bytes = planned_row_bytes(context.layers, p, gamma_of_match(options));
    // At ratio 0 the formulas meet but for rounding.
    return std::max(0.0, level_for_bytes(context.layers, bytes, rule));
  };
  const double ratio = options.ratio.value_or(kDefaultRatio), level = level_at(ratio);
  if (level <= kMaxLevel) return level;
  double possible = 0, too_much = ratio;
  while (too_much - possible > 5e-5) {
    const double middle = (possible + too_much) / 2;
    (level_at(middle) <= kMaxLevel ? possible : too_much) = middle;
  }
  fail("--ratio: {} with --match {} needs a level of {:.3f}, more than {}; the largest possible ratio is {:.4f}", ratio,
       options.match, level, kMaxLevel, std::floor(possible * 1e4) / 1e4);
}

}  // namespace pop
