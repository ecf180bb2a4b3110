// pop calibrate: what a text does to the dense model, written to a file for the methods that need it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/dump.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"
#include "base/hash.h"

namespace pop::app {
namespace {

struct CalibrateArgs {
  EngineOptions engine;
  OutputArgs output;
  std::string file, to;
  int length = 128, sequences = 1024, history = 0, allocate = 0;
  std::optional<double> tyr;
  RepairOptions repair;
};

// Consecutive windows of the text; a text shorter than one is a single sequence. A model that wants a beginning token gets it
// in place of a window's first one, so that the length stays.
std::vector<std::vector<int32_t>> read_windows(const CalibrateArgs& args, const Engine& engine,
                                               const std::string& bytes) {
  const std::vector<int32_t> ids = engine.encode(bytes), bos = engine.prompt("");
  if (ids.empty()) fail("{}: expected a text, found nothing in it", printable(args.file, 400));
  const size_t length = std::min(ids.size(), size_t(args.length));
  std::vector<std::vector<int32_t>> windows;
  for (size_t at = 0; at + length <= ids.size() && windows.size() < size_t(args.sequences); at += length) {
    windows.emplace_back(ids.begin() + ptrdiff_t(at), ids.begin() + ptrdiff_t(at + length));
    if (!bos.empty()) windows.back().front() = bos.front();
  }
  return windows;
}

void print_repair(const CalibrationResult& result) {
  fmt::print("{}\n", result.search);
  if (!result.generations.empty())
    fmt::print(
        "KL of the first generation's best {:.4f}, of the last one's {:.4f} nats per token, on texts that each draws "
        "anew\n",
        result.generations.front(), result.generations.back());
  fmt::print("channels removed per layer: {}\n", fmt::join(result.removed, " "));
}

int calibrate(const CalibrateArgs& args) {
  if (args.file.empty()) throw UsageError("calibrate: expected a text, -f FILE");
  if (args.to.empty()) throw UsageError("calibrate: expected a file to write, -o FILE");
  const std::string bytes = read_file(args.file);
  const std::string sha256 = sha256_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  Engine engine = make_engine(args.engine, args.output, {"dense"});
  if (args.length > engine.info().context)
    throw UsageError(
        fmt::format("--length {} exceeds the context of {} tokens (--ctx)", args.length, engine.info().context));
  const std::vector<std::vector<int32_t>> windows = read_windows(args, engine, bytes);

  InterruptScope interrupts;
  std::optional<Progress> progress(std::in_place, "calibrate", args.output);
  int64_t steps = 0;  // of what is under way: the texts, then a search
  CalibrationOptions options;
  options.source = fmt::format("{} (sha256 {})", printable(args.file, 400), sha256);
  options.history = args.history;
  options.allocate = args.allocate;
  if (args.tyr) {
    options.repair = args.repair;
    options.repair->ratio = *args.tyr;
  }
  options.hooks.interrupted = InterruptScope::raised;
  options.hooks.on_progress = [&](int64_t done, int64_t total) {
    if (steps != 0 && total != steps) progress.emplace("search", args.output);
    steps = total;
    progress->update(done, total);
  };
  const CalibrationResult result = engine.calibrate(windows, options);
  if (result.bytes.empty()) {
    note(args.output, result.sequences < windows.size()
                          ? fmt::format("interrupted after {} of {} sequences; nothing was written", result.sequences,
                                        windows.size())
                          : std::string("interrupted while searching; nothing was written"));
    return kInterrupted;
  }
  OutputFile file(args.to);
  file.write({reinterpret_cast<const char*>(result.bytes.data()), result.bytes.size()});
  file.close();

  if (!args.output.json) {
    fmt::print("{}: {} sequences of {} tokens in {:.1f} s, {:.1f} MB\n", printable(args.to, 400), result.sequences,
               windows.front().size(), result.seconds, double(result.bytes.size()) / 1e6);
    if (args.tyr) print_repair(result);
    return kDone;
  }
  Json json;
  json["file"] = args.to;
  json["file_bytes"] = result.bytes.size();
  json["corpus"] = args.file;
  json["corpus_sha256"] = sha256;
  json["length"] = windows.front().size();
  json["sequences"] = result.sequences;
  json["tokens"] = result.tokens;
  json["history"] = std::min<size_t>(size_t(args.history), windows.front().size());
  json["allocate"] = args.allocate;
  if (args.tyr)
    json["tyr"] = {{"ratio", *args.tyr},       {"search", result.search},
                   {"seed", args.repair.seed}, {"searched_tokens", result.searched_tokens},
                   {"kl", result.generations}, {"removed", result.removed}};
  json["seconds"] = result.seconds;
  json["model_sha256"] = engine.info().model_sha256;
  json["isa"] = engine.info().isa;
  json["activations_prefill"] = engine.info().activations_prefill;
  print_json(json);
  return kDone;
}

}  // namespace

void add_calibrate(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<CalibrateArgs>();
  CLI::App* app = root.add_subcommand("calibrate");
  app->description(
      "Statistics of a text for the methods that need them (pop methods). The dense model reads consecutive windows of "
      "the text; what its channels did is written to a file, for --calibration. The file serves this model only.");
  app->add_option("-f,--file", args->file, "The text")->option_text("FILE");
  app->add_option("-o,--output", args->to, "The file to write")->option_text("FILE");
  app->add_option("--length", args->length, "Tokens of a window; a shorter text is one window [128]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--sequences", args->sequences, "Windows at most [1024]")
      ->option_text("S")
      ->check(whole_in(1, 1 << 20));
  app->add_option("--history", args->history,
                  "Positions of which activations are kept one by one, for method probe; 4 bytes times layers times "
                  "channels each [0]")
      ->option_text("N")
      ->check(whole_in(0, 1 << 16));
  app->add_option("--allocate", args->allocate,
                  "Windows on which a search decides how far each matrix of a block may go, for method teal [0]")
      ->option_text("N")
      ->check(whole_in(0, 1 << 10));
  CLI::Option* const tyr =
      app->add_option(
             "--tyr", args->tyr,
             "Make the repaired model of method tyr as well, for this ratio: layers pruned by least squares, their "
             "widths searched for")
          ->option_text("R")
          ->check(real_in(0, 1));
  app->add_option("--iterations", args->repair.iterations, "tyr: searches, each with half the step [2]")
      ->option_text("N")
      ->needs(tyr)
      ->check(whole_in(0, 16));
  app->add_option("--generations", args->repair.generations, "tyr: generations of a search [8]")
      ->option_text("N")
      ->needs(tyr)
      ->check(whole_in(0, 1 << 16));
  app->add_option("--offspring", args->repair.offspring, "tyr: children of a generation [16]")
      ->option_text("N")
      ->needs(tyr)
      ->check(whole_in(1, 1 << 16));
  app->add_option("--seed", args->repair.seed, "tyr: of the search [1]")->option_text("N")->needs(tyr);
  add_model_options(*app, args->engine);
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop calibrate -f text.txt -o text.calib\n"
      "  pop calibrate -f task.txt -o task.calib --length 1024 --json\n"
      "  pop calibrate -f text.txt -o text.tyr --tyr 0.2 --length 256 --sequences 64   # long: a search\n");
  commands.push_back({app, [args] { return calibrate(*args); }});
}

}  // namespace pop::app
