// What methods have in common that keep one list of channels per FFN: the same for every sequence and token
// (StaticMask), or one that each prompt decides and that stays for the answer (PromptMaskState).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "prune/partition.h"
#include "prune/policy.h"

namespace pop {

// The plan of such a method: p from --ratio, --ffn-sparsity or --match. Throws Error as ffn_sparsity() and
// matched_sparsity() do.
PrunePlan mask_plan(const PruneOptions& options, const PolicyContext& context);

// Retained channels as a choice: Rows at GateUp, the same channels at Down, everything at the other sites.
Selection mask_selection(Site site, const Partition& mask);

// Scores to masks, FFNs on all threads. masks: made by make_partition(sizes[ffn]) without candidates, scores filled.
void fill_masks(std::span<const PartitionSizes> sizes, ThreadPool& pool, std::vector<Partition>& masks);

struct StaticMask {
  PrunePlan plan;
  std::vector<Partition> masks;            // [FFNs], no candidates
  std::vector<std::vector<float>> bias;    // [FFNs][d] added to its output; empty, or of an FFN empty: nothing is
  std::vector<Matrix> down = {};           // [FFNs] in place of W_down; empty, or of an FFN without data: nothing is
  std::vector<AlignedBuffer> memory = {};  // of `down`
};
std::unique_ptr<Policy> static_mask(StaticMask mask);

// One score per channel, the best are kept: scores : [FFNs][f]. K by the plan's FFN sparsity in every FFN.
std::unique_ptr<Policy> best_channels(PrunePlan plan, const PolicyContext& context,
                                      std::vector<std::vector<float>> scores);

// A mask from the prompt. A method observes, counts the tokens of a layer in tokens_, and scores.
class PromptMaskState : public PolicyState {
 public:
  PromptMaskState(const PolicyContext& context, std::vector<PartitionSizes> sizes);
  void partition() final;
  Selection select(Site site, int layer, std::span<const float> x, int position) final;
  Selection reachable(Site site, int layer) const final;
  const Partition* ffn_partition(int layer) const final;

 protected:
  // scores : [f], from everything observed. Layers are scored at the same time by different threads.
  virtual void score(int layer, std::span<float> scores) const = 0;

  PolicyContext context_;
  std::vector<uint64_t> tokens_;  // [layers]

 private:
  std::vector<PartitionSizes> sizes_;  // [layers]
  std::vector<Partition> masks_;
  bool partitioned_ = false;
};

}  // namespace pop
