// Options that mean the same in every command (docs/cli.md), and what they come to.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pop.h"

namespace CLI {
class App;  // the parser is a large header: only files that define options include it
}

namespace pop::app {

struct OutputArgs {
  bool json = false, quiet = false;
  std::string color = "auto";  // auto | always | never
};

struct PruneArgs {
  PruneSettings settings;
  bool no_pack = false;

  // `seed` (--seed) is the mask's for a random method. Throws UsageError if both ratios were given.
  PruneSettings resolved(std::optional<uint64_t> seed) const;
};

struct SamplingArgs {
  std::optional<double> temp, top_p, min_p, repeat_penalty;
  std::optional<int> top_k;
  std::optional<uint64_t> seed;

  // What was not given is the model file's advice (general.sampling.*), else 0.7 and everything else off.
  SamplingOptions resolved(const ModelInfo& info) const;
};

// A prompt: exactly one of a text, a file, ids, or "-" for standard input.
struct PromptArgs {
  std::optional<std::string> text, file, ids;
  std::string dash;
  bool escape = false, special = false;

  bool given() const;
  // The bytes of the text, "" for --ids; a file's or standard input's last newline is dropped if `drop_newline`. Called
  // once, before the model is loaded, so that a wrong path is said at once. Throws UsageError if not exactly one source was
  // given, Error if it cannot be read.
  std::string read(bool drop_newline) const;
  // The ids of that text (or of --ids), with the beginning-of-sequence rule of the engine. Throws Error on an id the model
  // does not have.
  std::vector<int32_t> tokens(const Engine& engine, const std::string& bytes) const;
};

struct DumpArgs {
  std::optional<std::string> partition, logits;
  bool profile = false;
  std::optional<std::string> trace;
};

void add_output_options(CLI::App& app, OutputArgs& args);
void add_model_options(CLI::App& app, EngineOptions& options);
void add_prune_options(CLI::App& app, PruneArgs& args);
void add_sampling_options(CLI::App& app, SamplingArgs& args);
// --seed, of masks where nothing is sampled.
void add_seed_option(CLI::App& app, std::optional<uint64_t>& seed);
void add_prompt_options(CLI::App& app, PromptArgs& args);
void add_dump_options(CLI::App& app, DumpArgs& args);

// The engine for these options and the methods that will run on it; without a model the default one. Shows how far the load is,
// prints warnings (both to standard error). Throws Error naming the command that fetches the default model.
Engine make_engine(EngineOptions options, const OutputArgs& output, std::vector<std::string> methods = {});

// Ids separated by one comma or by blanks, or both; `where` names the source in the error.
std::vector<int32_t> parse_ids(std::string_view text, const std::string& where);
void check_ids(std::span<const int32_t> ids, const ModelInfo& info, const std::string& where);

// The bytes of a file, or of standard input for "-". Throws Error, also above kMaxText bytes: what never ends is not a text.
constexpr size_t kMaxText = size_t(256) << 20;
std::string read_file(const std::string& path);

}  // namespace pop::app
