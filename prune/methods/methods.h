// The factories of the methods in this folder, for the registry.
#pragma once
#include <memory>
#include <optional>
#include <string_view>

#include "prune/budget.h"
#include "prune/policy.h"

namespace pop {

std::unique_ptr<Policy> create_dense(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_pop(const PruneOptions& options, const PolicyContext& context);  // also fixed, full
std::unique_ptr<Policy> create_random(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_pop_plus(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_magnitude(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_calibrated(const PruneOptions& options,
                                          const PolicyContext& context);  // wanda_sp, task-fixed
std::unique_ptr<Policy> create_flap(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_griffin(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_probe(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_teal(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_cats(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_tyr(const PruneOptions& options, const PolicyContext& context);
std::unique_ptr<Policy> create_wina(const PruneOptions& options, const PolicyContext& context);

// The candidate width of a method that selects rows where the user gives none; nullopt for other methods. 2 makes every
// channel a candidate at any sparsity, 0 none.
constexpr std::optional<double> row_gamma(std::string_view method) {
  if (method == "pop") return kDefaultGamma;
  if (method == "full") return 2;
  if (method == "fixed" || method == "random") return 0;
  return std::nullopt;
}

}  // namespace pop
