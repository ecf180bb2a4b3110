// The methods there are, by name: what CLI, server, evaluation and bindings list, and what the property tests run over.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "prune/policy.h"

namespace pop {

struct MethodInfo {
  const char* name;
  const char* summary;                   // one line
  const char* source;                    // paper, arXiv number, or "ours"
  const char* needs;                     // "nothing", "prompt", "calibration text"
  const char* selects;                   // "nothing", "rows", "columns"
  const char* count;                     // "exact" (in every layer), "total" (over all layers), "threshold"
  std::span<const char* const> options;  // long names of the CLI options that apply
  bool experts;                          // runs on mixtures of experts
  std::unique_ptr<Policy> (*create)(const PruneOptions& options, const PolicyContext& context);
};

std::span<const MethodInfo> methods();

// Throws Error: unknown method (names the nearest), options out of range or not the method's, sparsity out of reach.
std::unique_ptr<Policy> make_policy(const PruneOptions& options, const PolicyContext& context);

}  // namespace pop
