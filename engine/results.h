// What the engine answers; a part of pop.h, which is the header to include.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pop {

struct PrunePlanInfo {  // what the settings came to
  std::string method, ratio_of, metric, decode_metric, norm, prefill, plus_rule, few_tokens;
  std::string repaired;               // tyr: model, bf16
  int min_tokens = 0;                 // 0 and few_tokens "": there are no experts, or it does not apply
  int refresh = 0, refresh_last = 0;  // decoded tokens; 0: never
  std::string calibration;            // the text that it rests on; "": none
  double ratio = 0, ffn_sparsity = 0, gamma = 0, level = 0;  // level (pop+): share skipped on the prompt's own scores
  // Weight bytes of a decoded token by the formulas of the methods (docs/pruning.md), head included: all weights, the
  // method's, and the method's if its candidates cost nothing.
  double dense_bytes = 0, planned_bytes = 0, planned_bytes_without_candidates = 0;
};

// What a decoded token did with the FFNs of one kind: "dense" (of layers without experts), "routed", "shared".
struct FfnReads {
  std::string kind;
  double per_token = 0;  // how many a token goes through, all layers together
  double weight_bytes_per_token = 0;
  double left_out = 0;  // share of their weights; a candidate that was not chosen is left out
};

// What was left out, as a share of what ratio_of says: the weights of all blocks (experts that no token went through count
// like those met), of the blocks that a token goes through, of the model.
struct RealisedRatio {
  double blocks = 0, active = 0, total = 0;
};

// Weights read by decode, counted from the index lists handed to the kernels, in 64-byte lines; means over decoded tokens.
struct ReadStats {
  uint64_t tokens = 0;
  double weight_bytes_per_token = 0;
  double weights_read_share = 0;        // of the dense model's bytes, head included
  double block_weights_read_share = 0;  // blocks only
  double selected_share = 0;            // block weights used, by element
  RealisedRatio realised{};
  std::vector<FfnReads> ffns{};  // the kinds that the model has
  uint64_t selections = 0;       // choices made from a list, all layers and sites; 0 for dense
};

struct ProfilePart {  // of the wall time; sync: the calling thread waited for the others
  std::string name;   // "qkv", "attention", "o", "gate_up", "select", "down", "head", "sampling", "sync", "other", ...
  double prefill_s = 0, decode_s = 0;
  uint64_t bytes = 0;  // weights, decode only
};

struct Timing {
  double prefill_s = 0, partition_s = 0, decode_s = 0;  // partition_s includes packing
  double pack_s = 0, select_s = 0;                      // shares of partition_s and decode_s
  double refresh_s = 0;                                 // share of decode_s
  int refreshed_tokens = 0;                             // read again; not counted in reads, which are decode's
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

struct FfnInfo {  // of one kind, as FfnReads names them
  std::string kind;
  int count = 0, per_token = 0, f = 0;  // in all layers; those that a token goes through; their width
  uint64_t weights = 0;
  uint64_t weight_bytes = 0, weight_bytes_per_token = 0;  // as laid out; dense
};

struct ModelInfo {
  std::string path, architecture, name, file_type, load_as;  // load_as: "" or the type asked for
  uint64_t file_bytes = 0, parameters = 0;
  int experts = 0, experts_used = 0, expert_f = 0, shared_f = 0;  // of a mixture of experts
  int layers = 0, d = 0, f = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context_trained = 0, context = 0;
  bool tied_head = false;
  std::string rope_scaling, tokenizer_model, tokenizer_pre, chat_template;  // chat_template: its source, "" if none
  std::vector<std::pair<std::string, int>> tensor_types;                    // name, count
  std::vector<ByteShare> bytes_per_token;                                   // dense decode
  std::vector<FfnInfo> ffns;                                                // the kinds that there are
  uint64_t weight_bytes = 0;                                                // resident, as laid out
  uint64_t kv_bytes_per_token = 0;
  std::string model_sha256, isa, activations_decode, activations_prefill, kv, layout, bos;
  int threads = 0;
  bool from_cache = false;  // the weights came from a cache file
  double load_s = 0;
  std::vector<std::string> warnings;                          // what a user should know, a line each
  std::vector<std::pair<std::string, std::string>> metadata;  // printable
};

struct CalibrationResult {
  std::vector<uint8_t> bytes;  // what PruneSettings::calibration reads; empty if interrupted
  uint64_t sequences = 0, tokens = 0;
  double seconds = 0;
  std::string finish_reason;  // "complete", "interrupted"
  // Of a repair: its search in words, the tokens it ran, what each generation came to (KL in nats per token on the texts of its
  // last stage), channels that each layer lost.
  std::string search{};
  uint64_t searched_tokens = 0;
  std::vector<double> generations{};
  std::vector<int> removed{};
};

struct BuildInfo {
  std::string version, commit, compiler, build_type;
};
}  // namespace pop
