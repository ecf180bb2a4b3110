// pop eval kl: what pruning (or a cheaper arithmetic) does to the model's distribution, on a text.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>

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
  std::vector<double> ratios;
  int context = 256, decode = 128, sequences = 40, batch = 4, generate = 0;
};

// Consecutive windows; each needs one token more, the target of its last position.
struct KlWindows {
  std::vector<int32_t> ids;
  std::vector<size_t> first;    // of every window, its first token in ids
  std::vector<int64_t> places;  // 0, 1, ...: what the per-item file calls them
};

KlWindows cut(const KlArgs& args, const Engine& engine, const Corpus& corpus) {
  KlWindows out{engine.encode(corpus.documents[0]), {}, {}};
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

constexpr std::string_view kBaseModel = "model=", kBaseF32 = "activations=f32";

bool other_model(const KlArgs& args) { return args.base.starts_with(kBaseModel); }

// What the results call the base.
std::string base_name(const KlArgs& args, const ModelInfo& base) {
  if (other_model(args)) return "dense, model " + base.model_sha256;
  return args.base.empty() ? "dense" : args.base;
}

Json identity(const KlArgs& args, const Corpus& corpus, const ModelInfo& info, const ModelInfo& base,
              const PrunePlanInfo& plan, const PruneSettings& settings) {
  Json run = {
      {"task", "kl"},          {"corpus_sha256", corpus.sha256}, {"mode", args.mode},        {"context", args.context},
      {"decode", args.decode}, {"base", base_name(args, base)},  {"generate", args.generate}};
  run.update(run_identity(info, plan, settings));
  return run;
}

// One session that is compared with the base, and what is known of it.
struct Side {
  KlArgs args;
  std::unique_ptr<Session> session;
  SampleFile file;

  Side(KlArgs a, const PruneSettings& prune, Engine& engine, const ModelInfo& base, const Corpus& corpus)
      : args(std::move(a)),
        session(engine.session(prune)),
        file(args.per_item, identity(args, corpus, engine.info(), base, session->plan(), prune)) {}
};

// Compares sessions with a base, window by window; all see the same tokens, cut at the same place.
class Comparison {
 public:
  Comparison(const KlArgs& args, const Engine& engine, const KlWindows& windows, Session& base,
             std::span<const std::unique_ptr<Side>> sides)
      : args_(args),
        windows_(windows),
        base_(base),
        sides_(sides),
        bos_(engine.prompt("")),
        vocab_(size_t(engine.info().vocab)) {}

  // False: interrupted; the files then have the windows that were done.
  bool run() {
    std::set<size_t> some;
    for (const auto& side : sides_)
      for (const size_t window : still_to_do(side->args, side->file, windows_.places, "window")) some.insert(window);
    const std::vector<size_t> pending(some.begin(), some.end());
    Progress progress("eval kl", args_.output);
    for (size_t first = 0; first < pending.size(); first += size_t(args_.batch)) {
      const auto group = std::span(pending).subspan(first, std::min(size_t(args_.batch), pending.size() - first));
      if (!run_group(group)) return false;
      progress.update(int64_t(first + group.size()), int64_t(pending.size()));
    }
    return true;
  }

 private:
  // The base reads a group once, whatever the number of sides.
  bool run_group(std::span<const size_t> group) {
    std::vector<ScoreRequest> requests;
    for (const size_t window : group) requests.push_back(request(window));
    base_logits_.assign(group.size() * size_t(args_.decode) * vocab_, 0.0f);
    size_t base_rows = 0;
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    hooks.on_logits = [&](int sequence, int position, std::span<const float> logits) {
      if (position < args_.context) return;
      ++base_rows;
      std::copy(logits.begin(), logits.end(), base_row(size_t(sequence), position).begin());
    };
    base_.score(requests, args_.batch, hooks);
    if (InterruptScope::raised()) return false;
    if (base_rows != group.size() * size_t(args_.decode)) fail_missing();
    std::vector<std::vector<int32_t>> answers;
    if (args_.generate > 0 && !answer(base_, requests, answers)) return false;
    return std::all_of(sides_.begin(), sides_.end(),
                       [&](const auto& side) { return compare(*side, group, requests, answers); });
  }

  // Those windows of the group that the side does not have yet. False: interrupted.
  bool compare(Side& side, std::span<const size_t> group, std::span<const ScoreRequest> all,
               std::span<const std::vector<int32_t>> base_answers) {
    std::vector<size_t> mine;  // places in the group
    std::vector<ScoreRequest> requests;
    for (size_t i = 0; i < group.size(); ++i)
      if (!side.file.has(windows_.places[group[i]])) {
        mine.push_back(i);
        requests.push_back(all[i]);
      }
    if (mine.empty()) return true;
    std::vector<WindowDivergence> found(mine.size());
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    hooks.on_logits = [&](int sequence, int position, std::span<const float> logits) {
      if (position < args_.context) return;
      const size_t place = mine[size_t(sequence)];
      const size_t next = windows_.first[group[place]] + size_t(position) + 1;
      found[size_t(sequence)].tokens.push_back(diverge(base_row(place, position), logits, windows_.ids[next]));
    };
    const auto results = side.session->score(requests, args_.batch, hooks);
    if (InterruptScope::raised()) return false;
    std::vector<std::vector<int32_t>> answers;
    if (args_.generate > 0 && !answer(*side.session, requests, answers)) return false;
    for (size_t i = 0; i < mine.size(); ++i) {
      const size_t window = group[mine[i]];
      check(window, found[i]);
      if (args_.generate > 0) {
        const auto &a = base_answers[mine[i]], &b = answers[i];
        found[i].equal_tokens = int(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
      }
      Sample sample = divergence_sample(int64_t(window), found[i]);
      sample.doc_hash = sample.prompt = sha256_ids(requests[i].ids);
      sample.reads = results[i].reads;
      side.file.add({sample});
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

  // Greedy answers to every window's context. False: interrupted.
  bool answer(Session& session, std::span<const ScoreRequest> requests, std::vector<std::vector<int32_t>>& answers) {
    std::vector<std::vector<int32_t>> prompts;
    for (const ScoreRequest& request : requests)
      prompts.emplace_back(request.ids.begin(), request.ids.begin() + args_.context);
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    for (auto& one : session.generate_batch(prompts, args_.generate, hooks).answers)
      answers.push_back(std::move(one.ids));
    return !InterruptScope::raised();
  }

  std::span<float> base_row(size_t place, int position) {
    return std::span(base_logits_)
        .subspan((place * size_t(args_.decode) + size_t(position - args_.context)) * vocab_, vocab_);
  }

  [[noreturn]] void fail_missing() const {
    fail("eval kl: expected logits of {} positions per window, some are missing", args_.decode);
  }

  void check(size_t window, const WindowDivergence& found) const {
    if (found.tokens.size() != size_t(args_.decode)) fail_missing();
    for (const TokenDivergence& token : found.tokens)
      if (!std::isfinite(token.kl)) fail("eval kl: window {}: the logits are not finite", window + 1);
  }

  const KlArgs& args_;
  const KlWindows& windows_;
  Session& base_;
  std::span<const std::unique_ptr<Side>> sides_;
  std::vector<int32_t> bos_;
  size_t vocab_;
  std::vector<float> base_logits_;  // [window of the group, decode, vocab]
};

Json to_json(const KlArgs& args, const Corpus& corpus, const ModelInfo& base,
             std::span<const WindowDivergence> windows) {
  Json json;
  add_corpus(json, corpus);
  json["mode"] = args.mode;
  json["context"] = args.context;
  json["decode"] = args.decode;
  json["scored_tokens"] = windows.size() * windows[0].tokens.size();
  json["sequences"] = windows.size();
  json["base"] = base_name(args, base);
  json.update(divergence_json(windows, args.generate, args.seed.value_or(1)));
  return json;
}

void print_kl(const Json& json, const PrunePlanInfo& plan, const std::string& base) {
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
  if (!args.base.empty() && args.base != kBaseF32 && (!other_model(args) || args.base.size() == kBaseModel.size()))
    throw UsageError(
        fmt::format("--base: expected activations=f32 or model=PATH, found '{}'", printable(args.base, 400)));
  const PruneSettings& prune = args.prune.settings;
  if (!args.ratios.empty()) {
    if (prune.ratio || prune.ffn_sparsity)
      throw UsageError("--ratios: expected neither --ratio nor --ffn-sparsity beside it");
    if (args.base == kBaseF32) throw UsageError("--ratios: expected a dense base, found --base activations=f32");
    for (size_t i = 0; i < args.ratios.size(); ++i)
      if (std::find(args.ratios.begin(), args.ratios.begin() + std::ptrdiff_t(i), args.ratios[i]) !=
          args.ratios.begin() + std::ptrdiff_t(i))
        throw UsageError(fmt::format("--ratios: expected each once, found {} twice", args.ratios[i]));
    if (prune.method == "dense") throw UsageError("--ratios: expected a method that prunes (--prune)");
  }
  if (args.output.quiet) return;
  if (args.base.empty() && prune.method == "dense")
    note(args.output, "dense against dense gives exactly 0; choose a method with --prune, or --base activations=f32");
  if (args.mode == "prefill" && prune.method != "dense" && prune.prefill != "pruned")
    note(args.output, "only the answer is pruned by default, and --mode prefill has none; add --prefill pruned");
}

// The options of each side: one per ratio, with files of their own.
std::vector<KlArgs> sides_of(const KlArgs& args) {
  if (args.ratios.empty()) return {args};
  std::vector<KlArgs> out;
  for (const double ratio : args.ratios) {
    KlArgs& one = out.emplace_back(args);
    one.prune.settings.ratio = ratio;
    for (std::string* path : {&one.per_item, &one.csv})
      if (!path->empty()) *path += fmt::format(".{}", ratio);
  }
  return out;
}

int report(const Side& side, const Corpus& corpus, const Engine& engine, const ModelInfo& base,
           const KlWindows& windows, bool complete) {
  std::vector<WindowDivergence> done;
  for (const int64_t window : windows.places)
    if (side.file.has(window)) done.push_back(divergence_from(side.file.lines().at(window)[0]));
  if (done.empty()) return finish_without_result(side.args, "window");
  const PrunePlanInfo& plan = side.session->plan();
  return finish(side.args, to_json(side.args, corpus, base, done), complete, engine.info(), plan,
                side.file.reads(windows.places), [&](const Json& result) {
                  print_kl(
                      result, plan,
                      side.args.base == kBaseF32 ? "the same in f32 arithmetic" : result["base"].get<std::string>());
                });
}

// The engine of --base, if it is not the one that is measured: the same file with the reference arithmetic, or another file.
std::optional<Engine> base_engine(const KlArgs& args, const PruneSettings& prune) {
  if (args.base.empty()) return std::nullopt;
  EngineOptions options = args.engine;
  if (!other_model(args)) {
    options.activations = "f32";
    return make_engine(options, args.output, {prune.method});
  }
  options.model = args.base.substr(kBaseModel.size());
  options.load_as.clear();  // --load-as is of the model that is measured
  return make_engine(options, args.output, {"dense"});
}

// Two models are compared token by token: the text must be the same ids to both, over as many words.
void check_same_tokens(const Engine& engine, const Engine& base, const Corpus& corpus, const KlWindows& windows) {
  if (base.info().vocab != engine.info().vocab)
    fail("--base: expected a model of {} tokens, found {}", engine.info().vocab, base.info().vocab);
  if (base.encode(corpus.documents[0]) != windows.ids) fail("--base: expected a model with the same tokenizer");
}

int eval_kl(const KlArgs& args) {
  check(args);
  const PruneSettings prune = args.prune.resolved(args.seed);
  const Corpus corpus = read_corpus(args.file, false);
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  std::optional<Engine> second = base_engine(args, prune);
  Engine& base_of = second ? *second : engine;
  const int longest = std::max(args.decode, args.generate);
  const int room = std::min(engine.info().context, base_of.info().context);
  if (args.context + longest > room)
    throw UsageError(fmt::format("--context {} + {} {} exceed the context of {} tokens (--ctx)", args.context,
                                 longest > args.decode ? "--generate" : "--decode", longest, room));
  const KlWindows windows = cut(args, engine, corpus);
  if (windows.first.size() < size_t(args.sequences))
    note(args.output,
         fmt::format("the text has {} windows, fewer than --sequences {}", windows.first.size(), args.sequences));
  if (other_model(args)) check_same_tokens(engine, base_of, corpus, windows);
  std::vector<std::unique_ptr<Side>> sides;
  for (const KlArgs& one : sides_of(args))
    sides.push_back(std::make_unique<Side>(one, one.prune.resolved(args.seed), engine, base_of.info(), corpus));
  const auto base = base_of.session(args.base == kBaseF32 ? prune : PruneSettings{});
  InterruptScope interrupts;
  const bool complete = Comparison(args, engine, windows, *base, sides).run();
  int code = kDone;
  for (const auto& side : sides)
    code = std::max(code, report(*side, corpus, engine, base_of.info(), windows, complete));
  return code;
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
  app->add_option("--ratios", args->ratios,
                  "Several ratios, separated by commas, in place of --ratio: the dense model reads the text once. One "
                  "result after another (--json: a line each); --per-item and --csv get files FILE.RATIO")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(real_in(0, 1));
  app->add_option(
         "--base", args->base,
         "What is compared with: activations=f32: the same method in reference arithmetic; model=PATH: another "
         "file's dense model, of the same tokens (fewer bits, say) [dense]")
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
      "  pop eval kl -f wiki.test.raw --prune pop+ --ratios 0.1,0.2,0.4 --json\n"
      "  pop eval kl -f wiki.test.raw --base activations=f32 --sequences 20 --json\n");
  commands.push_back({app, [args] { return eval_kl(*args); }});
}

}  // namespace pop::app
