// pop eval compare: two per-item files, ours or lm-eval's, item by item.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "apps/eval/commands.h"
#include "apps/eval/report.h"
#include "apps/eval/samples.h"
#include "apps/eval/statistics.h"
#include "apps/pop/args.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct CompareArgs {
  OutputArgs output;
  std::string a, b, metric, filter, csv;
  bool items_alone = false, partial = false;
  int draws = 10000;
  std::optional<uint64_t> seed;
};

struct Lines {
  std::string path;
  std::map<int64_t, Json> by_item;  // of one filter
};

std::string text_of(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

// The lines of one filter. If the file has several, it must be named.
Lines read_lines(const std::string& path, const std::string& filter) {
  Lines out{path, {}};
  std::set<std::string> filters;
  const Items items = read_items({path, "", 0});
  for (const Item& item : items.list) {
    const std::string name = text_of(item.json, "filter");
    filters.insert(name);
    if (!filter.empty() && name != filter) continue;
    const int64_t id = int_field(item, "doc_id", 0, INT64_MAX);
    if (!out.by_item.emplace(id, item.json).second && filters.size() == 1)
      fail("{}: item {} stands there twice", item.where, id);
  }
  const std::string file = printable(path, 400);
  if (filter.empty() && filters.size() > 1)
    fail("{}: expected one filter, found {}; choose with --filter", file, fmt::join(filters, ", "));
  if (out.by_item.empty())
    fail("{}: expected lines of filter '{}', found {}", file, printable(filter), fmt::join(filters, ", "));
  return out;
}

bool is_score(const Json& value) { return value.is_number() || value.is_boolean(); }

// Scores that every line has, by the names that the first line's "metrics" gives.
std::vector<std::string> metrics_of(const Lines& lines) {
  std::vector<std::string> out;
  const Json& first = lines.by_item.begin()->second;
  if (const auto names = first.find("metrics"); names != first.end() && names->is_array())
    for (const Json& name : *names)
      if (name.is_string() && first.contains(name.get<std::string>()) && is_score(first[name.get<std::string>()]))
        out.push_back(name.get<std::string>());
  return out;
}

std::string choose_metric(const CompareArgs& args, const Lines& a, const Lines& b) {
  if (!args.metric.empty()) return args.metric;
  const auto ours = metrics_of(a), theirs = metrics_of(b);
  for (const std::string& name : ours)
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) return name;
  fail("{}: expected a metric that both files have (--metric), found {}", printable(args.b, 400),
       theirs.empty() ? "none" : fmt::format("{}", fmt::join(theirs, ", ")));
}

double score_of(const Lines& lines, int64_t id, const std::string& metric) {
  const Json& line = lines.by_item.at(id);
  const auto found = line.find(metric);
  if (found == line.end() || !is_score(*found))
    fail("{}: item {}: \"{}\": expected a number, found {}", printable(lines.path, 400), id, printable(metric),
         found == line.end() ? "nothing" : found->type_name());
  return found->is_boolean() ? double(found->get<bool>()) : found->get<double>();
}

// The same question in both files? doc_hash is of the data set's own object in lm-eval's files and of the line in ours, so it
// compares within a kind only.
void check_same_item(const Lines& a, const Lines& b, int64_t id) {
  const Json &x = a.by_item.at(id), &y = b.by_item.at(id);
  for (const char* name : {"prompt_hash", "doc_hash"}) {
    const std::string first = text_of(x, name), second = text_of(y, name);
    if (first.empty() || second.empty() || first == second) continue;
    if (std::string_view(name) == "doc_hash" && x.contains("run") != y.contains("run")) continue;
    fail("{} and {}: item {}: expected the same {}, found {} and {}", printable(a.path, 400), printable(b.path, 400),
         id, name, printable(first.substr(0, 12)), printable(second.substr(0, 12)));
  }
}

struct Pairs {
  std::vector<double> a, b, difference;  // difference: b - a
  std::vector<std::string> clusters;
};

Pairs pair_up(const CompareArgs& args, const Lines& a, const Lines& b, const std::string& metric) {
  Pairs out;
  for (const auto& [id, line] : a.by_item) {
    if (!b.by_item.contains(id)) continue;
    check_same_item(a, b, id);
    out.a.push_back(score_of(a, id, metric));
    out.b.push_back(score_of(b, id, metric));
    out.difference.push_back(out.b.back() - out.a.back());
    const std::string cluster = text_of(line, "cluster");
    out.clusters.push_back(args.items_alone ? "" : cluster.empty() ? text_of(b.by_item.at(id), "cluster") : cluster);
  }
  const size_t common = out.a.size();
  if (common == 0)
    fail("{} and {}: expected items in common, found none", printable(args.a, 400), printable(args.b, 400));
  if (!args.partial && (common != a.by_item.size() || common != b.by_item.size()))
    fail("{} and {}: expected the same items, found {} and {} with {} in common; --partial compares these",
         printable(args.a, 400), printable(args.b, 400), a.by_item.size(), b.by_item.size(), common);
  return out;
}

bool is_binary(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return x == 0 || x == 1; });
}

Json to_json(const CompareArgs& args, const Pairs& pairs, const std::string& metric) {
  Json json;
  json["a"] = args.a;
  json["b"] = args.b;
  json["metric"] = metric;
  json["filter"] = args.filter.empty() ? Json(nullptr) : Json(args.filter);
  json["items"] = pairs.a.size();
  json["clusters"] = count_clusters(pairs.clusters);
  json["mean_a"] = mean(pairs.a);
  json["mean_b"] = mean(pairs.b);
  json["mean_difference"] = mean(pairs.difference);
  json["ci95"] = to_json(bootstrap_mean(pairs.difference, pairs.clusters, args.seed.value_or(1), args.draws));
  json["draws"] = args.draws;
  const bool binary = is_binary(pairs.a) && is_binary(pairs.b);
  const auto lost = std::count(pairs.difference.begin(), pairs.difference.end(), -1.0);
  const auto won = std::count(pairs.difference.begin(), pairs.difference.end(), 1.0);
  json["flips"] = binary ? Json{{"right_to_wrong", lost}, {"wrong_to_right", won}} : Json(nullptr);
  json["mcnemar_p"] = binary ? Json(mcnemar_exact(lost, won)) : Json(nullptr);
  json["version"] = build_info().version;
  return json;
}

void print_compare(const Json& json) {
  const auto number = [&](const char* name) { return json[name].get<double>(); };
  fmt::print("{} of {} items, {} clusters\n", json["metric"].get<std::string>(), json["items"].get<size_t>(),
             json["clusters"].get<size_t>());
  fmt::print("  a  {:.4f}  {}\n  b  {:.4f}  {}\n", number("mean_a"), printable(json["a"].get<std::string>(), 400),
             number("mean_b"), printable(json["b"].get<std::string>(), 400));
  fmt::print("  b - a  {:+.4f}  [{:+.4f}, {:+.4f}]\n", number("mean_difference"), json["ci95"][0].get<double>(),
             json["ci95"][1].get<double>());
  if (!json["flips"].is_null())
    fmt::print("  right to wrong {}, wrong to right {}; McNemar's exact p {:.4g}\n",
               json["flips"]["right_to_wrong"].get<int64_t>(), json["flips"]["wrong_to_right"].get<int64_t>(),
               number("mcnemar_p"));
  fmt::print("  [..]: 95 % interval of the paired difference, {} draws of whole clusters\n", json["draws"].get<int>());
}

int eval_compare(const CompareArgs& args) {
  if (args.a.empty() || args.b.empty()) throw UsageError("eval compare: expected two per-item files, A B");
  const Lines a = read_lines(args.a, args.filter), b = read_lines(args.b, args.filter);
  const std::string metric = choose_metric(args, a, b);
  const Json json = to_json(args, pair_up(args, a, b, metric), metric);
  if (!args.csv.empty()) write_result_row(args.csv, json);
  if (args.output.json)
    print_json(json);
  else
    print_compare(json);
  return kDone;
}

}  // namespace

void add_eval_compare(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<CompareArgs>();
  CLI::App* app = root.add_subcommand("compare");
  app->description(
      "Two runs over the same items, paired. The files are those of --per-item, or samples_*.jsonl of lm-eval; a file "
      "of each kind compares, too. Items are matched by doc_id, and different questions are refused.");
  app->add_option("a", args->a, "The run that is compared with, e.g. dense")->option_text("A");
  app->add_option("b", args->b, "The other one; differences are B - A")->option_text("B");
  app->add_option("--metric", args->metric,
                  "A number of each line: acc, acc_norm, exact_match, nll, ... [the first of both]")
      ->option_text("NAME");
  app->add_option("--filter", args->filter, "Lines of this filter, where a file has several per item")
      ->option_text("NAME");
  app->add_flag("--items-alone", args->items_alone,
                "Resample items, not what shares a passage (the field \"cluster\")");
  app->add_flag("--partial", args->partial, "Compare the items that both files have");
  app->add_option("--draws", args->draws, "Bootstrap samples [10000]")->option_text("N")->check(whole_in(100, 1000000));
  app->add_option("--seed", args->seed, "Seed of the bootstrap [1]")->option_text("S")->check(whole_in(0, INT64_MAX));
  app->add_option("--csv", args->csv, "Write the result as a header and one row")->option_text("FILE");
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop eval compare dense.jsonl pop.jsonl\n"
      "  pop eval compare samples_arc_easy.jsonl pop.jsonl --metric acc_norm --json\n");
  commands.push_back({app, [args] { return eval_compare(*args); }});
}

}  // namespace pop::app
