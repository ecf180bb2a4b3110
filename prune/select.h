// The fine part of the method, once per decoded token and layer: this token's scores -> an ascending list. Pure;
// nothing is allocated after construction. Scores are compared by score_key (partition.h); of equal scores the lower
// index is kept.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "prune/partition.h"

namespace pop {

// The exact k largest of n scores in linear time: the threshold's upper bits by a histogram over the float bits, its
// lower bits by bisection among the few scores that share the upper ones. (std::nth_element on pairs took ten times as
// long; its branches miss on fresh data.)
class TopK {
 public:
  explicit TopK(int capacity);

  // Flags per score, 1 for the k largest: valid until the next call. 0 <= k <= scores.size() <= capacity.
  const uint8_t* mark(std::span<const float> scores, int k);

 private:
  static constexpr int kBinShift = 20;  // 8 bins per power of two
  uint32_t threshold(int n, int k, int& at_least);

  std::vector<uint32_t> keys_, members_;
  std::vector<uint8_t> flags_;
  std::array<uint32_t, (0x7fffffffu >> kBinShift) + 1> bins_;
};

// What one token uses of a partition: R and the best of C.
class CandidateSelector {
 public:
  explicit CandidateSelector(const PartitionSizes& sizes);
  void assign(const Partition& partition);  // of the sizes given

  // A copy's lists point into the copy.
  IndexList reachable() const { return {reachable_.data(), sizes_.retained + sizes_.candidate}; }  // R and C
  IndexList candidates() const { return {candidate_.data(), sizes_.candidate}; }
  int to_choose() const { return sizes_.kept - sizes_.retained; }

  // scores: one per candidate, in the order of candidates(); not looked at if to_choose() is 0 or all. K channels,
  // valid until the next call.
  IndexList choose(std::span<const float> scores, TopK& top);

 private:
  PartitionSizes sizes_;
  std::vector<int32_t> reachable_, candidate_;
  std::vector<int32_t> place_;   // [C] where candidate c stands in reachable_
  std::vector<uint8_t> keep_;    // [R + C] along reachable_: 1 for R, this token's choice for C
  std::vector<int32_t> chosen_;  // [R + C + 1]: the compaction writes one past its end
};

// The k best, ascending. out: [scores.size() + 1]; returns k.
int select_best(std::span<const float> scores, int k, TopK& top, int32_t* out);

}  // namespace pop
