// pop bench write: a GGUF file of a real shape with random weights.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "apps/bench/commands.h"
#include "apps/bench/synthetic.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

SyntheticModel model_of(const ShapeArgs& args) {
  SyntheticModel model;
  model.shape = shape_named(args.shape);
  model.type = synthetic_type(args.type);
  model.layers = args.layers.value_or(model.shape.layers);
  model.seed = args.seed;
  if (args.selection == "clustered") model.selection = SelectionPattern::Clustered;
  return model;
}

struct WriteArgs {
  ShapeArgs shape;
  OutputArgs output;
  std::string path;
};

int bench_write(const WriteArgs& args) {
  if (!args.shape.given()) throw UsageError(fmt::format("--shape: expected one of {}", fmt::join(shape_names(), ", ")));
  const auto start = std::chrono::steady_clock::now();
  args.shape.write(args.path);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto bytes = std::filesystem::file_size(args.path);
  if (args.output.json) {
    print_json(
        {{"path", args.path}, {"description", args.shape.description()}, {"bytes", bytes}, {"seconds", seconds}});
  } else {
    fmt::print("{}: {}, {:.1f} MB\n", args.path, args.shape.description(), double(bytes) / 1e6);
    note(args.output, fmt::format("{:.1f} s, {:.0f} MB/s", seconds, rate(double(bytes), seconds) / 1e6));
  }
  return kDone;
}

}  // namespace

void ShapeArgs::write(const std::string& path) const { write_synthetic(model_of(*this), path); }
std::string ShapeArgs::description() const { return describe(model_of(*this)); }

void add_shape_options(CLI::App& app, ShapeArgs& args) {
  const char* group = "Random weights of a real shape";
  app.add_option("--shape", args.shape, fmt::format("{}", fmt::join(shape_names(), ", ")))
      ->option_text("NAME")
      ->check(one_of(shape_names()))
      ->group(group);
  app.add_option("--type", args.type,
                 "Type of the weights: f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q5_k, q6_k, iq4_nl [q4_0]")
      ->option_text("TYPE")
      ->group(group);
  app.add_option("--layers", args.layers, "Number of layers [the shape's]")
      ->option_text("N")
      ->check(whole_in(1, 4096))
      ->group(group);
  app.add_option("--weight-seed", args.seed, "Seed of the weights [1]")
      ->option_text("S")
      ->check(whole_in(0, INT64_MAX))
      ->group(group);
  app.add_option("--selection", args.selection,
                 "Where the important channels lie: random (pruning then chooses at random), clustered (runs of 64) "
                 "[random]")
      ->option_text("HOW")
      ->check(one_of({"random", "clustered"}))
      ->group(group);
}

TemporaryModel::TemporaryModel(const ShapeArgs& args) {
  path_ = (std::filesystem::temp_directory_path() / "pop-bench-XXXXXX").string();
  const int descriptor = mkstemp(path_.data());
  if (descriptor < 0) fail("{}: cannot make a temporary file: {}", path_, std::strerror(errno));
  close(descriptor);
  try {
    args.write(path_);
  } catch (...) {
    std::remove(path_.c_str());
    throw;
  }
}

TemporaryModel::~TemporaryModel() { std::remove(path_.c_str()); }

void add_bench_write(CLI::App& bench, Commands& commands) {
  auto args = std::make_shared<WriteArgs>();
  CLI::App* app = bench.add_subcommand("write");
  app->description(
      "Writes a GGUF file of a real shape with random weights, so that every engine reads the same bytes without a "
      "download.");
  app->add_option("-o,--output", args->path, "The file")->option_text("FILE")->required()->check(not_empty());
  add_shape_options(*app, args->shape);
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop bench write --shape llama-3-8b --type q4_0 --layers 8 -o /tmp/8b.gguf\n"
      "  pop bench write --shape smollm2-135m --type q8_0 -o /tmp/small.gguf\n");
  commands.push_back({app, [args] { return bench_write(*args); }});
}

}  // namespace pop::app
