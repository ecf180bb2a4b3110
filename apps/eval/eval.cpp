// pop eval: how much pruning changes the model.
#include <CLI/CLI.hpp>

#include "apps/eval/commands.h"

namespace pop::app {

void add_eval(CLI::App& root, Commands& commands) {
  CLI::App* app = root.add_subcommand("eval");
  app->require_subcommand(0, 1);
  app->description("How much pruning changes the model.");
  app->footer(
      "Examples:\n"
      "  pop eval kl -f wiki.test.raw --prune pop --ratio 0.2\n"
      "  pop eval mc -f data/arc_easy.jsonl --prune pop --per-item pop.jsonl\n"
      "  pop eval compare dense.jsonl pop.jsonl\n");
  for (const auto add :
       {add_eval_ppl, add_eval_kl, add_eval_mc, add_eval_gen, add_eval_compare, add_eval_sparsity, add_eval_table})
    add(*app, commands);
  commands.push_back(
      {app, []() -> int { throw UsageError("eval: expected a command, e.g. kl; see pop eval --help"); }});
}

}  // namespace pop::app
