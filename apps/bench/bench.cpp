// pop bench: tokens per second and bytes read, beside what the memory can do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "apps/bench/commands.h"
#include "apps/bench/report.h"
#include "apps/bench/rows.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/cpu.h"
#include "base/error.h"
#include "kernels/select.h"
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
  ShapeArgs shape;
  OutputArgs output;
  std::vector<std::string> methods = {"dense", "pop", "pop+"};
  std::vector<double> ratios = {0.2};
  std::optional<uint64_t> seed;
  std::vector<int> threads, prompts, contexts, batches = {1};
  std::optional<int> gen;
  int rounds = 3;
  std::string csv;
  bool decode = true;
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
      if (option == "plus-rule") out.plus_rule = all.plus_rule;
      if (option == "repaired") out.repaired = all.repaired;
      if (option == "refresh") out.refresh = all.refresh, out.refresh_last = all.refresh_last;
      if (option == "min-tokens") out.min_tokens = all.min_tokens;
      if (option == "few-tokens") out.few_tokens = all.few_tokens;
      if (option == "random-every") out.random_every = all.random_every;
      if (option == "seed") out.seed = args.seed;
    }
  }
  return out;
}

// "pop" at each of --ratios, "pop:0.4" at that one. Throws UsageError.
std::vector<PruneSettings> methods_asked(const BenchArgs& args) {
  const auto names = method_names();
  std::vector<PruneSettings> out;
  for (const std::string& word : args.methods) {
    const size_t colon = word.find(':');
    const std::string method = word.substr(0, colon);
    if (std::find(names.begin(), names.end(), method) == names.end()) {
      const std::string near = nearest(method, names);
      throw UsageError(fmt::format("--methods: '{}' is not a method{}; see pop methods", printable(method),
                                   near.empty() ? "" : fmt::format(", the nearest is {}", near)));
    }
    std::vector<double> ratios = args.ratios;
    if (colon != std::string::npos) {
      double ratio = -1;
      const char *begin = word.data() + colon + 1, *end = word.data() + word.size();
      const auto [rest, error] = std::from_chars(begin, end, ratio);
      if (error != std::errc() || rest != end || !(ratio >= 0 && ratio <= 1))
        throw UsageError(
            fmt::format("--methods: expected METHOD:RATIO with a ratio of 0 to 1, found '{}'", printable(word)));
      ratios = {ratio};
    }
    for (const double ratio : ratios) {
      out.push_back(settings_for(args, method, ratio));
      if (!out.back().ratio) break;  // dense has no ratio: one row
    }
  }
  return out;
}

// "pop:0.4" without its ratio: what the weights are laid out for.
std::vector<std::string> names_of(std::vector<std::string> methods) {
  for (std::string& method : methods) method.resize(std::min(method.size(), method.find(':')));
  return methods;
}

constexpr int kMostPrefilled = 512;  // of a long context that much is prefilled, the rest repeats it

std::vector<Row> make_rows(const BenchArgs& args, const std::vector<int>& threads) {
  std::vector<Row> rows;
  const auto methods = methods_asked(args);
  const auto add = [&](RowSpec spec) {
    for (const int n : threads)
      for (const PruneSettings& method : methods) {
        spec.prune = method;
        spec.threads = n;
        rows.emplace_back().spec = spec;
      }
  };
  RowSpec spec;
  if (!args.decode) {
    for (const int n : args.prompts.empty() ? std::vector<int>{512} : args.prompts) {
      spec.n_prompt = n;
      add(spec);
    }
    return rows;
  }
  spec.n_gen = args.gen.value_or(128);
  for (const int batch : args.batches) {
    spec.batch = batch;
    for (const int n : args.prompts.empty() && args.contexts.empty() ? std::vector<int>{128} : args.prompts) {
      spec.n_prompt = spec.context = n;
      add(spec);
    }
    if (batch > 1 && !args.contexts.empty()) throw UsageError("--context and --batch above 1 exclude each other");
    for (const int n : args.contexts) {
      spec.context = n;
      spec.n_prompt = std::min(n, kMostPrefilled);
      add(spec);
    }
  }
  return rows;
}

std::vector<int32_t> prompt_of(const Engine& engine, int tokens, bool random) {
  std::string text;
  std::vector<int32_t> ids;
  if (random || engine.info().tokenizer_model.empty()) {
    uint64_t state = 1;  // ids anywhere in the vocabulary: of random weights every token means as much
    for (int i = 0; i < tokens; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      ids.push_back(int32_t((state >> 33) % uint64_t(engine.info().vocab)));
    }
  }
  while (static_cast<int>(ids.size()) < tokens) {
    text += kText;
    ids = engine.prompt(text);
    if (text.size() > size_t(tokens) * 64 + 4096)
      fail("bench: the tokenizer gives too few tokens for a prompt of {}", tokens);
  }
  ids.resize(tokens);
  return ids;
}

std::vector<int> threads_asked(std::vector<int> threads) {
  if (threads.empty()) threads = {usable_cpus()};
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  return threads;
}

int bench(const BenchArgs& args) {
  InterruptScope interrupts;
  const std::vector<int> threads = threads_asked(args.threads);
  std::vector<Row> rows = make_rows(args, threads);
  int longest = 0, n_prompt = 0;
  for (const Row& row : rows) {
    longest = std::max(longest, std::max(row.spec.context, row.spec.n_prompt) + std::max(1, row.spec.n_gen));
    n_prompt =
        std::max(n_prompt, row.spec.n_prompt + (row.spec.batch - 1) * 17);  // rows.cpp shifts each sequence by 17
  }
  EngineOptions options = args.engine;
  options.threads = threads.back();
  if (options.context == 0) options.context = std::max(longest, 512);
  if (longest > options.context)
    throw UsageError(fmt::format("a prompt and new tokens of {} together exceed the context of {} (--ctx)", longest,
                                 options.context));
  std::optional<TemporaryModel> temporary;
  if (args.shape.given()) {
    if (!options.model.empty()) throw UsageError("--model and --shape exclude each other");
    options.model = temporary.emplace(args.shape).path();
  }
  Engine engine = make_engine(options, args.output, names_of(args.methods));
  const ModelInfo& info = engine.info();
  uint64_t token_bytes = 0;
  for (const ByteShare& part : info.bytes_per_token) token_bytes += part.bytes;
  Roof roof(token_bytes, select_kernels(info.isa));
  std::vector<RoofPoint> roofs;
  for (const int n : threads) roofs.push_back(roof.measure(n));
  const auto prompt = prompt_of(engine, n_prompt, args.shape.given());
  {
    Progress progress("bench", args.output);
    if (!measure_rows(engine, rows, args.rounds, roof, prompt,
                      [&](int64_t done, int64_t total) { progress.update(done, total); }))
      return kInterrupted;
  }
  std::string weights;
  if (args.shape.given())
    weights = args.shape.description() + (args.shape.selection == "clustered"
                                              ? ": random weights, important channels in runs of 64"
                                              : ": random weights, so pruning chooses at random");
  const Json json = report_json({info, rows, roofs, weights});
  if (!args.csv.empty()) write_rows_csv(args.csv, json);
  if (args.output.json)
    print_json(json);
  else
    fmt::print("{}", report_table(json));
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
  const KernelTable& kernels = select_kernels(args.engine.isa.empty() ? "auto" : args.engine.isa);
  Roof roof(size_t(args.bytes.value_or(kTokenBytes)), kernels);
  std::vector<RoofPoint> points = {roof.measure(1, 0.1)};
  if (threads > 1) points.push_back(roof.measure(threads, 0.1));
  Json json;
  json["machine"] = machine_json(kernels.name, points);
  json["bytes"] = roof.bytes();
  json["streams"] = {{"1", points.front().streams}, {"N", points.back().streams}};
  json["ahead"] = {{"1", points.front().ahead}, {"N", points.back().ahead}};
  json["rows"] = Json::array();
  if (args.output.json) {
    print_json(json);
    return kDone;
  }
  fmt::print("{}: reading {:.1f} MB again and again\n", cpu_model_name(), double(roof.bytes()) / 1e6);
  for (const RoofPoint& point : points)
    fmt::print("  {:>2} thread{} {:6.1f} GB/s  ({} streams per thread, prefetched {} bytes ahead, spread {:.0f}%)\n",
               point.threads, point.threads == 1 ? ", " : "s,", point.bytes_per_s / 1e9, point.streams, point.ahead,
               100 * point.spread);
  fmt::print("A token cannot be faster than its weight bytes over this rate. --bytes sets another size.\n");
  return kDone;
}

void add_lists(CLI::App& app, BenchArgs& args) {
  app.add_option("--methods", args.methods,
                 "Names from `pop methods`, separated by commas; METHOD:RATIO for a ratio of its own [dense,pop,pop+]")
      ->option_text("LIST")
      ->delimiter(',');
  app.add_option("--ratios", args.ratios, "Ratios of the methods that prune, separated by commas [0.2]")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(real_in(0, 1));
  app.add_option("-p,--n-prompt", args.prompts,
                 args.decode ? "Prompt tokens before the answer, one number or several [128]"
                             : "Prompt tokens, one number or several [512]")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(whole_in(1, 1 << 24));
  if (args.decode) {
    app.add_option("-n,--n-gen", args.gen, "Tokens to write [128]")->option_text("N")->check(whole_in(2, 1 << 24));
    app.add_option("--batch", args.batches, "Sequences decoded together, one number or several [1]")
        ->option_text("LIST")
        ->delimiter(',')
        ->check(whole_in(1, 1024));
    app.add_option("--context", args.contexts,
                   "Positions in the cache before the answer, one number or several; from 512 on filled by repeating")
        ->option_text("LIST")
        ->delimiter(',')
        ->check(whole_in(1, 1 << 24));
  }
}

void add_measurement(CLI::App& root, Commands& commands, bool decode) {
  auto args = std::make_shared<BenchArgs>();
  args->decode = decode;
  const char* name = decode ? "decode" : "prefill";
  CLI::App* app = root.add_subcommand(name);
  app->description(
      decode
          ? "Speed of writing (tg128). Row by row, in interleaved rounds; medians, each beside the memory's own speed "
            "just before and after. A round in which that moved by more than 10% is repeated, at most 3 times, then "
            "kept and marked; so is a row faster than the memory."
          : "Speed of reading a prompt (pp512). Row by row, in interleaved rounds; medians.");
  add_lists(*app, *args);
  app->add_option("--rounds", args->rounds, "Rounds counted, after one to warm up [3]")
      ->option_text("N")
      ->check(whole_in(1, 1000));
  app->add_option("--csv", args->csv, "Write the rows as CSV")->option_text("FILE");
  add_prune_options(*app, args->prune);
  for (const char* taken : {"--prune", "--ratio", "--ffn-sparsity"}) app->remove_option(app->get_option(taken));
  add_seed_option(*app, args->seed);
  add_model_options(*app, args->engine);
  app->remove_option(app->get_option("--threads"));
  app->add_option("-t,--threads", args->threads,
                  "Worker threads, one number or several [the CPUs this process may use]")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(whole_in(1, 1024))
      ->group("Model");
  add_shape_options(*app, args->shape);
  add_output_options(*app, args->output);
  app->footer(
      fmt::format("A pruning option applies to the methods that take it.\n\n"
                  "Examples:\n"
                  "  pop bench {0}\n"
                  "  pop bench {0} --methods dense,pop:0.2,pop:0.4,pop+:0.2 -t 1,2 --json\n"
                  "  pop bench {0} --shape llama-2-7b --type q4_0 --layers 4\n",
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
  add_bench_kernels(*app, commands);
  add_bench_write(*app, commands);
  commands.push_back({app, []() -> int {
                        throw UsageError(
                            "bench: expected a command: decode, prefill, kernels, roof or write; see pop bench --help");
                      }});
}

}  // namespace pop::app
