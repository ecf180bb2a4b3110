// pop eval ppl: perplexity of a text, by the conventions that published numbers follow.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "apps/eval/commands.h"
#include "apps/eval/corpus.h"
#include "apps/eval/evaluation.h"
#include "apps/eval/statistics.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct PplArgs : EvalArgs {
  std::string file, convention = "llama", mode;
  bool lines = false;
  int context = 0, chunks = 0, batch = 4;

  bool split() const { return mode.empty() ? convention == "llama" : mode == "split"; }
  int window() const { return context > 0 ? context : convention == "llama" ? 512 : 2048; }
};

// The text cut into windows, and what is counted of it.
struct PplWindows {
  std::vector<ForcedText> list;
  std::vector<std::string> owners;  // of each window: its document, for intervals; "" where each stands for itself
  std::string ids_sha256;
  size_t tokens = 0, words = 0, bytes = 0;
};

void check_size(const PplArgs& args, size_t tokens) {
  const size_t least = args.convention == "llama" ? 2 * size_t(args.window()) : size_t(args.window());
  if (tokens < least)
    fail("{}: expected at least {} tokens (convention {}, --context {}), found {}", printable(args.file, 400), least,
         args.convention, args.window(), tokens);
}

PplWindows rolling(const PplArgs& args, const Engine& engine, const Corpus& corpus) {
  PplWindows out;
  std::vector<int32_t> all;
  for (size_t i = 0; i < corpus.documents.size(); ++i) {
    const std::string& document = corpus.documents[i];
    const std::vector<int32_t> ids = engine.encode(document);
    for (ForcedText& window : rolling_windows(ids, prefix_token(engine.info()), args.window())) {
      out.list.push_back(std::move(window));
      out.owners.push_back(corpus.documents.size() > 1 ? fmt::format("document {}", i) : "");
    }
    all.insert(all.end(), ids.begin(), ids.end());
    out.words += count_words(document);
    out.bytes += document.size();
  }
  out.tokens = all.size();
  out.ids_sha256 = sha256_ids(all);
  if (out.list.empty()) fail("{}: expected at least one token, found none", printable(args.file, 400));
  return out;
}

PplWindows cut(const PplArgs& args, const Engine& engine, const Corpus& corpus) {
  if (args.convention == "rolling") return rolling(args, engine, corpus);
  std::string text = corpus.documents[0];
  const bool llama = args.convention == "llama";
  if (llama && text.ends_with('\n')) text.pop_back();  // as llama-perplexity reads its file
  const std::vector<int32_t> ids = engine.prompt(text);
  check_size(args, ids.size());
  PplWindows out;
  out.list =
      llama ? llama_windows(ids, engine.prompt(""), args.window(), args.split()) : chunk_windows(ids, args.window());
  out.owners.resize(out.list.size());
  out.tokens = ids.size();
  out.ids_sha256 = sha256_ids(ids);
  out.words = count_words(text);
  out.bytes = text.size();
  return out;
}

Json identity(const PplArgs& args, const Corpus& corpus, const PplWindows& windows, const ModelInfo& info,
              const PrunePlanInfo& plan, const PruneSettings& settings) {
  Json run;
  run["task"] = "ppl";
  run["corpus_sha256"] = corpus.sha256;
  run["ids_sha256"] = windows.ids_sha256;
  run["convention"] = args.convention;
  run["context"] = args.window();
  run["mode"] = args.split() ? "split" : "prefill";
  run.update(run_identity(info, plan, settings));
  return run;
}

// A window's line: its tokens' -ln p, so that a continued run gives every figure of an uninterrupted one.
Sample sample_of(size_t place, const ForcedText& window, const std::string& owner, const ForcedResult& result) {
  Sample out;
  out.doc_id = static_cast<int64_t>(place);
  out.doc_hash = sha256_ids(window.ids);
  out.prompt = out.doc_hash;
  out.cluster = owner;
  Json nll = Json::array();
  double sum = 0;
  for (const Prediction& p : result.predictions) {
    nll.push_back(-p.logprob);
    sum -= p.logprob;
  }
  out.metrics["nll"] = sum / double(std::max<size_t>(1, result.predictions.size()));
  out.more["nlls"] = std::move(nll);
  out.reads = result.reads;
  return out;
}

// False: interrupted; the file has the windows that were done.
bool score(const PplArgs& args, Session& session, const PplWindows& windows, std::span<const int64_t> ids,
           SampleFile& file) {
  const std::vector<size_t> pending = still_to_do(args, file, ids, "window");
  Progress progress("eval ppl", args.output);
  for (size_t first = 0; first < pending.size(); first += size_t(args.batch)) {
    const size_t group = std::min<size_t>(size_t(args.batch), pending.size() - first);
    std::vector<ForcedText> texts;
    for (size_t i = 0; i < group; ++i) texts.push_back(windows.list[pending[first + i]]);
    const auto results = predict(session, texts, args.batch, InterruptScope::raised);
    if (results.empty()) return false;
    for (size_t i = 0; i < group; ++i) {
      const size_t place = pending[first + i];
      file.add({sample_of(place, windows.list[place], windows.owners[place], results[i])});
    }
    progress.update(static_cast<int64_t>(first + group), static_cast<int64_t>(pending.size()));
  }
  return true;
}

struct Scores {
  std::vector<double> nll;            // of every token
  std::vector<std::string> clusters;  // of every token: its window, or its document
  size_t windows = 0;
};

Scores collect(const SampleFile& file, std::span<const int64_t> ids) {
  Scores out;
  for (const int64_t id : ids) {
    const auto found = file.lines().find(id);
    if (found == file.lines().end()) continue;
    const Json& line = found->second[0];
    ++out.windows;
    for (const Json& value : line_field(line, "nlls")) {
      out.nll.push_back(value.get<double>());
      out.clusters.push_back(line.value("cluster", fmt::format("window {}", id)));
    }
  }
  return out;
}

Json to_json(const PplArgs& args, const Corpus& corpus, const PplWindows& windows, const Scores& s) {
  const double nll = mean(s.nll), ppl = std::exp(nll);
  std::vector<double> squares;
  for (const double value : s.nll) squares.push_back(value * value);
  const double n = double(s.nll.size());
  const Interval ci = bootstrap_mean(s.nll, s.clusters, args.seed.value_or(1), 2000);
  Json json;
  add_corpus(json, corpus);
  json["ids_sha256"] = windows.ids_sha256;
  json["convention"] = args.convention;
  json["mode"] = args.split() ? "split" : "prefill";
  json["context"] = args.window();
  json["chunks"] = s.windows;
  json["tokens"] = windows.tokens;
  json["scored_tokens"] = s.nll.size();
  json["ppl"] = ppl;
  // llama-perplexity's: every token independent, population variance over N - 1.
  json["se"] = n > 1 ? ppl * std::sqrt(std::max(0.0, mean(squares) - nll * nll) / (n - 1)) : 0;
  json["ci95"] = Json::array({std::exp(ci.low), std::exp(ci.high)});
  json["nll_mean"] = nll;
  if (args.convention == "rolling" && s.windows == windows.list.size()) {
    json["word_ppl"] = std::exp(nll * n / double(windows.words));
    json["byte_ppl"] = std::exp(nll * n / double(windows.bytes));
    json["bits_per_byte"] = nll * n / double(windows.bytes) / std::log(2.0);
  }
  return json;
}

void print_ppl(const Json& json, const PrunePlanInfo& plan) {
  const auto number = [&](const char* name) { return json[name].get<double>(); };
  fmt::print("{}: {} windows of {} tokens, {} scored (convention {}, {})\n", describe(plan),
             json["chunks"].get<size_t>(), json["context"].get<int>(), json["scored_tokens"].get<size_t>(),
             json["convention"].get<std::string>(), json["mode"].get<std::string>());
  fmt::print("  {:<18}{:.4f} +/- {:.4f}  [{:.4f}, {:.4f}]\n", "perplexity", number("ppl"), number("se"),
             json["ci95"][0].get<double>(), json["ci95"][1].get<double>());
  if (json.contains("word_ppl"))
    fmt::print("  {:<18}{:.4f} per word, {:.4f} per byte\n", "", number("word_ppl"), number("byte_ppl"));
  fmt::print("  +/-: tokens taken as independent; [..]: 95 % interval, whole windows resampled\n");
}

void check(const PplArgs& args) {
  if (args.file.empty()) throw UsageError("eval ppl: expected a text, -f FILE");
  if (args.mode == "split" && args.convention != "llama")
    throw UsageError(fmt::format("--mode split belongs to --convention llama, whose first half is context; found {}",
                                 args.convention));
  if (args.lines && args.convention != "rolling") throw UsageError("--lines belongs to --convention rolling");
  const PruneSettings& prune = args.prune.settings;
  if (!args.split() && prune.method != "dense" && prune.prefill != "pruned")
    note(args.output, "only what is decoded is pruned by default, and here nothing is; add --prefill pruned");
}

int eval_ppl(const PplArgs& args) {
  check(args);
  const PruneSettings prune = args.prune.resolved(args.seed);
  const Corpus corpus = read_corpus(args.file, args.lines);
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  if (args.window() > engine.info().context)
    throw UsageError(
        fmt::format("--context {} exceeds the context of {} tokens (--ctx)", args.window(), engine.info().context));
  const PplWindows windows = cut(args, engine, corpus);
  const size_t count = args.chunks > 0 ? std::min(size_t(args.chunks), windows.list.size()) : windows.list.size();
  const auto session = engine.session(prune);
  SampleFile file(args.per_item, identity(args, corpus, windows, engine.info(), session->plan(), prune));
  InterruptScope interrupts;
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  const bool complete = score(args, *session, windows, ids, file);
  const Scores scores = collect(file, ids);
  if (scores.nll.empty()) return finish_without_result(args, "window");
  Json json = to_json(args, corpus, windows, scores);
  return finish(args, std::move(json), complete, engine.info(), session->plan(), file.reads(ids),
                [&](const Json& result) { print_ppl(result, session->plan()); });
}

}  // namespace

void add_eval_ppl(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<PplArgs>();
  CLI::App* app = root.add_subcommand("ppl");
  app->description(
      "Perplexity of a text: exp of the mean of -ln p over the scored tokens. Numbers of different conventions do not "
      "compare.\n"
      "  llama     windows of 512, the second half of each is scored (llama-perplexity)\n"
      "  hf-chunk  windows of 2048, all but the first token of each (SparseGPT, Wanda)\n"
      "  rolling   every token once, and perplexity per word and byte (lm-eval)");
  app->add_option("-f,--file", args->file, "The text")->option_text("FILE");
  app->add_flag("--lines", args->lines, "The file is JSON Lines, a document in the field \"text\" of each (rolling)");
  app->add_option("--convention", args->convention, "llama, hf-chunk or rolling [llama]")
      ->option_text("NAME")
      ->check(one_of({"llama", "hf-chunk", "rolling"}));
  app->add_option("--context", args->context, "Tokens of a window [llama: 512; else 2048]")
      ->option_text("N")
      ->check(whole_in(2, 1 << 20));
  app->add_option("--mode", args->mode,
                  "split: the scored half goes through decode, where pruning acts; prefill: one pass [llama: split]")
      ->option_text("MODE")
      ->check(one_of({"split", "prefill"}));
  app->add_option("--chunks", args->chunks, "Windows at most [all]")->option_text("N")->check(whole_in(1, 1 << 24));
  app->add_option("--batch", args->batch, "Windows in one forward pass; changes no result [4]")
      ->option_text("N")
      ->check(whole_in(1, 64));
  add_eval_options(*app, *args, "window");
  app->footer(
      "Examples:\n"
      "  pop eval ppl -f wiki.test.raw --prune pop --ratio 0.2 --chunks 40\n"
      "  pop eval ppl -f wiki.test.raw --convention rolling --json\n");
  commands.push_back({app, [args] { return eval_ppl(*args); }});
}

}  // namespace pop::app
