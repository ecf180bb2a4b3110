// Engine: a loaded model, its texts and tokens, and the sessions on it.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <tuple>

#include "bindings/session.h"

namespace pop::python {
namespace {

using namespace nb::literals;

using Path = std::filesystem::path;
using Word = std::optional<std::string>;  // None: the method's default
using OnLoad = std::function<void(uint64_t, uint64_t)>;

struct PyEngine {
  std::shared_ptr<SharedEngine> shared;
  const Engine& engine() const { return shared->engine; }
};

// An option that the C++ interface has and Python lacks would stop the compiler here: the names must be as many as the members.
[[maybe_unused]] void every_option_is_bound(const EngineOptions& engine, const PruneSettings& prune) {
  [[maybe_unused]] const auto& [model, threads, isa, activations, kv, context, prefill_chunk, layout, methods, bos,
                                full_hash, text_only, load_as, cache, on_load] = engine;
  [[maybe_unused]] const auto& [method, ratio, ffn_sparsity, ratio_of, gamma, metric, decode_metric, norm, prefill,
                                plus_rule, min_tokens, few_tokens, match, repaired, calibration, partition, refresh,
                                refresh_last, random_every, seed, pack] = prune;
}

void load(PyEngine* self, const Path& model, int threads, int ctx, std::string isa, std::string activations,
          std::string kv, int prefill_chunk, std::string layout, std::vector<std::string> methods, std::string bos,
          bool full_hash, bool text_only, const Word& load_as, const std::optional<Path>& cache,
          const std::optional<OnLoad>& on_load) {
  EngineOptions options{.model = model.string(),
                        .threads = threads,
                        .isa = std::move(isa),
                        .activations = std::move(activations),
                        .kv = std::move(kv),
                        .context = ctx,
                        .prefill_chunk = prefill_chunk,
                        .layout = std::move(layout),
                        .methods = std::move(methods),
                        .bos = std::move(bos),
                        .full_hash = full_hash,
                        .text_only = text_only,
                        .load_as = load_as.value_or(""),
                        .cache = cache.value_or(Path()).string()};
  options.on_load = [&](uint64_t done, uint64_t total) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (on_load) (*on_load)(done, total);
  };
  std::shared_ptr<SharedEngine> shared;
  {
    const nb::gil_scoped_release release;
    shared = std::make_shared<SharedEngine>(options);
  }
  new (self) PyEngine{std::move(shared)};
}

// The pruning options as keyword arguments, the same for whatever takes them: Result(PyEngine&, const PruneSettings&).
template <auto run>
auto with_settings(PyEngine& engine, std::string method, std::optional<double> ratio,
                   std::optional<double> ffn_sparsity, const Word& ratio_of, std::optional<double> gamma,
                   const Word& metric, const Word& decode_metric, const Word& norm, const Word& prefill,
                   const Word& plus_rule, std::optional<int> min_tokens, const Word& few_tokens, const Word& match,
                   const Word& repaired, const std::optional<Path>& calibration, const Word& partition,
                   std::optional<int> refresh, std::optional<int> refresh_last, const Word& random_every,
                   std::optional<uint64_t> seed, bool pack) {
  return run(engine, PruneSettings{.method = std::move(method),
                                   .ratio = ratio,
                                   .ffn_sparsity = ffn_sparsity,
                                   .ratio_of = ratio_of.value_or(""),
                                   .gamma = gamma,
                                   .metric = metric.value_or(""),
                                   .decode_metric = decode_metric.value_or(""),
                                   .norm = norm.value_or(""),
                                   .prefill = prefill.value_or(""),
                                   .plus_rule = plus_rule.value_or(""),
                                   .min_tokens = min_tokens,
                                   .few_tokens = few_tokens.value_or(""),
                                   .match = match.value_or(""),
                                   .repaired = repaired.value_or(""),
                                   .calibration = calibration.value_or(Path()).string(),
                                   .partition = partition.value_or(""),
                                   .refresh = refresh,
                                   .refresh_last = refresh_last,
                                   .random_every = random_every.value_or(""),
                                   .seed = seed,
                                   .pack = pack});
}

template <class Class, class Function>
void def_with_settings(Class& c, const char* name, Function function, const char* doc) {
  const nb::object none = nb::none();
  c.def(name, function, "method"_a = "dense", "ratio"_a = none, nb::kw_only(), "ffn_sparsity"_a = none,
        "ratio_of"_a = none, "gamma"_a = none, "metric"_a = none, "decode_metric"_a = none, "norm"_a = none,
        "prefill"_a = none, "plus_rule"_a = none, "min_tokens"_a = none, "few_tokens"_a = none, "match"_a = none,
        "repaired"_a = none, "calibration"_a = none, "partition"_a = none, "refresh"_a = none, "refresh_last"_a = none,
        "random_every"_a = none, "seed"_a = none, "pack"_a = true, doc);
}

PySession session(PyEngine& self, const PruneSettings& settings) {
  Signals signals;
  return {self.shared, work(*self.shared, signals, [&] { return self.shared->engine.session(settings); })};
}

Engine::Planned planned(PyEngine& self, const PruneSettings& settings) { return self.engine().planned(settings); }

nb::bytes calibrate(PyEngine& self, const std::vector<Prompt>& texts, std::string source, int history, int allocate,
                    std::optional<double> tyr, int iterations, int generations, int offspring, uint64_t seed) {
  Signals signals;
  const CalibrationResult result = work(*self.shared, signals, [&] {
    std::vector<std::vector<int32_t>> sequences;
    for (const Prompt& text : texts) sequences.push_back(prompt_ids(self.engine(), text, false));
    CalibrationOptions options{.source = std::move(source), .history = history, .allocate = allocate};
    if (tyr)
      options.repair = RepairOptions{
          .ratio = *tyr, .iterations = iterations, .generations = generations, .offspring = offspring, .seed = seed};
    options.hooks.interrupted = [&] { return signals.raised(); };
    return self.shared->engine.calibrate(sequences, options);
  });
  return nb::bytes(result.bytes.data(), result.bytes.size());
}

void set_threads(PyEngine& self, int threads) {
  Signals signals;
  work(*self.shared, signals, [&] {
    self.shared->engine.set_threads(threads);
    return true;
  });
}

constexpr const char* kEngineDoc = R"(A loaded model.

model: a GGUF file, the first part of a split one, or a Hugging Face folder. threads: 0 is the CPUs this process may use.
ctx: tokens that a prompt and its answer may have; 0 is the model's, at most 8192. isa: "scalar", "avx2", "avx512", ...;
"" is the best available. activations: arithmetic of weight products: auto, f32 (the reference), bf16, i16, i8.
kv: type of the key-value cache: f32, f16, bf16, q8_0. prefill_chunk: prompt tokens per pass; changes no bit of the result.
layout: rows, columns, auto (for the `methods` that sessions will ask for). bos: auto (what the file says), never, always.
full_hash: info.model_sha256 over whole files. text_only: read no weights; there is no session then.
load_as: type of the weights in memory (q8_0, q4_0, ...); None is as the file has them.
cache: folder of a cache file of the re-laid weights. on_load: called with (bytes done, bytes in all); what it raises ends the
load. Threads of Python may share an engine: their calls wait for each other.)";

constexpr const char* kSessionDoc = R"(A conversation on this model, dense or pruned. None is the method's default.

method: a name of popcpp.methods(). ratio: share of the blocks' weights to prune. ffn_sparsity: in its place, share of the FFN
channels. ratio_of: blocks, active, total. gamma: width of the candidate region. metric, decode_metric: down, gate-up.
norm: "1", "2", "max". prefill: dense, pruned. plus_rule (pop+): sites, prompt. min_tokens, few_tokens (layer, dense): of
experts that few tokens of the prompt went through. match: read as much per token as this method at `ratio`.
repaired (tyr): model, bf16, the type of its weights. calibration: file of statistics of a text (Engine.calibrate).
partition: sequence, shared. refresh, refresh_last: decide anew after so many tokens of the answer, from the last so many of
them. random_every: sequence, token.
seed: of a random mask. pack: copy reachable channels together where it pays; changes no bit of the result.
An option that does not apply to the method is an error; docs/pruning.md explains them.)";

void bind_text(nb::class_<PyEngine>& c) {
  c.def(
       "tokenize",
       [](const PyEngine& e, const std::string& text, bool bos, bool special) {
         return bos ? e.engine().prompt(text, special) : e.engine().encode(text, special);
       },
       "text"_a, nb::kw_only(), "bos"_a = false, "special"_a = false, nb::call_guard<nb::gil_scoped_release>(),
       R"(Token ids of a text. bos: with the beginning-of-sequence token where the model wants one, as a prompt has it.
special: text that spells a special token becomes that token.)")
      .def(
          "detokenize",
          [](const PyEngine& e, const std::vector<int32_t>& ids, bool skip_special) {
            return text(e.engine().decode(ids, skip_special));
          },
          "ids"_a, nb::kw_only(), "skip_special"_a = false,
          "The text of token ids; bytes that are not UTF-8 become U+FFFD.")
      .def(
          "token_text", [](const PyEngine& e, int32_t id) { return text(e.engine().token_text(id)); }, "id"_a,
          "A token as the vocabulary spells it; \"\" where the model has no tokenizer.")
      .def(
          "ends_generation", [](const PyEngine& e, int32_t id) { return e.engine().ends_generation(id); }, "id"_a,
          "Whether this token ends an answer.")
      .def(
          "chat_prompt",
          [](const PyEngine& e, const Messages& messages) { return e.engine().chat_prompt(chat_messages(messages)); },
          "messages"_a, nb::call_guard<nb::gil_scoped_release>(),
          R"(Token ids of a chat, by the model's own template, up to where the assistant speaks.

messages: dicts with "role" and "content". Contents are plain text: they cannot forge a special token.)")
      .def(
          "chat_text",
          [](const PyEngine& e, const Messages& messages) {
            return text(e.engine().chat_text(chat_messages(messages)));
          },
          "messages"_a, "The same as text.");
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<PyEngine> c(m, "Engine", kEngineDoc);
  c.def("__init__", &load, "model"_a, nb::kw_only(), "threads"_a = 0, "ctx"_a = 0, "isa"_a = "",
        "activations"_a = "auto", "kv"_a = "f16", "prefill_chunk"_a = 512, "layout"_a = "auto",
        "methods"_a = std::vector<std::string>(), "bos"_a = "auto", "full_hash"_a = false, "text_only"_a = false,
        "load_as"_a = nb::none(), "cache"_a = nb::none(), "on_load"_a = nb::none())
      .def_prop_ro(
          "info", [](const PyEngine& e) -> const ModelInfo& { return e.engine().info(); },
          nb::rv_policy::reference_internal, "What the model file says, and how it was loaded.")
      .def("set_threads", &set_threads, "threads"_a, "Another number of worker threads; changes no bit of any result.")
      .def("calibrate", &calibrate, "texts"_a, nb::kw_only(), "source"_a = "", "history"_a = 0, "allocate"_a = 0,
           "tyr"_a = nb::none(), "iterations"_a = 2, "generations"_a = 8, "offspring"_a = 16, "seed"_a = 1,
           R"(Statistics of texts (or token ids) on the dense model, as bytes: written to a file they are `calibration`.

source: names the texts. history: positions of which squared activations are kept one by one (method probe).
allocate: sequences on which a search shares out a block's level over its matrices (method teal).
tyr: ratio for which the repaired model of method tyr is made as well; iterations, generations, offspring, seed: of its search.)");
  bind_text(c);
  def_with_settings(c, "session", &with_settings<&session>, kSessionDoc);
  def_with_settings(c, "planned", &with_settings<&planned>,
                    "What pop or pop+ would read per token, from the shapes alone; arguments as of session.");
}

}  // namespace pop::python
