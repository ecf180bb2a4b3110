// pop eval gen: answers that the model writes, and what they are worth.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "apps/eval/choices.h"
#include "apps/eval/commands.h"
#include "apps/eval/corpus.h"
#include "apps/eval/evaluation.h"
#include "apps/eval/gen_task.h"
#include "apps/eval/report.h"
#include "apps/eval/sandbox.h"
#include "apps/eval/statistics.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct GenArgs : EvalArgs {
  ItemArgs items;
  std::string python = "python3";
  std::optional<int> max_tokens;
};

// What the model is asked, and what it said.
struct Turn {
  std::vector<int32_t> prompt, wanted;  // wanted: the target's tokens (metric greedy)
  bool prompt_cut = false;
  GenerateResult result;
  std::string text;  // of the answer, well-formed
};

class Generation {
 public:
  Generation(const GenTask& task, const Engine& engine, Session& session, const Sandbox* sandbox)
      : task_(task), engine_(engine), session_(session), sandbox_(sandbox) {
    if (task.max_tokens >= engine.info().context)
      throw UsageError(
          fmt::format("an answer of up to {} tokens (--max-tokens) leaves no room in the context of {} (--ctx)",
                      task.max_tokens, engine.info().context));
  }

  // The item's lines, one per filter; none if interrupted.
  std::vector<Sample> answer(const Item& item) {
    const GenItem question = gen_item(task_, item);
    Turn turn = ask(question, item.where);
    if (turn.result.finish_reason == "interrupted") return {};
    Sample common = describe(item, question, turn);
    if (task_.metric == GenMetric::code) return run_tests(question, turn, std::move(common));
    std::vector<Sample> out;
    for (const AnswerFilter& filter : task_.filters) {
      const std::string filtered = filter.apply(turn.text);
      out.push_back(common);
      out.back().filter = filter.name;
      out.back().filtered_resps.push_back(filtered);
      out.back().metrics = scores(question, turn, filtered);
    }
    return out;
  }

 private:
  Turn ask(const GenItem& question, const std::string& where) {
    Turn turn;
    GenerateOptions options;
    options.max_tokens = task_.max_tokens;
    options.stop = task_.until;
    options.hooks.interrupted = InterruptScope::raised;
    if (task_.metric == GenMetric::greedy) {
      TokenPair pair = split_pair(engine_, {question.prompt, question.targets[0]}, prefix_token(engine_.info()), where);
      turn.prompt = std::move(pair.context);
      turn.wanted = std::move(pair.continuation);
      options.max_tokens = static_cast<int>(turn.wanted.size());
      options.stop.clear();
      options.ignore_eos = true;
    } else {
      turn.prompt = engine_.prompt(question.prompt);
    }
    cut(turn, options.max_tokens);
    session_.reset();  // nothing is taken over from the item before
    turn.result = session_.generate(turn.prompt, options);
    turn.text = valid_text(turn.result.text);
    return turn;
  }

  // What does not fit is cut on the left, as the harness does.
  void cut(Turn& turn, int max_tokens) const {
    const auto room = static_cast<size_t>(std::max(1, engine_.info().context - max_tokens));
    if (turn.prompt.size() <= room) return;
    turn.prompt_cut = true;
    turn.prompt.erase(turn.prompt.begin(), turn.prompt.end() - static_cast<ptrdiff_t>(room));
  }

  Sample describe(const Item& item, const GenItem& question, const Turn& turn) const {
    Sample out;
    out.doc_id = item.id;
    out.doc_hash = item.hash;
    out.prompt = question.prompt;
    out.target = question.targets.size() == 1 ? question.targets[0] : to_text(Json(question.targets));
    out.cluster = question.cluster;
    out.arguments.push_back({question.prompt, Json{{"until", task_.until}, {"max_gen_toks", task_.max_tokens}}});
    out.resps.push_back(Json::array({turn.text}));
    out.reads = turn.result.reads;
    out.more["finish_reason"] = turn.result.finish_reason;
    out.more["prompt_tokens"] = turn.result.prompt_tokens;
    out.more["generated_tokens"] = turn.result.generated_tokens;
    out.more["prompt_cut"] = turn.prompt_cut;
    return out;
  }

  Json scores(const GenItem& question, const Turn& turn, const std::string& filtered) const {
    if (task_.metric == GenMetric::greedy) return {{"acc", turn.result.ids == turn.wanted ? 1.0 : 0.0}};
    if (task_.metric == GenMetric::squad) {
      const SquadScore score = squad_score(filtered, question.targets);
      return {{"em", score.em}, {"f1", score.f1}};
    }
    return {{"exact_match", task_.exact.score(filtered, question.targets)}};
  }

  std::vector<Sample> run_tests(const GenItem& question, const Turn& turn, Sample out) const {
    const std::string program = question.program_head + turn.text;
    const SandboxResult result = sandbox_->run(program + "\n" + question.tests, InterruptScope::raised);
    if (result.verdict == "interrupted") return {};
    out.filtered_resps.push_back(program);
    out.metrics["pass@1"] = result.passed ? 1.0 : 0.0;
    out.more["verdict"] = result.verdict;
    return {std::move(out)};
  }

  const GenTask& task_;
  const Engine& engine_;
  Session& session_;
  const Sandbox* sandbox_;
};

// False: interrupted; the file has the items that were done.
bool generate(const GenArgs& args, Generation& generation, const Items& items, SampleFile& file) {
  const std::vector<size_t> pending = still_to_do(args, file, items.ids(), "item");
  Progress progress("eval gen", args.output);
  for (size_t i = 0; i < pending.size(); ++i) {
    const std::vector<Sample> lines = generation.answer(items.list[pending[i]]);
    if (lines.empty()) return false;
    file.add(lines);
    progress.update(static_cast<int64_t>(i) + 1, static_cast<int64_t>(pending.size()));
  }
  return true;
}

// The name of a score: of the filter where there are several, else of the metric.
std::string score_name(const GenTask& task, const AnswerFilter& filter, const std::string& metric) {
  return task.metric == GenMetric::exact_match && task.filters.size() > 1 ? filter.name : metric;
}

template <class Wanted>
int64_t count(const SampleFile& file, std::span<const int64_t> ids, Wanted wanted) {
  return std::count_if(ids.begin(), ids.end(), [&](int64_t id) {
    const auto found = file.lines().find(id);
    return found != file.lines().end() && wanted(found->second[0]);
  });
}

Json to_json(const GenArgs& args, const GenTask& task, const Items& items, const SampleFile& file) {
  const std::vector<int64_t> ids = items.ids();
  const auto clusters = cluster_names(file, ids);
  Json json;
  json["task"] = task.name;
  json["corpus"] = items.path;
  json["corpus_sha256"] = items.sha256;
  json["mode"] = "generate";
  json["items"] = clusters.size();
  json["clusters"] = count_clusters(clusters);
  json["scores"] = Json::object();
  json["ci95"] = Json::object();
  for (const AnswerFilter& filter : task.filters)
    for (const std::string& metric : task.metrics()) {
      const auto values = metric_values(file, ids, metric, filter.name);
      const std::string name = score_name(task, filter, metric);
      json["scores"][name] = mean(values);
      json["ci95"][name] = to_json(bootstrap_mean(values, clusters, args.seed.value_or(1), 10000));
    }
  // A greedy answer has the target's length, which is no cut.
  const bool cuts = task.metric != GenMetric::greedy;
  json["truncated"] =
      cuts ? count(file, ids, [](const Json& line) { return line_field(line, "finish_reason") == "length"; }) : 0;
  json["prompts_cut"] = count(file, ids, [](const Json& line) { return line_field(line, "prompt_cut") == true; });
  json["max_tokens"] = task.max_tokens;
  return json;
}

void print_gen(const Json& json, const PrunePlanInfo& plan) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  fmt::print("{}: {}, {} items (mode generate)\n", describe(plan), json["task"].get<std::string>(),
             json["items"].get<size_t>());
  for (const auto& [name, value] : json["scores"].items())
    fmt::print("  {:<18}{:.2f} %  [{:.2f}, {:.2f}]\n", name, 100 * number(value), 100 * number(json["ci95"][name][0]),
               100 * number(json["ci95"][name][1]));
  fmt::print("  {:<18}{} answers at {} tokens, {} prompts on the left\n", "cut", json["truncated"].get<int64_t>(),
             json["max_tokens"].get<int>(), json["prompts_cut"].get<int64_t>());
  if (json.contains("sandbox")) fmt::print("  {:<18}{}\n", "programs ran in", json["sandbox"].get<std::string>());
  fmt::print("  [..]: 95 % interval, {} resampled\n",
             json["clusters"] == json["items"] ? "items" : "items that share a passage together");
}

Json identity(const GenTask& task, const Items& items, const Sandbox* sandbox) {
  Json run = {{"task", task.name},
              {"items_sha256", items.sha256},
              {"mode", "generate"},
              {"until", task.until},
              {"max_tokens", task.max_tokens}};
  if (sandbox) run["sandbox"] = sandbox->description();
  return run;
}

int eval_gen(const GenArgs& args) {
  const PruneSettings prune = args.prune.resolved(args.seed);
  const Items items = read_items(args.items);
  GenTask task = gen_task(items);
  if (args.max_tokens) task.max_tokens = *args.max_tokens;
  for (const Item& item : items.list) gen_item(task, item);  // a wrong line is said before the model is loaded
  std::optional<Sandbox> sandbox;
  if (task.metric == GenMetric::code) sandbox.emplace(args.python);
  const Sandbox* box = sandbox ? &*sandbox : nullptr;
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  const auto session = engine.session(prune);
  Generation generation(task, engine, *session, box);
  Json run = identity(task, items, box);
  run["context"] = engine.info().context;
  run.update(run_identity(engine.info(), session->plan(), prune));
  SampleFile file(args.per_item, run, task.filters.size());
  InterruptScope interrupts;
  const bool complete = generate(args, generation, items, file);
  const std::vector<int64_t> ids = items.ids();
  if (cluster_names(file, ids).empty()) return finish_without_result(args, "item");
  Json json = to_json(args, task, items, file);
  if (box) json["sandbox"] = box->description();
  return finish(args, std::move(json), complete, engine.info(), session->plan(), file.reads(ids),
                [&](const Json& result) { print_gen(result, session->plan()); });
}

}  // namespace

void add_eval_gen(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<GenArgs>();
  CLI::App* app = root.add_subcommand("gen");
  app->description(
      "Answers that the model writes, greedily, and their scores. This is where pruning acts on every token and its "
      "errors add up. The file's first line says how answers end and are scored (docs/data.md): a number taken out of "
      "them (GSM8K), a short answer (NQ-Open), words in common (CoQA), the last word of a passage (LAMBADA), or a "
      "program that must pass tests (HumanEval, MBPP). Without such a line an item is\n"
      "  {\"prompt\": \"Q: ..\\nA:\", \"target\": \"..\"}      or \"targets\": [..], any of which is right;\n"
      "the answer ends with its line. Programs run one at a time in a process that can neither write files, nor open "
      "connections, nor start others (seccomp), within 3 s of processor time and 1 GiB; where a system cannot do that, "
      "they are not run.");
  add_item_options(*app, args->items);
  app->add_option("--max-tokens", args->max_tokens, "Longest answer [the file's, else 256]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--python", args->python, "Interpreter that runs the programs of code tasks [python3]")
      ->option_text("NAME");
  add_eval_options(*app, *args, "item");
  app->footer(
      "Examples:\n"
      "  pop eval gen -f data/gsm8k.jsonl --limit 200 --per-item gsm8k-dense.jsonl\n"
      "  pop eval gen -f data/gsm8k.jsonl --limit 200 --per-item gsm8k-pop.jsonl --prune pop --ratio 0.2\n"
      "  pop eval gen -f data/humaneval.jsonl --prune pop+ --ratio 0.2 --json\n");
  commands.push_back({app, [args] { return eval_gen(*args); }});
}

}  // namespace pop::app
