// pop score: how likely a text is, token by token, with the dense or a pruned model.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/dump.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

constexpr std::string_view kInterruptedReason = "interrupted";

struct ScoreArgs {
  EngineOptions engine;
  PruneArgs prune;
  PromptArgs prompt;
  DumpArgs dump;
  OutputArgs output;
  std::optional<std::string> lines;
  std::optional<int> split;
  std::optional<uint64_t> seed;
  int batch = 1;
};

void check_split(int split, size_t tokens, const std::string& where) {
  if (split < 1 || split > static_cast<int64_t>(tokens))
    fail("{}: expected 1 to {} (the number of tokens), found {}", where, tokens, split);
}

// Lists are named only: writing one that is nested a million deep would overflow the stack.
std::string shown(const Json& json) { return json.is_structured() ? json.type_name() : printable(to_text(json)); }

// One line of --lines. Whatever is wrong with it is said with its number.
ScoreRequest parse_line(const std::string& line, const std::string& where, const Engine& engine, bool special) {
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("{}: expected a JSON object, found '{}'", where, printable(line));
  const bool has_ids = json.contains("ids"), has_text = json.contains("text");
  if (has_ids == has_text)
    fail("{}: expected either \"ids\" or \"text\", found {}", where, has_ids ? "both" : "neither");
  ScoreRequest request;
  if (has_text) {
    if (!json["text"].is_string()) fail("{}: \"text\": expected a string, found {}", where, json["text"].type_name());
    request.ids = engine.prompt(json["text"].get_ref<const std::string&>(), special);
  } else {
    if (!json["ids"].is_array())
      fail("{}: \"ids\": expected a list of token ids, found {}", where, json["ids"].type_name());
    for (const Json& id : json["ids"]) {
      if (!id.is_number_integer() || id < 0 || id >= engine.info().vocab)
        fail("{}: \"ids\": expected whole numbers from 0 to {}, found {}", where, engine.info().vocab - 1, shown(id));
      request.ids.push_back(id.get<int32_t>());
    }
  }
  if (request.ids.empty()) fail("{}: expected at least one token, found none", where);
  if (json.contains("split") && !json["split"].is_null()) {
    const Json& split = json["split"];
    if (!split.is_number_integer() || split < 1 || split > request.ids.size())
      fail("{}: \"split\": expected a whole number from 1 to {} (the tokens), found {}", where, request.ids.size(),
           shown(split));
    request.split = split.get<int>();
  }
  return request;
}

std::vector<ScoreRequest> read_lines(const ScoreArgs& args, const Engine& engine) {
  const std::string bytes = read_file(*args.lines);
  const std::string name = *args.lines == "-" ? "standard input" : printable(*args.lines, 400);
  std::vector<ScoreRequest> requests;
  size_t number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string line = bytes.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    requests.push_back(parse_line(line, where, engine, args.prompt.special));
    const auto tokens = static_cast<int>(requests.back().ids.size());
    if (tokens > engine.info().context)
      fail("{}: expected at most {} tokens (--ctx), found {}", where, engine.info().context, tokens);
  }
  return requests;
}

int score_lines(const ScoreArgs& args) {
  if (args.prompt.given()) throw UsageError("--lines excludes -p, -f, --ids and -");
  if (args.split) throw UsageError("--split belongs to a single text; with --lines each line has its own \"split\"");
  if (args.dump.logits) throw UsageError("--dump-logits belongs to a single text, not to --lines");
  const PruneSettings prune = args.prune.resolved(args.seed);
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  const auto requests = read_lines(args, engine);
  const auto session = engine.session(prune);
  Dumps dumps(args.dump, session->plan());
  Progress progress("score", args.output);
  InterruptScope interrupts;
  RunHooks hooks;
  hooks.interrupted = InterruptScope::raised;
  hooks.profile = args.dump.profile;
  dumps.add_to(hooks);
  for (size_t first = 0; first < requests.size(); first += args.batch) {
    const auto group = std::span(requests).subspan(first, std::min<size_t>(args.batch, requests.size() - first));
    if (dumps.partition()) dumps.partition()->set_first_sequence(static_cast<int>(first));
    const auto results = session->score(group, args.batch, hooks);
    for (size_t i = 0; i < group.size(); ++i) print_json(score_json(engine, session->plan(), group[i], results[i]));
    std::fflush(stdout);
    if (results.back().finish_reason == kInterruptedReason) return kInterrupted;
    progress.update(static_cast<int64_t>(first + group.size()), static_cast<int64_t>(requests.size()));
  }
  dumps.close();
  return kDone;
}

void print_text(const Engine& engine, const PrunePlanInfo& plan, const ScoreRequest& request,
                const ScoreResult& result) {
  fmt::print("{} tokens, {} scored: sum of -ln p {:.4f}", request.ids.size(), result.scored, result.nll_sum);
  if (result.scored > 0)
    fmt::print(", mean {:.4f}, perplexity {:.4f}", result.nll_sum / result.scored,
               std::exp(result.nll_sum / result.scored));
  fmt::print("\n");
  if (result.finish_reason == kInterruptedReason) fmt::print("interrupted: the rest is missing\n");
  if (result.scored_decode > 0)
    fmt::print("{} of them predicted by decode: sum {:.4f}, mean {:.4f}\n", result.scored_decode, result.nll_decode_sum,
               result.nll_decode_sum / result.scored_decode);
  if (!result.top.empty()) fmt::print("next, most likely first:\n");
  std::vector<std::vector<std::string>> rows;
  for (const TopToken& top : result.top)
    rows.push_back({fmt::format("  \"{}\"", printable(engine.token_text(top.id))), fmt::format("{}", top.id),
                    fmt::format("{:.4f}", top.logit)});
  fmt::print("{}", table(rows));
  if (const std::string realised = describe_realised(result.reads); !realised.empty()) fmt::print("{}\n", realised);
  if (plan.method != "dense" && result.reads.tokens == 0)
    fmt::print(
        "nothing was decoded, so nothing was pruned: --split K sends the tokens after the first K through decode\n");
}

int score(const ScoreArgs& args) {
  if (args.lines) return score_lines(args);
  const std::string text = args.prompt.read(false);
  const PruneSettings prune = args.prune.resolved(args.seed);
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  ScoreRequest request;
  request.ids = args.prompt.tokens(engine, text);
  if (request.ids.empty()) fail("prompt: expected at least one token, found none");
  if (args.split) check_split(*args.split, request.ids.size(), "--split");
  request.split = args.split.value_or(-1);
  const auto session = engine.session(prune);
  Dumps dumps(args.dump, session->plan());
  InterruptScope interrupts;
  Progress progress("score", args.output);
  RunHooks hooks;
  hooks.interrupted = InterruptScope::raised;
  hooks.profile = args.dump.profile;
  hooks.on_progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  dumps.add_to(hooks);
  const auto results = session->score({&request, 1}, 1, hooks);
  dumps.close();
  if (args.output.json)
    print_json(score_json(engine, session->plan(), request, results.at(0)));
  else
    print_text(engine, session->plan(), request, results.at(0));
  if (!args.output.json && !results[0].profile.empty()) note(args.output, profile_table(results[0].profile));
  return results[0].finish_reason == kInterruptedReason ? kInterrupted : kDone;
}

}  // namespace

void add_score(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<ScoreArgs>();
  CLI::App* app = root.add_subcommand("score");
  app->description(
      "Log-probabilities of a text, token by token: ln p(token | tokens before it), natural logarithm. The last "
      "newline of a "
      "file belongs to the text.");
  add_prompt_options(*app, args->prompt);
  app->add_option(
         "--lines", args->lines,
         "Many texts: a file (or -) with {\"ids\":[..],\"split\":K} or {\"text\":..,\"split\":K} per line; one JSON "
         "object per line out")
      ->option_text("FILE")
      ->group("Prompt (one of them)");
  app->add_option("--split", args->split, "The first K tokens are prefill, the rest goes through decode [all prefill]")
      ->option_text("K")
      ->check(whole_in(1, 1 << 24));
  app->add_option("--batch", args->batch, "Lines in one forward pass; changes no result [1]")
      ->option_text("N")
      ->check(whole_in(1, 256));
  add_prune_options(*app, args->prune);
  add_seed_option(*app, args->seed);
  add_model_options(*app, args->engine);
  add_dump_options(*app, args->dump);
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop score -p \"The capital of France is Paris.\"\n"
      "  pop score -f text.txt --split 256 --prune pop --ratio 0.2 --json\n");
  commands.push_back({app, [args] { return score(*args); }});
}

}  // namespace pop::app
