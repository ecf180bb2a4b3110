// pop eval mc: multiple choice by the likelihood of the answers, as lm-eval scores it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "apps/eval/choices.h"
#include "apps/eval/commands.h"
#include "apps/eval/corpus.h"
#include "apps/eval/evaluation.h"
#include "apps/eval/forced.h"
#include "apps/eval/reads.h"
#include "apps/eval/report.h"
#include "apps/eval/statistics.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct McArgs : EvalArgs {
  ItemArgs items;
  std::string mode = "split";
  int batch = 16;
};

// An item on its way: its texts, and which predictions of them make up each choice.
struct McWork {
  const Item* item = nullptr;
  ChoiceItem question;
  std::vector<ForcedText> texts;  // choices that differ in their last token only share one
  struct Place {
    size_t text, first, count;  // of the predictions
  };
  std::vector<Place> places;  // [choices]
  size_t scored = 0;
  bool truncated = false;
};

// Inputs of context + continuation without its last token, cut on the left to the context of the model.
ForcedText forced_text(const TokenPair& pair, const std::string& mode, int limit, bool& truncated) {
  std::vector<int32_t> all = pair.context;
  all.insert(all.end(), pair.continuation.begin(), pair.continuation.end());
  const size_t inputs = std::min(all.size() - 1, static_cast<size_t>(limit)), cut = all.size() - 1 - inputs;
  truncated = truncated || cut > 0;
  const auto count = static_cast<int>(std::min(pair.continuation.size(), inputs));
  ForcedText out;
  out.ids.assign(all.begin() + static_cast<ptrdiff_t>(cut), all.end() - 1);
  const int context = static_cast<int>(inputs) - count + 1;  // tokens before the first that is scored
  if (mode != "prefill") out.split = std::max(1, context - (mode == "split-1" ? 1 : 0));
  for (int i = 0; i < count; ++i)
    out.queries.push_back({context - 1 + i, all[all.size() - static_cast<size_t>(count - i)]});
  return out;
}

McWork prepare(const McArgs& args, const Engine& engine, const Items& items, const Item& item, int32_t prefix) {
  McWork work;
  work.item = &item;
  work.question = choice_item(items, item);
  for (size_t i = 0; i < work.question.pairs.size(); ++i) {
    const TokenPair pair =
        split_pair(engine, work.question.pairs[i], prefix, fmt::format("{}: choice {}", item.where, i + 1));
    ForcedText text = forced_text(pair, args.mode, engine.info().context, work.truncated);
    const size_t count = text.queries.size();
    work.scored += count;
    // Answers of one token after one context ("yes", "no") are predictions of one pass.
    const auto same = std::find_if(work.texts.begin(), work.texts.end(), [&](const ForcedText& other) {
      return count == 1 && other.ids == text.ids && other.split == text.split &&
             other.queries.front().position == text.queries.front().position;
    });
    if (same == work.texts.end()) {
      work.places.push_back({work.texts.size(), 0, count});
      work.texts.push_back(std::move(text));
    } else {
      work.places.push_back({static_cast<size_t>(same - work.texts.begin()), same->queries.size(), 1});
      same->queries.push_back(text.queries.front());
    }
  }
  return work;
}

Sample sample_of(const McWork& work, std::span<const ForcedResult> results) {
  const ChoiceItem& q = work.question;
  Sample out;
  out.doc_id = work.item->id;
  out.doc_hash = work.item->hash;
  out.prompt = q.pairs.front().context;
  out.target = q.target;
  out.cluster = q.cluster;
  std::vector<double> scores;
  uint64_t decoded = 0;
  for (size_t i = 0; i < work.places.size(); ++i) {
    const auto& [text, first, count] = work.places[i];
    double sum = 0;
    bool greedy = true;
    for (size_t k = first; k < first + count; ++k) {
      sum += results[text].predictions[k].logprob;
      greedy = greedy && results[text].predictions[k].greedy;
    }
    scores.push_back(sum);
    out.arguments.push_back({q.pairs[i].context, q.pairs[i].continuation});
    out.resps.push_back(Json::array({Json::array({sum, greedy})}));
    out.filtered_resps.push_back({sum, greedy});
  }
  for (const ForcedResult& result : results) {
    decoded += result.decoded;
    add_reads(out.reads, result.reads);
  }
  const Decision decision = decide(scores, q.lengths);
  out.metrics["acc"] = decision.choice == q.gold ? 1.0 : 0.0;
  if (!q.lengths.empty()) out.metrics["acc_norm"] = decision.choice_norm == q.gold ? 1.0 : 0.0;
  out.more["choice"] = decision.choice;
  out.more["scored_tokens"] = work.scored;
  out.more["decoded_tokens"] = decoded;
  out.more["truncated"] = work.truncated;
  return out;
}

// False: interrupted; the file has the items that were done.
bool score(const McArgs& args, const Engine& engine, Session& session, const Items& items, SampleFile& file) {
  std::vector<McWork> pending;
  const int32_t prefix = prefix_token(engine.info());
  for (const size_t place : still_to_do(args, file, items.ids(), "item"))
    pending.push_back(prepare(args, engine, items, items.list[place], prefix));
  Progress progress("eval mc", args.output);
  for (size_t first = 0; first < pending.size();) {
    std::vector<ForcedText> texts;
    size_t end = first;
    for (; end < pending.size() && texts.size() < size_t(args.batch); ++end)
      texts.insert(texts.end(), pending[end].texts.begin(), pending[end].texts.end());
    const auto results = predict(session, texts, args.batch, InterruptScope::raised);
    if (results.empty()) return false;
    size_t at = 0;
    for (; first < end; ++first) {
      const size_t count = pending[first].texts.size();
      file.add({sample_of(pending[first], std::span(results).subspan(at, count))});
      at += count;
    }
    progress.update(static_cast<int64_t>(first), static_cast<int64_t>(pending.size()));
  }
  return true;
}

int64_t total(const SampleFile& file, std::span<const int64_t> ids, const char* field) {
  int64_t sum = 0;
  for (const int64_t id : ids)
    if (const auto found = file.lines().find(id); found != file.lines().end())
      sum += line_field(found->second[0], field).get<int64_t>();
  return sum;
}

Json to_json(const McArgs& args, const Items& items, const SampleFile& file) {
  const std::vector<int64_t> ids = items.ids();
  const auto acc = metric_values(file, ids, "acc");
  const auto clusters = cluster_names(file, ids);
  const auto interval = [&](const std::vector<double>& values) {
    return to_json(bootstrap_mean(values, clusters, args.seed.value_or(1), 10000));
  };
  Json json;
  json["task"] = items.task;
  json["corpus"] = items.path;
  json["corpus_sha256"] = items.sha256;
  json["mode"] = args.mode;
  json["items"] = acc.size();
  json["clusters"] = count_clusters(clusters);
  json["acc"] = mean(acc);
  json["ci95"] = interval(acc);
  // A task whose options stand in the context has no acc_norm.
  const bool normed = std::all_of(file.lines().begin(), file.lines().end(),
                                  [](const auto& entry) { return entry.second[0].contains("acc_norm"); });
  const auto norm = normed ? metric_values(file, ids, "acc_norm") : std::vector<double>();
  json["acc_norm"] = norm.empty() ? Json(nullptr) : Json(mean(norm));
  json["acc_norm_ci95"] = norm.empty() ? Json(nullptr) : interval(norm);
  json["scored_tokens"] = total(file, ids, "scored_tokens");
  json["decoded_tokens"] = total(file, ids, "decoded_tokens");
  return json;
}

int64_t count_truncated(const SampleFile& file, std::span<const int64_t> ids) {
  return std::count_if(ids.begin(), ids.end(), [&](int64_t id) {
    const auto found = file.lines().find(id);
    return found != file.lines().end() && line_field(found->second[0], "truncated").get<bool>();
  });
}

void print_mc(const Json& json, const PrunePlanInfo& plan) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  fmt::print("{}: {}, {} items (mode {})\n", describe(plan), json["task"].get<std::string>(),
             json["items"].get<size_t>(), json["mode"].get<std::string>());
  const auto line = [&](const char* name, const Json& value, const Json& ci) {
    if (!value.is_null())
      fmt::print("  {:<18}{:.2f} %  [{:.2f}, {:.2f}]\n", name, 100 * number(value), 100 * number(ci[0]),
                 100 * number(ci[1]));
  };
  line("acc", json["acc"], json["ci95"]);
  line("acc_norm", json["acc_norm"], json["acc_norm_ci95"]);
  fmt::print("  {:<18}{} of {} scored tokens\n", "decode predicted", json["decoded_tokens"].get<int64_t>(),
             json["scored_tokens"].get<int64_t>());
  fmt::print("  [..]: 95 % interval, {} resampled\n",
             json["clusters"] == json["items"] ? "items" : "items that share a passage together");
}

int eval_mc(const McArgs& args) {
  const PruneSettings prune = args.prune.resolved(args.seed);
  const Items items = read_items(args.items);
  for (const Item& item : items.list) choice_item(items, item);  // a wrong line is said before the model is loaded
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  const auto session = engine.session(prune);
  Json run = {
      {"task", items.task}, {"items_sha256", items.sha256}, {"mode", args.mode}, {"context", engine.info().context}};
  run.update(run_identity(engine.info(), session->plan(), prune));
  SampleFile file(args.per_item, run);
  InterruptScope interrupts;
  const bool complete = score(args, engine, *session, items, file);
  const std::vector<int64_t> ids = items.ids();
  if (metric_values(file, ids, "acc").empty()) return finish_without_result(args, "item");
  Json json = to_json(args, items, file);
  json["truncated"] = count_truncated(file, ids);
  return finish(args, std::move(json), complete, engine.info(), session->plan(), file.reads(ids),
                [&](const Json& result) { print_mc(result, session->plan()); });
}

}  // namespace

void add_eval_mc(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<McArgs>();
  CLI::App* app = root.add_subcommand("mc");
  app->description(
      "Multiple choice as lm-eval scores it: the likeliest answer by the sum of ln p of its tokens (acc), or by that "
      "sum per character (acc_norm). A line of the file is an item,\n"
      "  {\"context\": \"..\", \"choices\": [\"..\", \"..\"], \"gold\": 0}\n"
      "with answers after a context, or one ending after each of several contexts,\n"
      "  {\"contexts\": [\"..\", \"..\"], \"ending\": \"..\", \"gold\": 1}\n"
      "data/ has files, docs/data.md all fields.");
  add_item_options(*app, args->items);
  app->add_option(
         "--mode", args->mode,
         "split: the answer goes through decode, where pruning acts, but for its first token, which the prefill "
         "predicts; split-1: that one, too (the context's last token is decoded); prefill: one pass [split]")
      ->option_text("MODE")
      ->check(one_of({"split", "split-1", "prefill"}));
  app->add_option("--batch", args->batch, "Texts in one forward pass; changes no result [16]")
      ->option_text("N")
      ->check(whole_in(1, 256));
  add_eval_options(*app, *args, "item");
  app->footer(
      "Examples:\n"
      "  pop eval mc -f data/arc_easy.jsonl --limit 500 --per-item dense.jsonl\n"
      "  pop eval mc -f data/boolq.jsonl --mode split-1 --prune pop --ratio 0.2\n");
  commands.push_back({app, [args] { return eval_mc(*args); }});
}

}  // namespace pop::app
