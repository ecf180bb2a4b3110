// pop.cpp's public interface: load a model once, run any number of sessions on it, dense or pruned.
//   pop::Engine engine({.model = "model.gguf"});
//   auto session = engine.session({.method = "pop", .ratio = 0.2});
//   auto answer = session->generate(engine.encode("The capital of France is"), {.max_tokens = 32});
//
// Every failure throws pop::Exception (a std::runtime_error) with one line that names what was wrong. The library never
// prints, exits or reads the environment. An Engine runs one call at a time: guard it with a mutex between threads.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pop {

using Exception = std::runtime_error;  // what the library throws derives from it

struct EngineOptions {
  std::string model{};                 // a GGUF file, the first part of a split one, or a Hugging Face folder
  int threads = 0;                     // 0: the CPUs this process may use
  std::string isa{};                   // "" or "auto": best available; "scalar", "avx2", "avx512"
  std::string activations = "auto";    // auto | f32 | bf16 | i16 | i8
  std::string kv = "f16";              // f32 | f16 | bf16 | q8_0
  int context = 0;                     // tokens; 0: the model's, at most 8192
  int prefill_chunk = 512;             // prompt tokens per pass; changes no bit of the result
  std::string layout = "auto";         // rows | columns | auto: by `methods`
  std::vector<std::string> methods{};  // that sessions will ask for; `auto` lays out for them (docs/pruning.md)
  std::string bos = "auto";            // auto | never | always
  bool full_hash = false;              // model_sha256 over whole files in place of their first MiB and size
  bool text_only = false;              // the tokenizer and the templates: no weights are read, there is no session
  std::string cache{};                 // folder of a cache file of the re-laid weights; "": none
  std::function<void(uint64_t done, uint64_t total)> on_load{};  // bytes of the file, while it is loaded
};

// Pruning options, as `pop help pruning` explains them. Empty means the method's default; what does not apply is an error.
struct PruneSettings {
  std::string method = "dense";
  std::optional<double> ratio{};         // share of the blocks' weights, 0.2 by default
  std::optional<double> ffn_sparsity{};  // share of the FFN channels, in place of ratio
  std::string ratio_of{};                // blocks | active | total
  std::optional<double> gamma{};
  std::string metric{}, decode_metric{};  // down | gate-up
  std::string norm{}, prefill{};          // 1 | 2 | max; dense | pruned
  std::string plus_rule{};                // pop+: sites | prompt
  std::optional<int> min_tokens{};        // experts: fewer prompt tokens than these say nothing about one
  std::string few_tokens{};               // of such an expert: layer (all tokens of its layer decide) | dense
  std::string match{};                    // read as much per token as this method at `ratio`
  std::string calibration{};              // file of Engine::calibrate, for methods that need one
  std::string partition{};                // sequence | shared: one for all texts of a batch, from all of them
  std::string random_every{};             // random: sequence | token
  std::optional<uint64_t> seed{};         // random
  bool pack = true;                       // copy reachable channels together after the prefill where it pays
};

struct PrunePlanInfo {  // what the settings came to
  std::string method, ratio_of, metric, decode_metric, norm, prefill, plus_rule, few_tokens;
  int min_tokens = 0;       // 0 and few_tokens "": there are no experts, or it does not apply
  std::string calibration;  // the text that it rests on; "": none
  double ratio = 0, ffn_sparsity = 0, gamma = 0, level = 0;  // level (pop+): share skipped on the prompt's own scores
  // Weight bytes of a decoded token by the formulas of the methods (docs/pruning.md), head included: all weights, the
  // method's, and the method's if its candidates cost nothing.
  double dense_bytes = 0, planned_bytes = 0, planned_bytes_without_candidates = 0;
};

// Weights read by decode, counted from the index lists handed to the kernels, in 64-byte lines; means over decoded tokens.
struct ReadStats {
  uint64_t tokens = 0;
  double weight_bytes_per_token = 0;
  double weights_read_share = 0;        // of the dense model's bytes, head included
  double block_weights_read_share = 0;  // blocks only
  double selected_share = 0;            // block weights used, by element
  uint64_t selections = 0;              // choices made from a list, all layers and sites; 0 for dense
};

struct SamplingOptions {
  double temp = 0;  // 0: greedy, ties to the lowest id
  int top_k = 0;    // <= 0: off
  double top_p = 1, min_p = 0;
  double repeat_penalty = 1;  // over prompt and answer, as in Hugging Face transformers
  uint64_t seed = 0;
};

struct ProfilePart {  // of the wall time; sync: the calling thread waited for the others
  std::string name;   // "qkv", "attention", "o", "gate_up", "select", "down", "head", "sampling", "sync", "other", ...
  double prefill_s = 0, decode_s = 0;
  uint64_t bytes = 0;  // weights, decode only
};

// Called as sets are fixed and chosen (--dump-partition). Indices ascend. Not called for the dense method.
class SelectionObserver {
 public:
  virtual ~SelectionObserver() = default;
  // expert: of a mixture of experts, the shared one last; 0 in a dense layer. A threshold is of all experts of a layer.
  virtual void on_partition(int sequence, int layer, int expert, std::span<const int32_t> retained,
                            std::span<const int32_t> candidate, std::span<const int32_t> pruned,
                            std::span<const float> scores) = 0;
  virtual void on_threshold(int sequence, int layer, const char* site, double level, float tau, uint64_t counted) = 0;
  // token: index among the sequence's decoded tokens; site: "gate_up" or "down" for rows methods (channels), any for columns.
  virtual void on_chosen(int sequence, int token, int layer, int expert, const char* site, bool columns,
                         std::span<const int32_t> chosen) = 0;
};

struct RunHooks {
  // Logits of every computed position, in order within a sequence. sequence: 0 in generate, the request's index in score.
  std::function<void(int sequence, int position, std::span<const float> logits)> on_logits{};
  SelectionObserver* observer = nullptr;
  std::function<bool()> interrupted{};                             // asked between tokens, and within a pass
  std::function<void(int64_t done, int64_t total)> on_progress{};  // tokens, during prefill and scoring
  bool profile = false;
  // At the end, what each thread did when; thread 0 is the caller, its "sync" within other parts.
  std::function<void(int thread, const char* part, double begin_s, double seconds, int pieces)> on_trace{};
};

struct GenerateOptions {
  int max_tokens = 128;
  SamplingOptions sampling{};
  std::vector<std::string> stop{};                  // text that ends the answer; not part of it
  bool ignore_eos = false;                          // end-of-generation tokens are ordinary ones
  std::function<void(std::string_view)> on_text{};  // whole characters, once no stop string can begin in them
  // For measuring long contexts: before the first decoded token the cache is filled up to so many positions by repeating
  // what the prompt left there. The answer then means nothing.
  int repeat_context = 0;
  RunHooks hooks{};
};

struct Timing {
  double prefill_s = 0, partition_s = 0, decode_s = 0;  // partition_s includes packing
  double pack_s = 0, select_s = 0;                      // shares of partition_s and decode_s
  int prefill_tokens = 0, decode_tokens = 0;            // tokens computed in each phase
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> ids;  // the answer, without the token that ended it
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string finish_reason;  // "stop", "length", "interrupted"
  Timing timing;
  ReadStats reads;
  std::string logits_hash;
  std::vector<ProfilePart> profile;
};

struct BatchAnswer {
  std::vector<int32_t> ids;
  ReadStats reads;
};

// Of several prompts answered together.
struct BatchResult {
  std::vector<BatchAnswer> answers;
  std::string finish_reason;  // "length", "interrupted": then only `ids` says how far it came
  Timing timing;              // of all: tokens of every sequence counted
  double forward_bytes = 0;   // weights read by a pass, mean: what several sequences want is read once; 0: not counted
  std::vector<ProfilePart> profile;
};

struct ScoreRequest {
  std::vector<int32_t> ids;
  int split = -1;      // the first `split` tokens are prefill, the rest decode; -1: all prefill
  int score_from = 1;  // log-probabilities (and on_logits) of earlier positions are not computed
};

struct TopToken {
  int32_t id;
  float logit;
};

struct PartitionSummary {
  int layer, expert;  // as SelectionObserver says; of experts, those that were given one
  int retained, candidate, pruned;
  std::vector<int32_t> retained_first;  // up to 10
};

struct ScoreResult {
  std::vector<double> logprobs;  // [ids]; natural logarithm; NaN where not computed, and at 0 (nothing predicts it)
  double nll_sum = 0;            // positions >= max(1, split) as asked for, from score_from on
  double nll_decode_sum = 0;     // positions > split
  int scored = 0, scored_decode = 0;
  std::vector<TopToken> top;  // 5 best of the last position
  std::vector<PartitionSummary> partition;
  std::string logits_hash;
  std::string finish_reason;  // "complete", "interrupted": then what was not computed is NaN, and missing from the sums
  ReadStats reads;
  Timing timing;
  std::vector<ProfilePart> profile;
};

// What one conversation holds beside the weights, in bytes.
struct SessionMemory {
  uint64_t kv = 0;      // keys and values of the positions in use
  uint64_t packed = 0;  // copies of the channels that decode may use
};

struct ByteShare {
  std::string part;  // "attention", "ffn", "head", "norms"
  uint64_t bytes;
};

struct ModelInfo {
  std::string path, architecture, name, file_type;
  uint64_t file_bytes = 0, parameters = 0;
  int experts = 0, experts_used = 0, expert_f = 0, shared_f = 0;  // of a mixture of experts
  int layers = 0, d = 0, f = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context_trained = 0, context = 0;
  bool tied_head = false;
  std::string rope_scaling, tokenizer_model, tokenizer_pre, chat_template;  // chat_template: its source, "" if none
  std::vector<std::pair<std::string, int>> tensor_types;                    // name, count
  std::vector<ByteShare> bytes_per_token;                                   // dense decode
  uint64_t weight_bytes = 0;                                                // resident, as laid out
  uint64_t kv_bytes_per_token = 0;
  std::string model_sha256, isa, activations_decode, activations_prefill, kv, layout, bos;
  int threads = 0;
  bool from_cache = false;  // the weights came from a cache file
  double load_s = 0;
  std::vector<std::string> warnings;                          // what a user should know, a line each
  std::vector<std::pair<std::string, std::string>> metadata;  // printable
};

// Statistics of a text for the methods that need them, made by the dense model.
struct CalibrationOptions {
  std::string source{};  // names the text; kept with the statistics
  int history = 0;       // positions of which squared activations are kept one by one (method probe)
  int allocate = 0;      // sequences on which a search shares out a block's level over its matrices (method teal)
  RunHooks hooks{};      // interrupted and on_progress
};
struct CalibrationResult {
  std::vector<uint8_t> bytes;  // what PruneSettings::calibration reads; empty if interrupted
  uint64_t sequences = 0, tokens = 0;
  double seconds = 0;
  std::string finish_reason;  // "complete", "interrupted"
};

struct ChatMessage {
  std::string role, content;
};

class Session;

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;

  const ModelInfo& info() const;
  // Between calls: another number of worker threads, at least 1. Changes no bit of any result.
  void set_threads(int threads);

  // Text. `special`: text that spells a special token becomes that token. `bos` as in the options is applied by `prompt`.
  std::vector<int32_t> encode(std::string_view text, bool special = false) const;
  std::vector<int32_t> prompt(std::string_view text, bool special = false) const;  // encode, with the BOS rule
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  std::string token_text(int32_t id) const;  // "" where the model has no tokenizer
  bool ends_generation(int32_t id) const;
  // The model's own template over the messages, ids of a prompt that ends where the assistant speaks. Contents are encoded as
  // plain text: a user cannot forge a special token. Throws if the model has no template or the template refuses.
  std::vector<int32_t> chat_prompt(std::span<const ChatMessage> messages) const;
  std::string chat_text(std::span<const ChatMessage> messages) const;

  std::unique_ptr<Session> session(const PruneSettings& prune = {});

  // What a method would read per token, planned from the shapes by the formulas of docs/pruning.md: no weight is looked at.
  struct Planned {
    double ffn_sparsity = 0, level = 0;
    double weight_bytes_per_token = 0, weights_read_share = 0, selected_share = 0;
  };
  Planned planned(const PruneSettings& prune) const;

  // Runs the sequences dense, one after another. Each is a prompt of its own.
  CalibrationResult calibrate(std::span<const std::vector<int32_t>> sequences, const CalibrationOptions& options = {});

  struct Impl;  // defined inside the library

 private:
  std::unique_ptr<Impl> impl_;
};

// One conversation: its key-value cache and pruning state. Prompts that continue what was prefilled before reuse it; answers
// are prefilled again as part of the next prompt, so that a conversation's bits do not depend on how it came about.
class Session {
 public:
  ~Session();
  const PrunePlanInfo& plan() const;
  GenerateResult generate(std::span<const int32_t> prompt, const GenerateOptions& options = {});
  SessionMemory memory() const;
  // Teacher-forced log-probabilities, up to `batch` requests in one forward; independent of this session's conversation.
  // Interrupted, it returns what there is: each result says so in finish_reason.
  std::vector<ScoreResult> score(std::span<const ScoreRequest> requests, int batch = 1, const RunHooks& hooks = {});
  // Greedy answers of exactly `tokens` tokens to several prompts, each with its own partition, one token of each per pass;
  // independent of this session's conversation. Interrupted, it returns what there is.
  BatchResult generate_batch(std::span<const std::vector<int32_t>> prompts, int tokens, const RunHooks& hooks = {});
  void reset();
  // Gives the memory of the conversation back: its cache, its packed weights. The next call allocates them anew.
  void release();

  struct Impl;  // defined inside the library
  explicit Session(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Names of the pruning methods (prune/registry.h has the details), of the instruction sets built in, and of those that run here.
std::vector<std::string> method_names();
std::vector<std::string> built_isa_names();
std::vector<std::string> available_isa_names();

struct BuildInfo {
  std::string version, commit, compiler, build_type;
};
BuildInfo build_info();

}  // namespace pop
