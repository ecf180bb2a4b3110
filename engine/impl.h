// What Engine and Session are made of; private to engine/.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/pop.h"
#include "engine/text_model.h"
#include "kernels/select.h"
#include "model/activations.h"
#include "model/forward.h"
#include "prune/budget.h"
#include "prune/calibration.h"
#include "prune/registry.h"

namespace pop {

struct Engine::Impl {
  explicit Impl(const EngineOptions& options);

  EngineOptions options;
  const KernelTable& kernels;
  std::optional<ActType> activations;
  KvType kv;
  std::optional<ThreadPool> pool;  // always there; anew, in the same place, when the number of threads changes
  std::unique_ptr<Model> model;
  std::unique_ptr<TextModel> text;
  ModelInfo info;
  std::unique_ptr<Activations> scratch_memory;
  std::string model_id;  // sha256 of the first MiB and size of every file, whatever EngineOptions::full_hash says
  uint64_t dense_block_bytes = 0, dense_head_bytes = 0, block_elements = 0;
  BlockWeights block_weights;

  // Scratch for passes of up to `rows` rows; grown when a larger pass comes.
  Activations& scratch(int rows);
  RunContext run_context(const std::function<bool()>* interrupted = nullptr) {
    return {.kernels = &kernels, .pool = &*pool, .activations = activations, .interrupted = interrupted};
  }
  PolicyContext policy_context();
  CalibrationModel calibration_model() const;
  // Searches how far each site of a block may go, on these sequences (method teal), into calibration.layers[].allocation. Throws
  // PassInterrupted.
  void allocate(std::span<const std::vector<int32_t>> sequences, const RunHooks& hooks, Calibration& calibration);
  // Searches for a model without channels, W_down repaired (method tyr), into calibration.repaired. Throws PassInterrupted.
  void repair(std::span<const std::vector<int32_t>> sequences, const RepairOptions& options, const RunHooks& hooks,
              Calibration& calibration, CalibrationResult& result);
  PruneOptions prune_options(const PruneSettings& settings) const;  // with the calibration file read
  ReadStats read_stats(const Sequence& sequence) const;
  RealisedRatio realised(const LeftOut& left_out) const;
  void expect_weights() const;  // throws Error if the engine was opened for its text side only

 private:
  void fill_info();
  void fill_tensor_types();
  void fill_arithmetic();
  void fill_ffns();
};

// Tells an observer of a sequence's choices, and of what its partition came to.
class Observation : public SelectionListener {
 public:
  Observation(SelectionObserver* observer, const Model& model) : observer_(observer), model_(model) {}
  void chosen(const Sequence& sequence, int position, int place, Site site, const Selection& selection) override;
  void partitioned(const Sequence& sequence) const;

 private:
  SelectionObserver* observer_;
  const Model& model_;
};

struct ScoreJob;  // score.cpp
class ScoreRun;

struct Session::Impl {
  Impl(Engine::Impl& engine, const PruneSettings& settings);

  Engine::Impl& engine;
  bool pack, shared_partition;
  std::unique_ptr<Policy> policy;
  PrunePlanInfo plan;
  Sequence sequence;               // of the conversation; its cache is made at the first use
  std::vector<int32_t> prefilled;  // what stands in the cache from prefills, hence may be continued
  uint64_t turn = 0;  // counts what used the conversation: a generation knows by it whether it is still its own

  void reset();
  void release();
  SessionMemory memory() const;
  std::vector<ScoreResult> score(std::span<const ScoreRequest> requests, int batch, const RunHooks& hooks);

  BatchResult generate_batch(std::span<const std::vector<int32_t>> prompts, int tokens, const RunHooks& hooks);
  bool prefill_alone(Sequence& s, std::span<const int32_t> prompt, RunContext& run, const RunHooks& hooks,
                     const LogitsSink& sink);

  bool score_group(ScoreRun& scorer, Stopwatch& watch, std::span<ScoreJob> jobs, const Observation* observation,
                   Timing& timing);
  bool prefill_is_pruned() const { return plan.prefill == "pruned"; }
  // Rows of one sequence that may go through decode together when they are known beforehand.
  int rows_together() const { return policy->one_token_at_a_time() || shared_partition ? 1 : kDecodeRows; }
  static constexpr int kDecodeRows = 32;
  void begin_sequence(Sequence& s, int id, int capacity) const;
  void plan_bytes(const PrunePlan& p);
  // --partition shared: one pruning state for all of them, the first one's. After begin_sequence, before any prefill.
  void share_partition(std::span<Sequence> sequences) const;
  void end_prefill(Sequence& s, int tokens_to_come, const Observation* observation, Timing& timing);
  // What is left out from here on, from all that the policy has seen; packed if it holds for long enough. Returns seconds of packing.
  double decide(Sequence& s, int tokens_to_come, const Observation* observation);
  // --refresh: is it time, after so many tokens decoded since the prompt? Never at ratio 0, which stays dense in every bit: what
  // is read again has the arithmetic of prefill.
  bool refresh_due(int decoded) const {
    return plan.refresh > 0 && plan.ratio > 0 && decoded > 0 && decoded % plan.refresh == 0;
  }
  // Reads the last `refresh_last` of `ids`, which end with the last token in the cache, again. Throws PassInterrupted; then the
  // sequence is of no more use.
  void refresh(Sequence& s, std::span<const int32_t> ids, int tokens_to_come, RunContext& run, Timing& timing);
  void take_refresh(const PruneSettings& settings);
};

PruneOptions prune_options(const PruneSettings& settings, uint64_t total_weights);

// --profile and --trace: what the hooks ask for, from here on; and at the end.
void start_watch(const RunHooks& hooks, ThreadPool& pool, Stopwatch& watch);
std::vector<ProfilePart> end_watch(const RunHooks& hooks, Stopwatch& watch);

// A token id from outside. Throws Error naming the range.
void check_ids(std::span<const int32_t> ids, int vocab);

}  // namespace pop
