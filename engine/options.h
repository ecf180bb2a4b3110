// What the engine is asked for; a part of pop.h, which is the header to include.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pop {

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
  std::string load_as{};               // type of the weights in memory (weight_type_names); "": as the file has them
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
  std::string repaired{};                 // tyr: model | bf16, the type of the repaired weights
  std::string calibration{};              // file of Engine::calibrate, for methods that need one
  std::string partition{};                // sequence | shared: one for all texts of a batch, from all of them
  // After every `refresh` decoded tokens the last `refresh_last` of them are read again as prompt is, by all weights: what they
  // left in the cache is replaced, and what the prompt decided is decided anew, from prompt and them. Not given: never; all.
  std::optional<int> refresh{}, refresh_last{};
  std::string random_every{};      // random: sequence | token
  std::optional<uint64_t> seed{};  // random
  bool pack = true;                // copy reachable channels together after the prefill where it pays
};

struct SamplingOptions {
  double temp = 0;  // 0: greedy, ties to the lowest id
  int top_k = 0;    // <= 0: off
  double top_p = 1, min_p = 0;
  double repeat_penalty = 1;  // over prompt and answer, as in Hugging Face transformers
  uint64_t seed = 0;
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

struct ScoreRequest {
  std::vector<int32_t> ids;
  int split = -1;      // the first `split` tokens are prefill, the rest decode; -1: all prefill
  int score_from = 1;  // log-probabilities (and on_logits) of earlier positions are not computed
};

// Of a model without some of its channels and W_down repaired (method tyr): for which ratio, and how long is searched for how
// many channels each layer loses. Týr's own search: 4 iterations of 50 generations of 128 children, judged on 2,048, 16,384 (best
// 16) and 131,072 tokens (best 4); 236 million tokens in all.
struct RepairOptions {
  double ratio = 0.2;  // of the blocks' weights
  int iterations = 2, generations = 8, offspring = 16;
  std::vector<int> tokens = {256, 512, 2048};  // of the texts of each stage
  std::vector<int> survivors = {4, 2, 1};      // of each stage, the parent among the last
  uint64_t seed = 1;
};

// Statistics of a text for the methods that need them, made by the dense model.
struct CalibrationOptions {
  std::string source{};  // names the text; kept with the statistics
  int history = 0;       // positions of which squared activations are kept one by one (method probe)
  int allocate = 0;      // sequences on which a search shares out a block's level over its matrices (method teal)
  std::optional<RepairOptions> repair{};  // method tyr; the sequences are its texts
  RunHooks hooks{};                       // interrupted and on_progress
};
struct ChatMessage {
  std::string role, content;
};

}  // namespace pop
