#include "apps/pop/args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "apps/pop/command.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

constexpr const char* kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

// models/ beside the current folder, then beside and above the program: a build folder or an installation in the clone.
std::string find_default_model() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(kDefaultModel, ignored)) return kDefaultModel;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  fs::path folder = program.parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    const fs::path candidate = folder / kDefaultModel;
    if (fs::exists(candidate, ignored)) return candidate.string();
  }
  fail("{}: the default model is not there; fetch it with scripts/quickstart, or name a model with -m", kDefaultModel);
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const size_t known = next == '\0' ? std::string_view::npos : std::string_view("ntr\\").find(next);
    if (known == std::string_view::npos) {
      out += text[i];
    } else {
      out += "\n\t\r\\"[known];
      ++i;
    }
  }
  return out;
}

std::optional<double> advice(const ModelInfo& info, std::string_view key) {
  for (const auto& [name, value] : info.metadata) {
    if (name != key) continue;
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) return number;
  }
  return std::nullopt;
}

}  // namespace

PruneSettings PruneArgs::resolved(std::optional<uint64_t> seed) const {
  if (settings.ratio && settings.ffn_sparsity) throw UsageError("--ratio and --ffn-sparsity exclude each other");
  const PruneSettings& s = settings;
  const std::pair<const char*, bool> given[] = {{"--ratio", s.ratio.has_value()},
                                                {"--ffn-sparsity", s.ffn_sparsity.has_value()},
                                                {"--ratio-of", !s.ratio_of.empty()},
                                                {"--gamma", s.gamma.has_value()},
                                                {"--metric", !s.metric.empty()},
                                                {"--decode-metric", !s.decode_metric.empty()},
                                                {"--norm", !s.norm.empty()},
                                                {"--prefill", !s.prefill.empty()},
                                                {"--match", !s.match.empty()},
                                                {"--plus-rule", !s.plus_rule.empty()},
                                                {"--min-tokens", s.min_tokens.has_value()},
                                                {"--few-tokens", !s.few_tokens.empty()},
                                                {"--random-every", !s.random_every.empty()},
                                                {"--partition", !s.partition.empty()},
                                                {"--repaired", !s.repaired.empty()},
                                                {"--refresh", s.refresh.has_value()},
                                                {"--refresh-last", s.refresh_last.has_value()},
                                                {"--calibration", !s.calibration.empty()}};
  for (const auto& [name, present] : given)
    if (present && s.method == "dense")
      throw UsageError(fmt::format("{}: nothing is pruned by method dense; choose one, e.g. --prune pop", name));
  PruneSettings out = settings;
  out.pack = !no_pack;
  if (settings.method == "random") out.seed = seed;
  return out;
}

SamplingOptions SamplingArgs::resolved(const ModelInfo& info) const {
  SamplingOptions out;
  out.temp = temp ? *temp : advice(info, "general.sampling.temp").value_or(0.7);
  out.top_k = top_k ? *top_k : static_cast<int>(advice(info, "general.sampling.top_k").value_or(0));
  out.top_p = top_p ? *top_p : advice(info, "general.sampling.top_p").value_or(1);
  out.min_p = min_p ? *min_p : advice(info, "general.sampling.min_p").value_or(0);
  out.repeat_penalty = repeat_penalty.value_or(1);
  out.seed = seed.value_or(0);
  return out;
}

bool PromptArgs::given() const { return text || file || ids || !dash.empty(); }

std::string PromptArgs::read(bool drop_newline) const {
  const int sources = int(text.has_value()) + int(file.has_value()) + int(ids.has_value()) + int(!dash.empty());
  if (sources != 1)
    throw UsageError(fmt::format("expected one of -p TEXT, -f FILE, --ids LIST or - (standard input), found {}",
                                 sources == 0 ? "none" : "several"));
  if (!dash.empty() && dash != "-")
    throw UsageError(
        fmt::format("expected - (standard input) or an option, found '{}'; a text is given with -p", printable(dash)));
  if (ids) return "";
  if (text) return escape ? unescape(*text) : *text;
  std::string bytes = read_file(file ? *file : "-");
  if (drop_newline && bytes.ends_with('\n')) bytes.pop_back();
  return escape ? unescape(bytes) : bytes;
}

std::vector<int32_t> PromptArgs::tokens(const Engine& engine, const std::string& bytes) const {
  if (!ids) return engine.prompt(bytes, special);
  auto list = parse_ids(*ids, "--ids");
  check_ids(list, engine.info(), "--ids");
  return list;
}

void add_output_options(CLI::App& app, OutputArgs& args) {
  const char* group = "Output";
  app.add_flag("--json", args.json, "One JSON object on standard output")->group(group);
  app.add_flag("-q,--quiet", args.quiet, "Nothing on standard error but errors")->group(group);
  app.add_option("--color", args.color, "auto, always or never; NO_COLOR is honoured [auto]")
      ->option_text("WHEN")
      ->check(one_of({"auto", "always", "never"}))
      ->group(group);
}

void add_model_options(CLI::App& app, EngineOptions& options) {
  const char* group = "Model";
  app.add_option("-m,--model", options.model,
                 "GGUF file, the first of a split one, or a Hugging Face folder [the default model]")
      ->option_text("PATH")
      ->check(not_empty())
      ->group(group);
  app.add_option("-t,--threads", options.threads, "Worker threads [the CPUs this process may use]")
      ->option_text("N")
      ->check(whole_in(1, 1024))
      ->group(group);
  app.add_option("--isa", options.isa, "Instruction set: scalar, avx2, avx512, amx [the best available]")
      ->option_text("NAME")
      ->group(group);
  app.add_option("--activations", options.activations,
                 "Arithmetic of weight products: f32 (the reference), bf16, i16, i8 [fastest that is close to f32]")
      ->option_text("TYPE")
      ->check(one_of({"auto", "f32", "bf16", "i16", "i8"}))
      ->group(group);
  app.add_option("--kv", options.kv, "Type of the key-value cache: f32, f16, bf16, q8_0 [f16]")
      ->option_text("TYPE")
      ->check(one_of({"f32", "f16", "bf16", "q8_0"}))
      ->group(group);
  app.add_option(
         "-c,--ctx", options.context,
         "Context in tokens; a longer prompt is an error [the model's, at most 8192; with LongRoPE its original one]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 24))
      ->group(group);
  app.add_option("--prefill-chunk", options.prefill_chunk, "Prompt tokens per pass; changes no bit of the result [512]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 16))
      ->group(group);
  app.add_option("--layout", options.layout,
                 "How matrices lie in memory: rows, columns, auto (by the methods that run) [auto]")
      ->option_text("NAME")
      ->check(one_of({"rows", "columns", "auto"}))
      ->group(group);
  app.add_option("--bos", options.bos, "Beginning-of-sequence token: auto (what the file says), never, always [auto]")
      ->option_text("WHEN")
      ->check(one_of({"auto", "never", "always"}))
      ->group(group);
  app.add_option("--load-as", options.load_as,
                 "Make the weights this type while loading, as pop convert --type would: f32, f16, bf16, q8_0, q6_k, "
                 "q5_0, q5_1, q4_k, q4_0, q4_1 [as in the file]")
      ->option_text("TYPE")
      ->transform(lower_case())
      ->check(one_of(weight_type_names()))
      ->group(group);
  app.add_option("--cache", options.cache,
                 "Folder for the weights as they lie in memory: written once, mapped at the next start [off]")
      ->option_text("DIR")
      ->check(not_empty())
      ->group(group);
  app.add_flag("--full-hash", options.full_hash, "model_sha256 of the whole file, not of its first MiB and its size")
      ->group(group);
}

void add_prune_options(CLI::App& app, PruneArgs& args) {
  const char* group = "Pruning (pop help pruning)";
  PruneSettings& s = args.settings;
  const auto text = [&](const char* name, std::string& target, const char* type, std::vector<std::string> words,
                        const char* description) {
    app.add_option(name, target, description)->option_text(type)->check(one_of(std::move(words)))->group(group);
  };
  const auto whole = [&](const char* name, std::optional<int>& target, const char* type, int least,
                         const char* description) {
    app.add_option(name, target, description)->option_text(type)->check(whole_in(least, 1 << 24))->group(group);
  };
  text("--prune", s.method, "METHOD", method_names(), "A name from `pop methods` [dense]");
  app.add_option("-r,--ratio", s.ratio, "Share of the blocks' weights to prune, 0 to 1 [0.2]")
      ->option_text("R")
      ->check(real_in(0, 1))
      ->group(group);
  app.add_option("--ffn-sparsity", s.ffn_sparsity, "In place of --ratio: share of the FFN channels, 0 to 1")
      ->option_text("P")
      ->check(real_in(0, 1))
      ->group(group);
  text("--ratio-of", s.ratio_of, "WHAT", {"blocks", "active", "total"}, "What the ratio counts [blocks]");
  app.add_option("--gamma", s.gamma, "Width of the candidate region, 0 to 2 [0.1]")
      ->option_text("G")
      ->check(real_in(0, 2))
      ->group(group);
  text("--metric", s.metric, "NAME", {"down", "gate-up"}, "Importance of a channel: down, gate-up [down]");
  text("--decode-metric", s.decode_metric, "NAME", {"down", "gate-up"}, "The same for candidates [as --metric]");
  text("--norm", s.norm, "A", {"1", "2", "max"}, "Aggregate over weights: 1, 2, max [2; gate-up: max]");
  text("--prefill", s.prefill, "HOW", {"dense", "pruned"}, "Whether the prompt is pruned too: dense, pruned [dense]");
  text("--plus-rule", s.plus_rule, "RULE", {"sites", "prompt"},
       "pop+: skip more where less is lost (sites), or the same share at every site (prompt) [sites]");
  whole("--min-tokens", s.min_tokens, "N", 0,
        "Experts: one that fewer prompt tokens went through is not scored by them [8]");
  text("--few-tokens", s.few_tokens, "HOW", {"layer", "dense"},
       "Of such an expert: scored by all tokens of its layer (layer), or left whole (dense) [layer]");
  text("--match", s.match, "METHOD", method_names(),
       "Read as much per token as METHOD at --ratio (methods without candidates) [off]");
  app.add_option("--calibration", s.calibration,
                 "Statistics of a text, made by pop calibrate, for methods that need them")
      ->option_text("FILE")
      ->check(not_empty())
      ->group(group);
  text("--repaired", s.repaired, "TYPE", {"model", "bf16"},
       "tyr: type of the repaired weights, that of the model's or bf16 [model]");
  text("--partition", s.partition, "WHOSE", {"sequence", "shared"},
       "In a batch: one partition per sequence, or one shared by all [sequence]");
  whole("--refresh", s.refresh, "N", 1,
        "Every N tokens of the answer decide anew, from prompt and answer, what is left out [never]");
  whole("--refresh-last", s.refresh_last, "M", 1,
        "The last M of those tokens, read again by all weights, are what it decides from [all N]");
  text("--random-every", s.random_every, "WHEN", {"sequence", "token"},
       "random: a new mask per sequence, token [sequence]");
  app.add_flag("--no-pack", args.no_pack, "Use the chosen channels in place; changes no bit of the result")
      ->group(group);
}

void add_sampling_options(CLI::App& app, SamplingArgs& args) {
  const char* group = "Sampling";
  app.add_option("--temp", args.temp, "Temperature, 0 to 100; 0 is greedy [the model's advice, or 0.7]")
      ->option_text("T")
      ->check(real_in(0, 100))
      ->group(group);
  app.add_option("--top-k", args.top_k, "Keep the K most likely tokens; 0 is off [0]")
      ->option_text("K")
      ->check(whole_in(0, INT32_MAX))
      ->group(group);
  app.add_option("--top-p", args.top_p, "Keep the most likely tokens up to this share, 0 to 1 [1]")
      ->option_text("P")
      ->check(real_in(0, 1))
      ->group(group);
  app.add_option("--min-p", args.min_p, "Keep tokens at least P times as likely as the best, 0 to 1 [0]")
      ->option_text("P")
      ->check(real_in(0, 1))
      ->group(group);
  app.add_option("--repeat-penalty", args.repeat_penalty, "Divides the scores of tokens seen before, 0.01 to 100 [1]")
      ->option_text("X")
      ->check(real_in(0.01, 100))
      ->group(group);
  app.add_option("--seed", args.seed, "Seed of the sampler and of a random mask; same seed, same answer [0; mask: 1]")
      ->option_text("S")
      ->check(whole_in(0, INT64_MAX))
      ->group(group);
}

void add_seed_option(CLI::App& app, std::optional<uint64_t>& seed) {
  app.add_option("--seed", seed, "Seed of what is drawn: the mask of `random` [1]")
      ->option_text("S")
      ->check(whole_in(0, INT64_MAX))
      ->group("Pruning (pop help pruning)");
}

void add_prompt_options(CLI::App& app, PromptArgs& args) {
  const char* group = "Prompt (one of them)";
  app.add_option("-p,--prompt", args.text, "The text itself; \\n stays two characters unless -e is given")
      ->option_text("TEXT")
      ->group(group);
  app.add_option("-f,--file", args.file,
                 "A file, bytes as they are: what is not UTF-8 reaches the tokenizer byte by byte")
      ->option_text("FILE")
      ->group(group);
  app.add_option("--ids", args.ids, "Token ids, separated by commas or blanks")->option_text("LIST")->group(group);
  app.add_option("source", args.dash, "Standard input")->option_text("-")->group(group);
  app.add_flag("-e,--escape", args.escape, "Turn \\n, \\t, \\r and \\\\ of the text into what they stand for")
      ->group(group);
  app.add_flag("--special", args.special, "Text that spells a special token becomes that token")->group(group);
}

void add_dump_options(CLI::App& app, DumpArgs& args) {
  const char* group = "Output";
  app.add_flag("--profile", args.profile, "Time and bytes per part, adding up to the wall time")->group(group);
  app.add_option("--trace", args.trace, "Write what each thread did when, for chrome://tracing or ui.perfetto.dev")
      ->option_text("FILE")
      ->group(group);
  app.add_option("--dump-partition", args.partition, "Write partitions and choices, one JSON object per line")
      ->option_text("FILE")
      ->group(group);
  app.add_option("--dump-logits", args.logits, "Write float32 [positions, vocab] of every computed position as .npy")
      ->option_text("FILE")
      ->group(group);
}

Engine make_engine(EngineOptions options, const OutputArgs& output, std::vector<std::string> methods) {
  options.methods = std::move(methods);
  if (options.model.empty()) options.model = find_default_model();
  Progress progress("load", output);
  options.on_load = [&](uint64_t done, uint64_t total) { progress.update(int64_t(done), int64_t(total)); };
  Engine engine(options);
  for (const std::string& warning : engine.info().warnings) note(output, "pop: warning: " + printable(warning, 1000));
  return engine;
}

std::vector<int32_t> parse_ids(std::string_view text, const std::string& where) {
  std::vector<int32_t> ids;
  constexpr std::string_view kBlanks = " \t\r\n", kSeparators = ", \t\r\n";
  const auto skip_blanks = [&](size_t at) { return std::min(text.find_first_not_of(kBlanks, at), text.size()); };
  bool after_comma = false;
  for (size_t at = skip_blanks(0); at < text.size() || after_comma;) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (word.empty()) fail("{}: expected a token id on both sides of each comma, found none", where);
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0)
      fail("{}: expected token ids (whole numbers from 0) separated by commas, found '{}'", where, printable(word));
    ids.push_back(id);
    at = skip_blanks(end);
    after_comma = at < text.size() && text[at] == ',';
    if (after_comma) at = skip_blanks(at + 1);
  }
  return ids;
}

void check_ids(std::span<const int32_t> ids, const ModelInfo& info, const std::string& where) {
  for (const int32_t id : ids)
    if (id < 0 || id >= info.vocab) fail("{}: expected token ids from 0 to {}, found {}", where, info.vocab - 1, id);
}

std::string read_file(const std::string& path) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : printable(path, 400);
  std::error_code ignored;
  if (!standard && std::filesystem::is_directory(path, ignored)) fail("{}: expected a file, found a folder", name);
  std::FILE* file = standard ? stdin : std::fopen(path.c_str(), "rb");
  if (!file) fail("{}: cannot be opened: {}", name, std::strerror(errno));
  std::string bytes;
  char block[1 << 16];
  for (size_t n; (n = std::fread(block, 1, sizeof block, file)) > 0;) {
    bytes.append(block, n);
    if (bytes.size() <= kMaxText) continue;
    if (!standard) std::fclose(file);
    fail("{}: expected at most {} MiB of text, found more", name, kMaxText >> 20);
  }
  const bool broken = std::ferror(file) != 0;
  if (!standard) std::fclose(file);
  if (broken) fail("{}: cannot be read", name);
  return bytes;
}

}  // namespace pop::app
