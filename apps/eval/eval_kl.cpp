// pop eval kl: what pruning (or a cheaper arithmetic) does to the model's distribution, on a text.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include "apps/eval/commands.h"
#include "apps/eval/kl.h"
#include "apps/eval/reads.h"
#include "apps/eval/report.h"
#include "apps/eval/statistics.h"
#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"
#include "base/hash.h"

namespace pop::app {
namespace {

struct KlArgs {
  EngineOptions engine;
  PruneArgs prune;
  OutputArgs output;
  std::string file, mode = "split", base, csv;
  int context = 256, decode = 128, sequences = 40, batch = 4;
  std::optional<uint64_t> seed;
};

struct Window {
  size_t first = 0;  // its first token in the corpus
  std::vector<TokenDivergence> tokens;
};

struct Corpus {
  std::string sha256;
  std::vector<int32_t> ids;
  std::vector<Window> windows;
};

// Consecutive windows; each needs one token more, the target of its last position.
Corpus read_corpus(const KlArgs& args, const Engine& engine) {
  std::string bytes = read_file(args.file);
  Corpus corpus;
  corpus.sha256 = sha256_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  corpus.ids = engine.encode(bytes);
  const size_t length = size_t(args.context) + size_t(args.decode);
  const size_t fit = corpus.ids.empty() ? 0 : (corpus.ids.size() - 1) / length;
  if (fit == 0)
    fail("{}: expected at least {} tokens (--context + --decode + 1), found {}", printable(args.file, 400), length + 1,
         corpus.ids.size());
  corpus.windows.resize(std::min<size_t>(fit, args.sequences));
  for (size_t i = 0; i < corpus.windows.size(); ++i) corpus.windows[i].first = i * length;
  return corpus;
}

// Compares two sessions window by window; both see the same tokens, cut at the same place.
class Comparison {
 public:
  Comparison(const KlArgs& args, const Engine& engine, Corpus& corpus, Session& base, Session& other)
      : args_(args),
        corpus_(corpus),
        base_(base),
        other_(other),
        bos_(engine.prompt("")),
        vocab_(engine.info().vocab) {}

  // False: interrupted; the corpus then has the windows that were done.
  bool run() {
    Progress progress("eval kl", args_.output);
    auto& windows = corpus_.windows;
    for (size_t first = 0; first < windows.size(); first += args_.batch) {
      run_group(first, std::min<size_t>(args_.batch, windows.size() - first));
      if (InterruptScope::raised()) {
        windows.erase(windows.begin() + static_cast<ptrdiff_t>(first), windows.end());
        return false;
      }
      progress.update(static_cast<int64_t>(first) + args_.batch, static_cast<int64_t>(windows.size()));
    }
    return true;
  }

  const ReadStats& reads() const { return reads_; }

 private:
  void run_group(size_t first, size_t count) {
    std::vector<ScoreRequest> requests;
    for (size_t i = 0; i < count; ++i) requests.push_back(request(corpus_.windows[first + i]));
    base_logits_.assign(count * args_.decode * vocab_, 0.0f);
    int64_t base_rows = 0;
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    hooks.on_logits = [&](int sequence, int position, std::span<const float> logits) {
      if (position < args_.context) return;
      ++base_rows;
      std::copy(logits.begin(), logits.end(), base_row(sequence, position).begin());
    };
    base_.score(requests, args_.batch, hooks);
    if (InterruptScope::raised()) return;
    hooks.on_logits = [&](int sequence, int position, std::span<const float> logits) {
      if (position < args_.context) return;
      Window& window = corpus_.windows[first + sequence];
      window.tokens.push_back(diverge(base_row(sequence, position), logits, corpus_.ids[window.first + position + 1]));
    };
    const auto results = other_.score(requests, args_.batch, hooks);
    if (InterruptScope::raised()) return;
    for (const ScoreResult& result : results) add_reads(reads_, result.reads);
    check(first, count, base_rows);
  }

  ScoreRequest request(const Window& window) const {
    const auto begin = corpus_.ids.begin() + static_cast<ptrdiff_t>(window.first);
    ScoreRequest out{
        {begin, begin + args_.context + args_.decode}, args_.mode == "split" ? args_.context : -1, args_.context + 1};
    // A model that wants a beginning token gets it in place of the window's first one, so that the length stays.
    if (!bos_.empty()) out.ids.front() = bos_.front();
    return out;
  }

  std::span<float> base_row(int sequence, int position) {
    return std::span(base_logits_)
        .subspan((size_t(sequence) * args_.decode + (position - args_.context)) * vocab_, vocab_);
  }

  void check(size_t first, size_t count, int64_t base_rows) const {
    bool complete = base_rows == int64_t(count) * args_.decode;
    for (size_t i = first; i < first + count; ++i) {
      complete = complete && corpus_.windows[i].tokens.size() == size_t(args_.decode);
      for (const TokenDivergence& token : corpus_.windows[i].tokens)
        if (!std::isfinite(token.kl)) fail("eval kl: window {}: the logits are not finite", i + 1);
    }
    if (!complete) fail("eval kl: expected logits of {} positions per window, some are missing", args_.decode);
  }

  const KlArgs& args_;
  Corpus& corpus_;
  Session &base_, &other_;
  std::vector<int32_t> bos_;
  size_t vocab_;
  std::vector<float> base_logits_;  // [window of the group, decode, vocab]
  ReadStats reads_;
};

struct Summary {
  std::vector<double> kl;                                // of every token
  std::vector<double> window_kl, window_top, window_ln;  // means of every window
  double nll_base = 0, nll_other = 0;                    // means over all tokens
  struct Range {
    int from, to;
    double kl;
  };
  std::vector<Range> ranges;
};

Summary summarize(const KlArgs& args, const std::vector<Window>& windows) {
  Summary out;
  std::vector<double> base, other;
  for (const Window& window : windows) {
    std::vector<double> kl, top, ln;
    for (const TokenDivergence& token : window.tokens) {
      kl.push_back(token.kl);
      top.push_back(token.same_top ? 1 : 0);
      ln.push_back(token.nll_other - token.nll_base);
      base.push_back(token.nll_base);
      other.push_back(token.nll_other);
    }
    out.window_kl.push_back(mean(kl));
    out.window_top.push_back(mean(top));
    out.window_ln.push_back(mean(ln));
    out.kl.insert(out.kl.end(), kl.begin(), kl.end());
  }
  out.nll_base = mean(base);
  out.nll_other = mean(other);
  for (const auto& [from, to] : {std::pair{1, 16}, {17, 64}, {65, args.decode}}) {
    std::vector<double> values;
    const int last = std::min(to, args.decode);
    for (const Window& window : windows)
      for (int i = from; i <= last; ++i) values.push_back(window.tokens[i - 1].kl);
    if (!values.empty()) out.ranges.push_back({from, last, mean(values)});
  }
  return out;
}

Json to_json(const KlArgs& args, const Corpus& corpus, const Summary& s) {
  const uint64_t seed = args.seed.value_or(1);
  const auto interval = [&](const std::vector<double>& values) {
    const Interval ci = bootstrap_mean(values, seed);
    return Json::array({ci.low, ci.high});
  };
  Json json;
  json["corpus"] = args.file;
  json["corpus_sha256"] = corpus.sha256;
  json["mode"] = args.mode;
  json["context"] = args.context;
  json["decode"] = args.decode;
  json["scored_tokens"] = s.kl.size();
  json["sequences"] = corpus.windows.size();
  json["base"] = args.base.empty() ? "dense" : args.base;
  json["kl"] = {{"mean", mean(s.kl)},
                {"ci95", interval(s.window_kl)},
                {"median", percentile(s.kl, 0.5)},
                {"p99", percentile(s.kl, 0.99)},
                {"max", *std::max_element(s.kl.begin(), s.kl.end())}};
  json["same_top"] = {{"mean", mean(s.window_top)}, {"ci95", interval(s.window_top)}};
  json["ppl_dense"] = std::exp(s.nll_base);
  json["ppl_pruned"] = std::exp(s.nll_other);
  json["ln_ppl_ratio"] = {{"mean", mean(s.window_ln)}, {"ci95", interval(s.window_ln)}};
  json["by_position"] = Json::array();
  for (const auto& range : s.ranges)
    json["by_position"].push_back({{"from", range.from}, {"to", range.to}, {"kl", range.kl}});
  return json;
}

void print_text(const Json& json, const PrunePlanInfo& plan, const std::string& base) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  fmt::print("{} against {}: {} windows of {} + {} tokens, {} scored ({})\n", describe(plan), base,
             json["sequences"].get<size_t>(), json["context"].get<int>(), json["decode"].get<int>(),
             json["scored_tokens"].get<size_t>(), json["mode"].get<std::string>());
  const auto line = [&](const char* name, const Json& value, double scale, const char* unit) {
    fmt::print("  {:<22}{:.5g}{}  [{:.5g}, {:.5g}]\n", name, number(value["mean"]) * scale, unit,
               number(value["ci95"][0]) * scale, number(value["ci95"][1]) * scale);
  };
  line("KL, nats per token", json["kl"], 1, "");
  fmt::print("  {:<22}{:.5g}, {:.5g}, {:.5g}\n", "median, 99 %, max", number(json["kl"]["median"]),
             number(json["kl"]["p99"]), number(json["kl"]["max"]));
  for (const Json& range : json["by_position"])
    fmt::print("  {:<22}{:.5g}\n", fmt::format("KL of tokens {}-{}", range["from"].get<int>(), range["to"].get<int>()),
               number(range["kl"]));
  line("same first choice", json["same_top"], 100, " %");
  fmt::print("  {:<22}{:.4f} and {:.4f}\n", "perplexity", number(json["ppl_dense"]), number(json["ppl_pruned"]));
  line("ln of their ratio", json["ln_ppl_ratio"], 1, "");
  if (!json["weights_read_share"].is_null())
    fmt::print("  {:<22}{:.1f} MB, {:.3f} of dense (blocks {:.3f}); used {:.3f} of the blocks' elements\n",
               "read per token", number(json["weight_bytes_per_token"]) / 1e6, number(json["weights_read_share"]),
               number(json["block_weights_read_share"]), number(json["selected_share"]));
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
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  std::optional<Engine> exact;  // the same file with the reference arithmetic
  if (!args.base.empty()) {
    EngineOptions options = args.engine;
    options.activations = "f32";
    exact.emplace(make_engine(options, args.output, {prune.method}));
  }
  if (args.context + args.decode > engine.info().context)
    throw UsageError(fmt::format("--context {} + --decode {} exceed the context of {} tokens (--ctx)", args.context,
                                 args.decode, engine.info().context));
  Corpus corpus = read_corpus(args, engine);
  if (corpus.windows.size() < size_t(args.sequences))
    note(args.output,
         fmt::format("the text has {} windows, fewer than --sequences {}", corpus.windows.size(), args.sequences));
  const auto other = engine.session(prune);
  const auto base = exact ? exact->session(prune) : engine.session({});
  InterruptScope interrupts;
  Comparison comparison(args, engine, corpus, *base, *other);
  const bool complete = comparison.run();
  if (corpus.windows.empty()) {
    note(args.output, "interrupted before the first window was done");
    return kInterrupted;
  }
  Json json = to_json(args, corpus, summarize(args, corpus.windows));
  json["finish_reason"] = complete ? "complete" : "interrupted";
  add_common(json, engine.info(), other->plan(), comparison.reads());
  if (!args.csv.empty()) write_result_row(args.csv, json);
  if (args.output.json)
    print_json(json);
  else
    print_text(json, other->plan(), args.base.empty() ? "dense" : "the same in f32 arithmetic");
  return complete ? kDone : kInterrupted;
}

}  // namespace

void add_eval_kl(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<KlArgs>();
  CLI::App* app = root.add_subcommand("kl");
  app->description(
      "How far a pruned model's distribution lies from the dense one's. Kullback-Leibler divergence in nats per token, "
      "over "
      "consecutive windows of a text, dense and pruned in one process. --base activations=f32 compares a fast "
      "arithmetic with "
      "the reference instead.");
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
  app->add_option("--batch", args->batch, "Windows in one forward pass; changes no result [4]")
      ->option_text("N")
      ->check(whole_in(1, 64));
  app->add_option("--csv", args->csv, "Write the result as a header and one row")->option_text("FILE");
  add_prune_options(*app, args->prune);
  add_seed_option(*app, args->seed);
  add_model_options(*app, args->engine);
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop eval kl -f wiki.test.raw --prune pop --ratio 0.2\n"
      "  pop eval kl -f wiki.test.raw --base activations=f32 --sequences 20 --json\n");
  commands.push_back({app, [args] { return eval_kl(*args); }});
}

}  // namespace pop::app
