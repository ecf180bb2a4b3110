// What the evaluations that score a model (ppl, kl, mc, gen) have in common: their options, what of their items is still to be
// done, and how their results end.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/eval/samples.h"
#include "apps/pop/args.h"
#include "apps/pop/results.h"

namespace pop::app {

struct EvalArgs {
  EngineOptions engine;
  PruneArgs prune;
  OutputArgs output;
  std::string csv, per_item;
  std::optional<uint64_t> seed;
};

// --per-item, --csv, and the options of pruning, seed, model and output. unit: what a line of the per-item file stands for.
void add_eval_options(CLI::App& app, EvalArgs& args, const char* unit);

// The places in `ids` of what the file does not have; says so if it has some.
std::vector<size_t> still_to_do(const EvalArgs& args, const SampleFile& file, std::span<const int64_t> ids,
                                const char* unit);

// Adds to a result "per_item", "finish_reason" and the common fields, writes --csv, and prints it: as JSON, or by `print` and a
// line of what decode read. The exit code.
int finish(const EvalArgs& args, Json json, bool complete, const ModelInfo& info, const PrunePlanInfo& plan,
           const ReadStats& reads, const std::function<void(const Json&)>& print);

// For an evaluation that was interrupted before it had anything. The exit code.
int finish_without_result(const EvalArgs& args, const char* unit);

}  // namespace pop::app
