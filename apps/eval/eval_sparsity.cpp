// pop eval sparsity: how much the importance of FFN channels moves while the dense model reads on.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include "apps/eval/commands.h"
#include "apps/eval/corpus.h"
#include "apps/eval/importance_trace.h"
#include "apps/eval/report.h"
#include "apps/eval/statistics.h"
#include "apps/pop/args.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct SparsityArgs {
  EngineOptions engine;
  OutputArgs output;
  std::string file, csv;
  int context = 256, decode = 64, sequences = 8;
  std::optional<uint64_t> seed;
};

using Grid = std::vector<std::vector<double>> ImportanceMoves::*;

double mean_of_finite(const std::vector<double>& values) {
  std::vector<double> kept;
  for (const double value : values)
    if (!std::isnan(value)) kept.push_back(value);
  return mean(kept);
}

double mean_of_layer(const std::vector<ImportanceMoves>& windows, Grid grid, size_t layer) {
  std::vector<double> all;
  for (const ImportanceMoves& window : windows) all.push_back(mean_of_finite((window.*grid)[layer]));
  return mean(all);
}

double mean_of_cell(const std::vector<ImportanceMoves>& windows, Grid grid, size_t layer, size_t step) {
  std::vector<double> all;
  for (const ImportanceMoves& window : windows) all.push_back((window.*grid)[layer][step]);
  return mean_of_finite(all);
}

// Over layers and steps; the interval draws whole windows.
Json overall(const std::vector<ImportanceMoves>& windows, Grid grid, uint64_t seed) {
  std::vector<double> each;
  for (const ImportanceMoves& window : windows) {
    std::vector<double> layers;
    for (const auto& layer : window.*grid) layers.push_back(mean_of_finite(layer));
    each.push_back(mean(layers));
  }
  return {{"mean", mean(each)}, {"ci95", to_json(bootstrap_mean(each, seed))}};
}

constexpr std::pair<const char*, Grid> kMeasures[] = {{"rank_change", &ImportanceMoves::rank_change},
                                                      {"top_half_overlap_next", &ImportanceMoves::overlap_next},
                                                      {"top_half_overlap_prefill", &ImportanceMoves::overlap_prefill}};

Json to_json(const SparsityArgs& args, const std::vector<ImportanceMoves>& windows) {
  const size_t layers = windows[0].rank_change.size(), steps = windows[0].rank_change[0].size();
  Json json;
  json["context"] = args.context;
  json["decode"] = args.decode;
  json["sequences"] = windows.size();
  json["importance"] = "down, norm 2";
  json["chance"] = {{"rank_change", 1.0 / 3}, {"top_half_overlap", 0.5}};
  for (const auto& [name, grid] : kMeasures) json[name] = overall(windows, grid, args.seed.value_or(1));
  json["by_layer"] = Json::array();
  for (size_t layer = 0; layer < layers; ++layer) {
    Json row = {{"layer", layer}};
    for (const auto& [name, grid] : kMeasures) row[name] = mean_of_layer(windows, grid, layer);
    json["by_layer"].push_back(row);
  }
  json["by_step"] = Json::array();
  for (size_t step = 0; step < steps; ++step) {
    Json row = {{"step", step + 1}};
    for (const auto& [name, grid] : kMeasures) {
      std::vector<double> all;
      for (size_t layer = 0; layer < layers; ++layer) all.push_back(mean_of_cell(windows, grid, layer, step));
      row[name] = step == 0 && grid != &ImportanceMoves::overlap_prefill ? Json(nullptr) : Json(mean(all));
    }
    json["by_step"].push_back(row);
  }
  return json;
}

void write_cells(const std::string& path, const std::vector<ImportanceMoves>& windows) {
  std::vector<std::vector<std::string>> rows = {{"layer", "step"}};
  for (const auto& [name, grid] : kMeasures) rows[0].push_back(name);
  for (size_t layer = 0; layer < windows[0].rank_change.size(); ++layer)
    for (size_t step = 0; step < windows[0].rank_change[layer].size(); ++step) {
      rows.push_back({std::to_string(layer), std::to_string(step + 1)});
      for (const auto& [name, grid] : kMeasures) {
        const bool none = step == 0 && grid != &ImportanceMoves::overlap_prefill;
        rows.back().push_back(none ? "" : fmt::format("{:.6f}", mean_of_cell(windows, grid, layer, step)));
      }
    }
  write_csv(path, rows);
}

void print_sparsity(const Json& json) {
  fmt::print("Importance of FFN channels, dense: {} windows of {} + {} tokens\n", json["sequences"].get<size_t>(),
             json["context"].get<int>(), json["decode"].get<int>());
  std::vector<std::vector<std::string>> rows = {{"layer", "rank change / f", "top half, next", "top half, prompt"}};
  const auto cells = [](const Json& row) {
    std::vector<std::string> out;
    for (const auto& [name, grid] : kMeasures) out.push_back(fmt::format("{:.3f}", row[name].get<double>()));
    return out;
  };
  const auto add = [&](const std::string& name, std::vector<std::string> values) {
    values.insert(values.begin(), name);
    rows.push_back(std::move(values));
  };
  for (const Json& row : json["by_layer"]) add(std::to_string(row["layer"].get<int>()), cells(row));
  std::vector<std::string> means, low, high;
  for (const auto& [name, grid] : kMeasures) {
    means.push_back(fmt::format("{:.3f}", json[name]["mean"].get<double>()));
    low.push_back(fmt::format("{:.3f}", json[name]["ci95"][0].get<double>()));
    high.push_back(fmt::format("{:.3f}", json[name]["ci95"][1].get<double>()));
  }
  add("mean", means);
  add("95 %, from", low);
  add("to", high);
  add("chance", {"0.333", "0.500", "0.500"});
  fmt::print("{}", table(rows));
}

int eval_sparsity(const SparsityArgs& args) {
  if (args.file.empty()) throw UsageError("eval sparsity: expected a text, -f FILE");
  const Corpus corpus = read_corpus(args.file, false);
  EngineOptions options = args.engine;
  options.text_only = true;
  const Engine text = make_engine(options, args.output);
  const int length = args.context + args.decode;
  if (length > text.info().context)
    throw UsageError(fmt::format("--context {} + --decode {} exceed the context of {} tokens (--ctx)", args.context,
                                 args.decode, text.info().context));
  const std::vector<int32_t> ids = text.encode(corpus.documents[0]), bos = text.prompt("");
  const size_t count = std::min(ids.size() / size_t(length), size_t(args.sequences));
  if (count == 0)
    fail("{}: expected at least {} tokens (--context + --decode), found {}", printable(args.file, 400), length,
         ids.size());
  options.model = text.info().path;
  ImportanceTrace trace(options, length);
  InterruptScope interrupts;
  Progress progress("eval sparsity", args.output);
  std::vector<ImportanceMoves> windows;
  for (size_t i = 0; i < count && !InterruptScope::raised(); ++i) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(i * size_t(length));
    std::vector<int32_t> window(begin, begin + length);
    if (!bos.empty()) window.front() = bos.front();
    ImportanceMoves moves = trace.run(window, args.context, InterruptScope::raised);
    if (!moves.rank_change.empty()) windows.push_back(std::move(moves));
    progress.update(static_cast<int64_t>(i) + 1, static_cast<int64_t>(count));
  }
  const bool complete = windows.size() == count;
  if (windows.empty()) {
    note(args.output, "interrupted before the first window was done");
    return kInterrupted;
  }
  Json json;
  add_corpus(json, corpus);
  json.update(to_json(args, windows));
  json["finish_reason"] = complete ? "complete" : "interrupted";
  json["method"] = "dense";
  json["isa"] = trace.isa();
  json["threads"] = trace.threads();
  json["activations"] = "f32";
  json["kv"] = "f16";
  json["bos"] = text.info().bos;
  json["model_sha256"] = text.info().model_sha256;
  json["version"] = build_info().version;
  if (!args.csv.empty()) write_cells(args.csv, windows);
  if (args.output.json)
    print_json(json);
  else
    print_sparsity(json);
  return complete ? kDone : kInterrupted;
}

}  // namespace

void add_eval_sparsity(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<SparsityArgs>();
  CLI::App* app = root.add_subcommand("sparsity");
  app->description(
      "How the importance of FFN channels moves from token to token in the dense model: what a mask that is fixed once "
      "cannot follow. Per layer, means over the tokens after the context: how far a channel's rank moves from one "
      "token to the next (share of all ranks; 1/3 by chance), and how much of the upper half stays the upper half, "
      "against the token before and against the prompt as a whole (1/2 by chance).");
  app->add_option("-f,--file", args->file, "The text")->option_text("FILE");
  app->add_option("--context", args->context, "Tokens of a window that are the prompt [256]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--decode", args->decode, "Tokens after it that are looked at [64]")
      ->option_text("M")
      ->check(whole_in(2, 1 << 20));
  app->add_option("--sequences", args->sequences, "Windows at most [8]")->option_text("S")->check(whole_in(1, 1 << 20));
  app->add_option("--csv", args->csv, "Write one row per layer and token")->option_text("FILE");
  add_seed_option(*app, args->seed);
  add_model_options(*app, args->engine);
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop eval sparsity -f wiki.test.raw\n"
      "  pop eval sparsity -f wiki.test.raw --decode 256 --csv ranks.csv --json\n");
  commands.push_back({app, [args] { return eval_sparsity(*args); }});
}

}  // namespace pop::app
