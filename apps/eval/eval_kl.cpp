// pop eval kl: what pruning (or a cheaper arithmetic) does to the model's distribution, on a text.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "apps/eval/commands.h"
#include "apps/eval/corpus.h"
#include "apps/eval/divergence.h"
#include "apps/eval/evaluation.h"
#include "apps/eval/items.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct KlArgs : EvalArgs {
  std::string file, mode = "split", base;
  int context = 256, decode = 128, sequences = 40, batch = 4, generate = 0;
};

// Consecutive windows; each needs one token more, the target of its last position.
struct Windows {
  std::vector<int32_t> ids;
  std::vector<size_t> first;    // of every window, its first token in ids
  std::vector<int64_t> places;  // 0, 1, ...: what the per-item file calls them
};

Windows cut(const KlArgs& args, const Engine& engine, const Corpus& corpus) {
  Windows out{engine.encode(corpus.documents[0]), {}, {}};
  const size_t length = size_t(args.context) + size_t(args.decode);
  const size_t fit = out.ids.empty() ? 0 : (out.ids.size() - 1) / length;
  if (fit == 0)
    fail("{}: expected at least {} tokens (--context + --decode + 1), found {}", printable(args.file, 400), length + 1,
         out.ids.size());
  for (size_t i = 0; i < std::min<size_t>(fit, size_t(args.sequences)); ++i) out.first.push_back(i * length);
  out.places.resize(out.first.size());
  std::iota(out.places.begin(), out.places.end(), 0);
  return out;
}

// Compares two sessions window by window; both see the same tokens, cut at the same place.
class Comparison {
 public:
  Comparison(const KlArgs& args, const Engine& engine, const Windows& windows, Session& base, Session& other)
      : args_(args),
        windows_(windows),
        base_(base),
        other_(other),
        bos_(engine.prompt("")),
        vocab_(size_t(engine.info().vocab)) {}

  // False: interrupted; the file then has the windows that were done.
  bool run(SampleFile& file) {
    const std::vector<size_t> pending = still_to_do(args_, file, windows_.places, "window");
    Progress progress("eval kl", args_.output);
    for (size_t first = 0; first < pending.size(); first += size_t(args_.batch)) {
      const auto group = std::span(pending).subspan(first, std::min(size_t(args_.batch), pending.size() - first));
      if (!run_group(group, file)) return false;
      progress.update(int64_t(first + group.size()), int64_t(pending.size()));
    }
    return true;
  }

 private:
  bool run_group(std::span<const size_t> group, SampleFile& file) {
    std::vector<ScoreRequest> requests;
    for (const size_t window : group) requests.push_back(request(window));
    base_logits_.assign(group.size() * size_t(args_.decode) * vocab_, 0.0f);
    int64_t base_rows = 0;
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    hooks.on_logits = [&](int sequence, int position, std::span<const float> logits) {
      if (position < args_.context) return;
      ++base_rows;
      std::copy(logits.begin(), logits.end(), base_row(sequence, position).begin());
    };
    base_.score(requests, args_.batch, hooks);
    if (InterruptScope::raised()) return false;
    std::vector<WindowDivergence> found(group.size());
    hooks.on_logits = [&](int sequence, int position, std::span<const float> logits) {
      if (position < args_.context) return;
      const size_t next = windows_.first[group[size_t(sequence)]] + size_t(position) + 1;
      found[size_t(sequence)].tokens.push_back(diverge(base_row(sequence, position), logits, windows_.ids[next]));
    };
    const auto results = other_.score(requests, args_.batch, hooks);
    if (InterruptScope::raised()) return false;
    check(group, found, base_rows);
    if (args_.generate > 0 && !compare_answers(requests, found)) return false;
    for (size_t i = 0; i < group.size(); ++i) {
      Sample sample = divergence_sample(int64_t(group[i]), found[i]);
      sample.doc_hash = sample.prompt = sha256_ids(requests[i].ids);
      sample.reads = results[i].reads;
      file.add({sample});
    }
    return true;
  }

  ScoreRequest request(size_t window) const {
    const auto begin = windows_.ids.begin() + ptrdiff_t(windows_.first[window]);
    ScoreRequest out{
        {begin, begin + args_.context + args_.decode}, args_.mode == "split" ? args_.context : -1, args_.context + 1};
    // A model that wants a beginning token gets it in place of the window's first one, so that the length stays.
    if (!bos_.empty()) out.ids.front() = bos_.front();
    return out;
  }

  // Greedy answers of both models to every window's context. False: interrupted.
  bool compare_answers(std::span<const ScoreRequest> requests, std::vector<WindowDivergence>& found) {
    std::vector<std::vector<int32_t>> prompts;
    for (const ScoreRequest& request : requests)
      prompts.emplace_back(request.ids.begin(), request.ids.begin() + args_.context);
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    const BatchResult base = base_.generate_batch(prompts, args_.generate, hooks);
    if (InterruptScope::raised()) return false;
    const BatchResult other = other_.generate_batch(prompts, args_.generate, hooks);
    if (InterruptScope::raised()) return false;
    for (size_t i = 0; i < found.size(); ++i) {
      const auto &a = base.answers[i].ids, &b = other.answers[i].ids;
      found[i].equal_tokens = int(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    }
    return true;
  }

  std::span<float> base_row(int sequence, int position) {
    return std::span(base_logits_)
        .subspan((size_t(sequence) * size_t(args_.decode) + size_t(position - args_.context)) * vocab_, vocab_);
  }

  void check(std::span<const size_t> group, std::span<const WindowDivergence> found, int64_t base_rows) const {
    bool complete = base_rows == int64_t(group.size()) * args_.decode;
    for (size_t i = 0; i < group.size(); ++i) {
      complete = complete && found[i].tokens.size() == size_t(args_.decode);
      for (const TokenDivergence& token : found[i].tokens)
        if (!std::isfinite(token.kl)) fail("eval kl: window {}: the logits are not finite", group[i] + 1);
    }
    if (!complete) fail("eval kl: expected logits of {} positions per window, some are missing", args_.decode);
  }

  const KlArgs& args_;
  const Windows& windows_;
  Session &base_, &other_;
  std::vector<int32_t> bos_;
  size_t vocab_;
  std::vector<float> base_logits_;  // [window of the group, decode, vocab]
};

std::string base_name(const KlArgs& args) { return args.base.empty() ? "dense" : args.base; }

Json identity(const KlArgs& args, const Corpus& corpus, const ModelInfo& info, const PrunePlanInfo& plan,
              const PruneSettings& settings) {
  Json run = {
      {"task", "kl"},          {"corpus_sha256", corpus.sha256}, {"mode", args.mode},        {"context", args.context},
      {"decode", args.decode}, {"base", base_name(args)},        {"generate", args.generate}};
  run.update(run_identity(info, plan, settings));
  return run;
}

Json to_json(const KlArgs& args, const Corpus& corpus, std::span<const WindowDivergence> windows) {
  Json json;
  add_corpus(json, corpus);
  json["mode"] = args.mode;
  json["context"] = args.context;
  json["decode"] = args.decode;
  json["scored_tokens"] = windows.size() * windows[0].tokens.size();
  json["sequences"] = windows.size();
  json["base"] = base_name(args);
  json.update(divergence_json(windows, args.generate, args.seed.value_or(1)));
  return json;
}

void print_text(const Json& json, const PrunePlanInfo& plan, const std::string& base) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  fmt::print("{} against {}: {} windows of {} + {} tokens, {} scored ({})\n", describe(plan), base,
             json["sequences"].get<size_t>(), json["context"].get<int>(), json["decode"].get<int>(),
             json["scored_tokens"].get<size_t>(), json["mode"].get<std::string>());
  const auto line = [&](const std::string& name, const Json& mean, const Json& ci, double scale, const char* unit) {
    fmt::print("  {:<22}{:.5g}{}  [{:.5g}, {:.5g}]\n", name, number(mean) * scale, unit, number(ci[0]) * scale,
               number(ci[1]) * scale);
  };
  const Json &kl = json["kl"], &dp = json["delta_p"];
  line("KL, nats per token", kl["mean"], kl["ci95"], 1, "");
  fmt::print("  {:<22}{:.5g}, {:.5g}, {:.5g}\n", "median, 99 %, max", number(kl["median"]), number(kl["p99"]),
             number(kl["max"]));
  for (const Json& range : json["by_position"])
    line(fmt::format("KL of tokens {}-{}", range["from"].get<int>(), range["to"].get<int>()), range["kl"],
         range["ci95"], 1, "");
  line("same first choice", json["same_top"]["mean"], json["same_top"]["ci95"], 100, " %");
  fmt::print("  {:<22}{:.4f} and {:.4f}\n", "perplexity", number(json["ppl_dense"]), number(json["ppl_pruned"]));
  line("ln of their ratio", json["ln_ppl_ratio"]["mean"], json["ln_ppl_ratio"]["ci95"], 1, "");
  fmt::print("  {:<22}mean {:.3f} %, root of mean square {:.3f} %\n", "change of p(next)", 100 * number(dp["mean"]),
             100 * number(dp["rms"]));
  if (json.contains("first_divergence")) {
    const Json& first = json["first_divergence"];
    fmt::print("  {:<22}{:.4g}, quartiles {:.4g} and {:.4g}, of {}; {} never differed\n", "equal tokens, median",
               number(first["median"]), number(first["quartiles"][0]), number(first["quartiles"][1]),
               first["generated"].get<int>(), first["never"].get<int64_t>());
  }
  fmt::print("  [..]: 95 % interval, whole windows resampled\n");
}

void check(const KlArgs& args) {
  if (args.file.empty()) throw UsageError("eval kl: expected a text, -f FILE");
  if (!args.base.empty() && args.base != "activations=f32")
    throw UsageError(fmt::format("--base: expected activations=f32, found '{}'", printable(args.base)));
  if (args.output.quiet) return;
  const PruneSettings& prune = args.prune.settings;
  if (args.base.empty() && prune.method == "dense")
    note(args.output, "dense against dense gives exactly 0; choose a method with --prune, or --base activations=f32");
  if (args.mode == "prefill" && prune.method != "dense" && prune.prefill != "pruned")
    note(args.output, "only the answer is pruned by default, and --mode prefill has none; add --prefill pruned");
}

int eval_kl(const KlArgs& args) {
  check(args);
  const PruneSettings prune = args.prune.resolved(args.seed);
  const Corpus corpus = read_corpus(args.file, false);
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  std::optional<Engine> exact;  // the same file with the reference arithmetic
  if (!args.base.empty()) {
    EngineOptions options = args.engine;
    options.activations = "f32";
    exact.emplace(make_engine(options, args.output, {prune.method}));
  }
  const int longest = std::max(args.decode, args.generate);
  if (args.context + longest > engine.info().context)
    throw UsageError(fmt::format("--context {} + {} {} exceed the context of {} tokens (--ctx)", args.context,
                                 longest > args.decode ? "--generate" : "--decode", longest, engine.info().context));
  const Windows windows = cut(args, engine, corpus);
  if (windows.first.size() < size_t(args.sequences))
    note(args.output,
         fmt::format("the text has {} windows, fewer than --sequences {}", windows.first.size(), args.sequences));
  const auto other = engine.session(prune);
  const auto base = exact ? exact->session(prune) : engine.session({});
  SampleFile file(args.per_item, identity(args, corpus, engine.info(), other->plan(), prune));
  InterruptScope interrupts;
  const bool complete = Comparison(args, engine, windows, *base, *other).run(file);
  std::vector<WindowDivergence> done;
  for (const int64_t window : windows.places)
    if (file.has(window)) done.push_back(divergence_from(file.lines().at(window)[0]));
  if (done.empty()) return finish_without_result(args, "window");
  Json json = to_json(args, corpus, done);
  return finish(args, std::move(json), complete, engine.info(), other->plan(), file.reads(windows.places),
                [&](const Json& result) {
                  print_text(result, other->plan(), args.base.empty() ? "dense" : "the same in f32 arithmetic");
                });
}

}  // namespace

void add_eval_kl(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<KlArgs>();
  CLI::App* app = root.add_subcommand("kl");
  app->description(
      "How far a pruned model's distribution lies from the dense one's. Kullback-Leibler divergence in nats per token, "
      "over consecutive windows of a text, dense and pruned in one process. --base activations=f32 compares a fast "
      "arithmetic with the reference instead.");
  app->add_option("-f,--file", args->file, "The text")->option_text("FILE");
  app->add_option("--context", args->context, "Tokens of a window that are prefill [256]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--decode", args->decode, "Tokens of a window after that, which are scored [128]")
      ->option_text("M")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--sequences", args->sequences, "Windows at most [40]")
      ->option_text("S")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--mode", args->mode,
                  "split: the scored tokens go through decode; prefill: one pass over all [split]")
      ->option_text("MODE")
      ->check(one_of({"split", "prefill"}));
  app->add_option("--base", args->base, "activations=f32: compare with the same method in reference arithmetic [dense]")
      ->option_text("WHAT");
  app->add_option("--generate", args->generate,
                  "Also answer every window's context greedily with N tokens, and count those that are equal before "
                  "the first difference [0: do not]")
      ->option_text("N")
      ->check(whole_in(0, 1 << 20));
  app->add_option("--batch", args->batch, "Windows in one forward pass; changes no result [4]")
      ->option_text("N")
      ->check(whole_in(1, 64));
  add_eval_options(*app, *args, "window");
  app->footer(
      "Examples:\n"
      "  pop eval kl -f wiki.test.raw --prune pop --ratio 0.2\n"
      "  pop eval kl -f wiki.test.raw --base activations=f32 --sequences 20 --json\n");
  commands.push_back({app, [args] { return eval_kl(*args); }});
}

}  // namespace pop::app
