// pop methods, pop help: what can be asked for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/help_formatter.h"
#include "apps/pop/results.h"
#include "apps/pop/validators.h"
#include "prune/registry.h"

namespace pop::app {
namespace {

int list_methods(const OutputArgs& args) {
  Json json;
  json["methods"] = Json::array();
  for (const MethodInfo& method : methods()) {
    std::vector<std::string> options(method.options.begin(), method.options.end());
    for (auto& option : options)
      if (!option.starts_with("--")) option = "--" + option;
    if (args.json) {
      json["methods"].push_back({{"name", method.name},
                                 {"summary", method.summary},
                                 {"source", method.source},
                                 {"needs", method.needs},
                                 {"selects", method.selects},
                                 {"count", method.count},
                                 {"options", options}});
      continue;
    }
    fmt::print("{:<12}{}\n", method.name, wrapped(method.summary, 12));
    fmt::print("{:12}{}\n", "",
               wrapped(fmt::format("source: {}; needs: {}; selects: {}, {} count", method.source, method.needs,
                                   method.selects, method.count),
                       12));
    if (!options.empty()) fmt::print("{:12}{}\n", "", wrapped(fmt::format("options: {}", fmt::join(options, " ")), 12));
  }
  if (args.json) print_json(json);
  return kDone;
}

constexpr const char* kPruningHelp = R"(Pruning in pop.cpp, on one screen

While a model writes, most of the time goes into reading its weights. POP reads
fewer: it skips channels of the feed-forward network (FFN) that matter little
for this prompt and this token. No training, no calibration text.

  prompt   Every channel is scored by what the prompt did to it. The best are
           retained (R), the worst pruned for the whole answer (P); between
           them lies a region of candidates (C).
  token    R is used as it is. The candidates are scored again by this token
           alone, and the best of them are used as well.

--ratio R    How much is pruned: share of all weights of the blocks (attention
             and FFN), 0.2 by default. Only FFN channels are skipped, so the
             FFN loses more than R. --ffn-sparsity P sets that share directly;
             --ratio-of total counts the embeddings and the head too, active
             of a mixture of experts only those that a token goes through.
--gamma G    How wide C is, as a share of the FFN's channels, 0.1 by default.
             0: the prompt decides everything (method `fixed`). Large: every
             token decides everything (method `full`). A wider C follows the
             text better and costs bytes: its gate and up rows are read.
--metric M   How a channel is scored. down: its activation times the norm of
             its column of W_down. gate-up: input times weights of gate and up.
--norm A     How weights are put together: 1 (sum), 2 (Euclidean), max.
--prefill H  dense: the prompt is read by the whole model, only the answer is
             pruned. pruned: the prompt as well (its scores are gate-up).
--prune pop+ Skips input channels of every matrix, attention included, by
             thresholds from the prompt. --match pop: at the bytes of pop.

Results say what was really read: weights_read_share is the share of the dense
model's bytes per token, output head included.

  pop run -p "Once upon a time" --prune pop --ratio 0.2
  pop eval kl -f text.txt --prune pop --ratio 0.2
)";

int help(CLI::App& root, const std::string& topic) {
  if (topic == "pruning") {
    fmt::print("{}", kPruningHelp);
    return kDone;
  }
  if (topic.empty()) {
    // root.help() would be the page of the command that was given, which is this one.
    fmt::print("{}", root.get_formatter()->make_help(&root, root.get_name(), CLI::AppFormatMode::Normal));
    return kDone;
  }
  std::vector<std::string> topics = {"pruning"};
  for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == topic) {
      fmt::print("{}", sub->help());
      return kDone;
    }
    topics.push_back(sub->get_name());
  }
  const std::string near = nearest(topic, topics);
  throw UsageError(fmt::format("help: expected pruning or a command, found '{}'{}", topic,
                               near.empty() ? "" : fmt::format(", the nearest is {}", near)));
}

}  // namespace

void add_methods(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<OutputArgs>();
  CLI::App* app = root.add_subcommand("methods");
  app->description("The pruning methods there are: where each comes from, what it needs, which options it takes.");
  add_output_options(*app, *args);
  app->footer(
      "Examples:\n"
      "  pop methods\n"
      "  pop methods --json\n");
  commands.push_back({app, [args] { return list_methods(*args); }});
}

void add_help(CLI::App& root, Commands& commands) {
  auto topic = std::make_shared<std::string>();
  CLI::App* app = root.add_subcommand("help");
  app->description("A page about pruning (ratio, gamma, metric on one screen), or about a command.");
  app->add_option("topic", *topic, "pruning, or the name of a command")->option_text("TOPIC");
  app->footer(
      "Examples:\n"
      "  pop help pruning\n"
      "  pop help run\n");
  commands.push_back({app, [topic, &root] { return help(root, *topic); }});
}

}  // namespace pop::app
