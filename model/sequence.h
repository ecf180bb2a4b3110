// What belongs to one sequence: keys and values, pruning state, packed weights, and what its decoded tokens read.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "prune/policy.h"
#include "tensor/layout.h"

namespace pop {

// Of the FFNs of one kind.
struct FfnCounts {
  uint64_t uses = 0;  // times that a token went through one
  uint64_t bytes = 0;
  uint64_t elements = 0, left_out = 0;  // weights of those it went through; of them, what the choice left out
};

// Sums over the decoded tokens of a sequence. Bytes are those a lone decode reads: counted from the lists and the layout.
struct ReadCounts {
  uint64_t tokens = 0;
  uint64_t block_bytes = 0, head_bytes = 0;
  uint64_t elements_used = 0;  // of the blocks' matrices, candidates' gate and up rows counted
  uint64_t attention_left_out = 0;
  FfnCounts ffns[kFfnKinds];  // by FfnKind
  FfnCounts& of(const Model& model, int ffn) {
    const FfnWeights& w = *model.ffns[size_t(ffn)];
    return ffns[size_t(kind_of(model.layers[size_t(w.layer)], w))];
  }
  // What a token's selection at a site leaves out: its columns, or at Down, whole channels (a candidate that was not chosen
  // among them). place: the layer, at GateUp and Down the FFN.
  void count_choice(const Model& model, Site site, int place, const Selection& selection);
};

// The reachable units of one FFN, copied together in ascending order so that decode streams.
struct PackedFfn {
  Matrix gate_up, down;
  PackedTables gate_up_tables, down_tables;
};

struct Sequence {
  int id = 0;
  int length = 0;     // positions in the cache
  int prefilled = 0;  // of them, from the last prefill on: decode began here
  KvCache kv;
  std::shared_ptr<PolicyState> policy;  // null: dense, nothing is asked
  bool shares_policy = false;           // --partition shared: one state for all sequences of a batch
  std::vector<PackedFfn> packed;        // [FFNs] or empty
  AlignedBuffer packed_memory;          // of all of them, so that it comes in huge pages; stays for the next partition
  bool use_packed = false;              // from pack_ffn() until the next prefill
  ReadCounts reads;

  // bytes_read(w, list), remembered if the list is lasting (R and C of a partition are).
  // place: the layer, at GateUp and Down the FFN.
  uint64_t cached_bytes(Site site, int place, int matrix, const Matrix& w, IndexList list, bool lasting);
  void forget_bytes() { counted_.clear(); }

  const Matrix& gate_up(const Model& model, int ffn) const {
    return !use_packed ? model.ffns[size_t(ffn)]->gate_up : packed[size_t(ffn)].gate_up;
  }
  // prunes: the method leaves channels out of this pass.
  const Matrix& down(const Model& model, int ffn, bool prunes) const {
    if (use_packed) return packed[size_t(ffn)].down;
    const Matrix* const repaired = prunes && policy ? policy->repaired_down(ffn) : nullptr;
    return repaired != nullptr ? *repaired : model.ffns[size_t(ffn)]->down;
  }

 private:
  struct Counted {
    const Matrix* w = nullptr;
    const int32_t* index = nullptr;
    int count = -1;
    uint64_t bytes = 0;
  };
  std::vector<Counted> counted_;  // [places][sites][3]
};

// Copies the reachable FFN channels of every layer into the sequence (prune/policy.h, reachable()). Changes no bit of any
// result. Does nothing where everything is reachable, nor in a mixture of experts: that would copy most of the model for each
// text.
void pack_ffn(const Model& model, Sequence& sequence, ThreadPool& pool);

}  // namespace pop
