// pop bench: tokens per second and bytes read, beside what the memory can do.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "apps/bench/roof.h"
#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/cpu.h"
#include "base/error.h"
#include "prune/registry.h"

namespace pop::app {
namespace {

// Plain text for prompts: POP's choice depends on the prompt, so random ids would measure something nobody does.
constexpr const char* kText =
    "The harbour wakes before the town does. Lamps move along the quay, ropes are thrown and caught, and the first "
    "boats come "
    "in low with the weight of the night's work. A buyer walks from crate to crate, asks a price, shakes his head, and "
    "asks "
    "again. By the time the bells ring for seven the fish have gone inland, the nets hang over the wall, and the men "
    "sit in "
    "the one open room with their hands round hot cups and say little. Later the ferry brings the others: clerks, "
    "pupils, a "
    "woman with a cello, and a dozen people who want to see the lighthouse because a book once told them to. ";

struct BenchArgs {
  EngineOptions engine;
  PruneArgs prune;
  OutputArgs output;
  std::vector<std::string> methods = {"dense", "pop", "pop+"};
  std::vector<double> ratios = {0.2};
  std::optional<uint64_t> seed;
  std::optional<int> prompt, gen;
  int rounds = 3;
  std::string csv;
  bool decode = true;
};

struct Row {
  PruneSettings settings;
  std::unique_ptr<Session> session;
  std::vector<double> prefill, decode;  // tokens per second, one per round
  GenerateResult last;
};

// Of the options given, those the method takes: one command line serves rows of different methods.
PruneSettings settings_for(const BenchArgs& args, const std::string& method, double ratio) {
  PruneSettings all = args.prune.resolved(std::nullopt), out;
  out.method = method;
  out.pack = all.pack;
  for (const MethodInfo& info : methods()) {
    if (method != info.name) continue;
    for (std::string_view option : info.options) {
      if (option.starts_with("--")) option.remove_prefix(2);
      if (option == "ratio") out.ratio = ratio;
      if (option == "ratio-of") out.ratio_of = all.ratio_of;
      if (option == "gamma") out.gamma = all.gamma;
      if (option == "metric") out.metric = all.metric;
      if (option == "decode-metric") out.decode_metric = all.decode_metric;
      if (option == "norm") out.norm = all.norm;
      if (option == "prefill") out.prefill = all.prefill;
      if (option == "match") out.match = all.match;
      if (option == "random-every") out.random_every = all.random_every;
      if (option == "seed") out.seed = args.seed;
    }
  }
  return out;
}

std::vector<Row> make_rows(const BenchArgs& args, Engine& engine) {
  std::vector<Row> rows;
  for (const std::string& method : args.methods) {
    for (const double ratio : args.ratios) {
      Row row;
      row.settings = settings_for(args, method, ratio);
      row.session = engine.session(row.settings);
      rows.push_back(std::move(row));
      if (!rows.back().settings.ratio) break;  // dense has no ratio: one row
    }
  }
  return rows;
}

std::vector<int32_t> prompt_of(const Engine& engine, int tokens) {
  std::string text;
  std::vector<int32_t> ids;
  if (engine.info().tokenizer_model.empty()) ids.assign(tokens, 0);
  while (static_cast<int>(ids.size()) < tokens) {
    text += kText;
    ids = engine.prompt(text);
    if (text.size() > size_t(tokens) * 64 + 4096)
      fail("bench: the tokenizer gives too few tokens for a prompt of {}", tokens);
  }
  ids.resize(tokens);
  return ids;
}

// Rounds are interleaved, so that a slow minute of the machine hits every row alike. False if interrupted.
bool measure(const BenchArgs& args, Engine& engine, std::vector<Row>& rows, int n_prompt, int n_gen) {
  const auto prompt = prompt_of(engine, n_prompt);
  Progress progress("bench", args.output);
  GenerateOptions options;
  options.ignore_eos = true;
  options.max_tokens = n_gen;
  options.hooks.interrupted = InterruptScope::raised;
  int64_t done = 0;
  const auto total = static_cast<int64_t>(rows.size()) * (args.rounds + 1);
  for (int round = -1; round < args.rounds; ++round) {  // round -1 warms up and is not counted
    for (Row& row : rows) {
      row.session->reset();
      row.last = row.session->generate(prompt, options);
      if (row.last.finish_reason == "interrupted" || InterruptScope::raised()) return false;
      progress.update(++done, total);
      if (round < 0) continue;
      const Timing& t = row.last.timing;
      row.prefill.push_back(rate(t.prefill_tokens, t.prefill_s));
      row.decode.push_back(rate(t.decode_tokens, t.decode_s));
    }
  }
  return true;
}

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

Json machine_json(int threads, const std::string& isa, const RoofPoint& one, const RoofPoint& all) {
  return {{"cpu", cpu_model_name()},
          {"threads", threads},
          {"isa", isa},
          {"roof_gbps", {{"1", one.bytes_per_s / 1e9}, {"N", all.bytes_per_s / 1e9}}}};
}

Json row_json(const BenchArgs& args, const ModelInfo& info, const Row& row, int n_prompt, int n_gen, double roof) {
  const PrunePlanInfo& plan = row.session->plan();
  const Timing& t = row.last.timing;
  const bool decode = args.decode;
  const double tokens_per_s = decode ? median(row.decode) : 0;
  const double read = row.last.reads.weight_bytes_per_token * tokens_per_s;
  const auto only = [](bool applies, double value) { return applies ? Json(value) : Json(nullptr); };
  Json json;
  json["name"] = decode ? fmt::format("tg{}", n_gen) : fmt::format("pp{}", n_prompt);
  json["type"] = info.file_type;
  json["n_prompt"] = n_prompt;
  json["n_gen"] = decode ? n_gen : 0;
  json["batch"] = 1;
  json["context"] = info.context;
  json["method"] = plan.method;
  json["ratio"] = plan.ratio;
  json["gamma"] = plan.gamma;
  json["level"] = plan.level;
  json["prefill_tokens_per_s"] = median(row.prefill);
  json["partition_s"] = t.partition_s;
  json["select_s"] = only(decode, t.select_s);
  json["pack_s"] = t.pack_s;
  json["decode_tokens_per_s"] = only(decode, tokens_per_s);
  json["weight_bytes_per_token"] = only(decode, row.last.reads.weight_bytes_per_token);
  json["weights_read_share"] = only(decode, row.last.reads.weights_read_share);
  json["selected_share"] = only(decode, row.last.reads.selected_share);
  json["read_gbps"] = only(decode, read / 1e9);
  json["share_of_roof"] = only(decode, roof > 0 ? read / roof : 0);
  json["rss_bytes"] = resident_bytes();
  json["runs"] = args.rounds;
  json["spread"] = spread(decode ? row.decode : row.prefill);
  return json;
}

void print_table(const BenchArgs& args, const Json& json) {
  std::vector<std::vector<std::string>> rows;
  if (args.decode)
    rows.push_back({"", "method", "ratio", "tokens/s", "spread", "vs first", "MB/token", "GB/s", "of roof"});
  else
    rows.push_back({"", "method", "ratio", "tokens/s", "spread", "vs first", "partition ms"});
  const char* speed = args.decode ? "decode_tokens_per_s" : "prefill_tokens_per_s";
  const double first = json["rows"][0][speed].get<double>();
  for (const Json& row : json["rows"]) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    std::vector<std::string> cells = {row["name"].get<std::string>(),
                                      row["method"].get<std::string>(),
                                      row["method"] == "dense" ? "-" : fmt::format("{:.3g}", number("ratio")),
                                      fmt::format("{:.1f}", number(speed)),
                                      fmt::format("{:.0f}%", 100 * number("spread")),
                                      fmt::format("{:.2f}x", first > 0 ? number(speed) / first : 0)};
    if (args.decode)
      for (auto& cell :
           {fmt::format("{:.1f}", number("weight_bytes_per_token") / 1e6), fmt::format("{:.1f}", number("read_gbps")),
            fmt::format("{:.0f}%", 100 * number("share_of_roof"))})
        cells.push_back(cell);
    else
      cells.push_back(fmt::format("{:.2f}", 1e3 * number("partition_s")));
    rows.push_back(std::move(cells));
  }
  const Json& machine = json["machine"];
  fmt::print("{}, {} threads, {}; roof {:.1f} GB/s ({:.1f} with 1 thread)\n{}", machine["cpu"].get<std::string>(),
             machine["threads"].get<int>(), machine["isa"].get<std::string>(), machine["roof_gbps"]["N"].get<double>(),
             machine["roof_gbps"]["1"].get<double>(), table(rows));
}

void write_rows(const std::string& path, const Json& json) {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& [key, value] : json["rows"][0].items()) rows[0].push_back(key);
  for (const Json& row : json["rows"]) {
    std::vector<std::string> cells;
    for (const auto& [key, value] : row.items())
      cells.push_back(value.is_string() ? value.get<std::string>() : value.is_null() ? "" : to_text(value));
    rows.push_back(std::move(cells));
  }
  write_csv(path, rows);
}

void check(const BenchArgs& args) {
  const auto names = method_names();
  for (const auto& method : args.methods)
    if (std::find(names.begin(), names.end(), method) == names.end()) {
      const std::string near = nearest(method, names);
      throw UsageError(fmt::format("--methods: '{}' is not a method{}; see pop methods", printable(method),
                                   near.empty() ? "" : fmt::format(", the nearest is {}", near)));
    }
}

int bench(const BenchArgs& args) {
  check(args);
  InterruptScope interrupts;
  Engine engine = make_engine(args.engine, args.methods);
  const ModelInfo& info = engine.info();
  const int n_prompt = args.prompt.value_or(args.decode ? 128 : 512);
  const int n_gen = args.decode ? args.gen.value_or(128) : 1;
  if (n_prompt + n_gen > info.context)
    throw UsageError(fmt::format("a prompt of {} and {} new tokens exceed the context of {} (--ctx)", n_prompt, n_gen,
                                 info.context));
  auto rows = make_rows(args, engine);
  uint64_t token_bytes = 0;
  for (const ByteShare& part : info.bytes_per_token) token_bytes += part.bytes;
  RoofPoint one, all;
  const auto measure_roof = [&] {
    const Roof roof(std::max<uint64_t>(token_bytes, 1 << 20));
    const RoofPoint a = roof.measure(1), b = info.threads > 1 ? roof.measure(info.threads) : a;
    if (a.bytes_per_s > one.bytes_per_s) one = a;
    if (b.bytes_per_s > all.bytes_per_s) all = b;
  };
  measure_roof();
  if (!measure(args, engine, rows, n_prompt, n_gen)) return kInterrupted;
  measure_roof();  // again: of two readings on a shared machine the higher is nearer the truth
  Json json;
  json["machine"] = machine_json(info.threads, info.isa, one, all);
  json["rows"] = Json::array();
  for (const Row& row : rows) json["rows"].push_back(row_json(args, info, row, n_prompt, n_gen, all.bytes_per_s));
  if (!args.csv.empty()) write_rows(args.csv, json);
  if (args.output.json)
    print_json(json);
  else
    print_table(args, json);
  return kDone;
}

struct RoofArgs {
  EngineOptions engine;
  OutputArgs output;
  std::optional<int64_t> bytes;
};

int bench_roof(const RoofArgs& args) {
  constexpr int64_t kTokenBytes = 97'000'000;  // of the default model, near enough
  const int threads = args.engine.threads > 0 ? args.engine.threads : usable_cpus();
  const Roof roof(args.bytes.value_or(kTokenBytes));
  Json json;
  std::vector<RoofPoint> points = {roof.measure(1, 0.4)};
  if (threads > 1) points.push_back(roof.measure(threads, 0.4));
  const auto isas = available_isa_names();
  json["machine"] = machine_json(threads, isas.empty() ? "" : isas.back(), points.front(), points.back());
  json["bytes"] = roof.bytes();
  json["streams"] = {{"1", points.front().streams}, {"N", points.back().streams}};
  json["rows"] = Json::array();
  if (args.output.json) {
    print_json(json);
    return kDone;
  }
  fmt::print("{}: reading {:.1f} MB again and again\n", cpu_model_name(), double(roof.bytes()) / 1e6);
  for (const RoofPoint& point : points)
    fmt::print("  {:>2} thread{} {:6.1f} GB/s  ({} streams per thread, spread {:.0f}%)\n", point.threads,
               point.threads == 1 ? ", " : "s,", point.bytes_per_s / 1e9, point.streams, 100 * point.spread);
  fmt::print("A token cannot be faster than its weight bytes over this rate. --bytes sets another size.\n");
  return kDone;
}

void add_measurement(CLI::App& root, Commands& commands, bool decode) {
  auto args = std::make_shared<BenchArgs>();
  args->decode = decode;
  const char* name = decode ? "decode" : "prefill";
  CLI::App* app = root.add_subcommand(name);
  app->description(
      decode
          ? "Speed of writing (tg128). Method by method, in interleaved rounds; medians, beside the memory's own speed "
            "measured before and after."
          : "Speed of reading a prompt (pp512). Method by method, in interleaved rounds; medians.");
  app->add_option("--methods", args->methods, "Names from `pop methods`, separated by commas [dense,pop,pop+]")
      ->option_text("LIST")
      ->delimiter(',');
  app->add_option("--ratios", args->ratios, "Ratios of the methods that prune, separated by commas [0.2]")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(real_in(0, 1));
  app->add_option("-p,--n-prompt", args->prompt,
                  decode ? "Prompt tokens before the answer [128]" : "Prompt tokens [512]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 24));
  if (decode)
    app->add_option("-n,--n-gen", args->gen, "Tokens to write [128]")->option_text("N")->check(whole_in(2, 1 << 24));
  app->add_option("--rounds", args->rounds, "Rounds counted, after one to warm up [3]")
      ->option_text("N")
      ->check(whole_in(1, 1000));
  app->add_option("--csv", args->csv, "Write the rows as CSV")->option_text("FILE");
  add_prune_options(*app, args->prune);
  for (const char* taken : {"--prune", "--ratio", "--ffn-sparsity"}) app->remove_option(app->get_option(taken));
  add_seed_option(*app, args->seed);
  add_model_options(*app, args->engine);
  add_output_options(*app, args->output);
  app->footer(
      fmt::format("A pruning option applies to the methods that take it.\n\n"
                  "Examples:\n"
                  "  pop bench {0}\n"
                  "  pop bench {0} --methods dense,pop,pop+ --ratios 0.2,0.4 --json\n",
                  name));
  commands.push_back({app, [args] { return bench(*args); }});
}

void add_roof(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<RoofArgs>();
  CLI::App* app = root.add_subcommand("roof");
  app->description(
      "How fast this machine reads memory. It is the limit of every decode, since a token reads its weights once.");
  app->add_option("--bytes", args->bytes, "Size of what is read [97000000: a token of the default model]")
      ->option_text("N")
      ->check(whole_in(1 << 16, int64_t{1} << 40));
  app->add_option("-t,--threads", args->engine.threads, "Threads [the CPUs this process may use]")
      ->option_text("N")
      ->check(whole_in(1, 1024));
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop bench roof\n"
      "  pop bench roof --bytes 4000000000 --json\n");
  commands.push_back({app, [args] { return bench_roof(*args); }});
}

}  // namespace

void add_bench(CLI::App& root, Commands& commands) {
  CLI::App* app = root.add_subcommand("bench");
  app->require_subcommand(0, 1);
  app->description("Speed, beside the memory's own speed.");
  app->footer(
      "Examples:\n"
      "  pop bench decode --methods dense,pop --ratios 0.2,0.4\n"
      "  pop bench roof\n");
  add_measurement(*app, commands, true);
  add_measurement(*app, commands, false);
  add_roof(*app, commands);
  commands.push_back({app, []() -> int {
                        throw UsageError("bench: expected a command: decode, prefill or roof; see pop bench --help");
                      }});
}

}  // namespace pop::app
