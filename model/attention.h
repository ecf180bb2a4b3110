// Attention of a pass: who computes which part of it. The arithmetic is the kernels' (AttentionArgs).
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "model/spec.h"

namespace pop {

struct Pass;

// Some consecutive tokens of one sequence. In decode the positions are cut into ranges whose borders are the same for every
// token, and a token's answer is merged from its ranges in order: so the ranges may be computed by different threads, or one
// after another, or for several tokens at once, with the same bits. In prefill there is work enough without.
struct AttentionBlock {
  int row = 0, tokens = 0;  // in the pass
  int position = 0;         // of the first token
  int ranges = 0;           // of the last token
  int first_piece = 0;      // where ranges are pieces of their own
};

// How the attention of a pass is cut, the same in every layer, and the memory for its parts; made once for a largest pass.
class AttentionPlan {
 public:
  AttentionPlan() = default;
  AttentionPlan(const ModelSpec& spec, int max_rows, int context, int threads);

  // Cuts a pass whose positions are known.
  void cut(const Pass& pass);
  // attended : [rows, q_dim] from qkv : [rows, q_dim + 2 kv_dim], whose keys and values are in the caches.
  void run(const Pass& pass, int layer);

 private:
  // Parts of one block and key-value head: out [ranges, tokens * group, head_dim], tops and totals [ranges, tokens * group].
  struct Parts {
    float *out, *tops, *totals;
  };
  Parts parts_at(float* memory, const AttentionBlock& block) const;
  void compute(const Pass& pass, int layer, const AttentionBlock& block, int head, int range, const Parts& parts,
               float* scratch) const;
  void merge(const Pass& pass, int layer, const AttentionBlock& block, int head, const Parts& parts) const;
  void run_ranges(const Pass& pass, int layer);

  int group_ = 1, head_dim_ = 0, kv_heads_ = 1;
  size_t scratch_floats_ = 0, part_floats_ = 0;  // of a thread; of one block and head
  int shared_ = 0;                               // blocks times heads whose ranges may be pieces of their own
  bool by_range_ = false;
  int pieces_ = 0;
  std::vector<AttentionBlock> blocks_;
  AlignedBuffer memory_;                         // [threads][scratch, parts], then [shared_][parts]
  std::unique_ptr<std::atomic<int>[]> missing_;  // [shared_] ranges not yet computed
};

// Rotates queries and keys, appends keys and values to the caches, and lets every token look at its past.
void attend(const Pass& pass, int layer);

}  // namespace pop
