#include "prune/select.h"

#include <algorithm>
#include <cstring>

namespace pop {

TopK::TopK(int capacity)
    : keys_(static_cast<size_t>(capacity)),
      members_(static_cast<size_t>(capacity) + 1),
      flags_(static_cast<size_t>(capacity)) {}

// The k-th largest of keys_[0, n), 1 <= k <= n; at_least: how many keys are not below it.
uint32_t TopK::threshold(int n, int k, int& at_least) {
  bins_.fill(0);
  uint32_t bin = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t b = keys_[static_cast<size_t>(i)] >> kBinShift;
    ++bins_[b];
    bin = std::max(bin, b);
  }
  int above = 0;
  for (; above + static_cast<int>(bins_[bin]) < k; --bin) above += static_cast<int>(bins_[bin]);

  int count = 0;
  for (int i = 0; i < n; ++i) {  // without a branch: which scores lie here cannot be predicted
    members_[static_cast<size_t>(count)] = keys_[static_cast<size_t>(i)];
    count += (keys_[static_cast<size_t>(i)] >> kBinShift) == bin;
  }
  const auto not_below = [&](uint32_t key) {
    int result = 0;
    for (int i = 0; i < count; ++i) result += members_[static_cast<size_t>(i)] >= key;
    return result;
  };
  uint32_t key = bin << kBinShift;
  for (uint32_t bit = 1u << (kBinShift - 1); bit != 0; bit >>= 1) {
    if (above + not_below(key | bit) >= k) key |= bit;
  }
  at_least = above + not_below(key);
  return key;
}

const uint8_t* TopK::mark(std::span<const float> scores, int k) {
  const int n = static_cast<int>(scores.size());
  if (k == 0 || k == n) {
    std::fill_n(flags_.begin(), n, static_cast<uint8_t>(k != 0));
    return flags_.data();
  }
  for (int i = 0; i < n; ++i) keys_[static_cast<size_t>(i)] = score_key(scores[static_cast<size_t>(i)]);
  int at_least = 0;
  const uint32_t key = threshold(n, k, at_least);
  for (int i = 0; i < n; ++i) flags_[static_cast<size_t>(i)] = keys_[static_cast<size_t>(i)] >= key;
  for (int i = n - 1, surplus = at_least - k; surplus > 0; --i) {  // ties: the highest indices go
    const bool tie = keys_[static_cast<size_t>(i)] == key;
    flags_[static_cast<size_t>(i)] &= static_cast<uint8_t>(!tie);
    surplus -= tie;
  }
  return flags_.data();
}

CandidateSelector::CandidateSelector(const PartitionSizes& sizes)
    : sizes_(sizes),
      reachable_(static_cast<size_t>(sizes.retained) + static_cast<size_t>(sizes.candidate)),
      candidate_(static_cast<size_t>(sizes.candidate)),
      place_(candidate_.size()),
      keep_(reachable_.size()),
      chosen_(reachable_.size() + 1) {}

void CandidateSelector::assign(const Partition& partition) {
  std::copy(partition.candidate.begin(), partition.candidate.end(), candidate_.begin());
  std::merge(partition.retained.begin(), partition.retained.end(), candidate_.begin(), candidate_.end(),
             reachable_.begin());
  size_t c = 0;
  for (size_t i = 0; i < reachable_.size(); ++i) {
    const bool is_candidate = c < candidate_.size() && candidate_[c] == reachable_[i];
    if (is_candidate) place_[c++] = static_cast<int32_t>(i);
    keep_[i] = !is_candidate;
  }
}

IndexList CandidateSelector::choose(std::span<const float> scores, TopK& top) {
  if (to_choose() == sizes_.candidate) return reachable();
  if (to_choose() == 0) {
    for (const int32_t place : place_) keep_[static_cast<size_t>(place)] = 0;
  } else {
    const uint8_t* best = top.mark(scores.first(candidate_.size()), to_choose());
    for (size_t c = 0; c < place_.size(); ++c) keep_[static_cast<size_t>(place_[c])] = best[c];
  }
  size_t count = 0;
  for (size_t i = 0; i < reachable_.size(); ++i) {
    chosen_[count] = reachable_[i];
    count += keep_[i];
  }
  return {chosen_.data(), static_cast<int>(count)};
}

int select_best(std::span<const float> scores, int k, TopK& top, int32_t* out) {
  const uint8_t* best = top.mark(scores, k);
  int count = 0;
  for (int i = 0; i < static_cast<int>(scores.size()); ++i) {
    out[count] = i;
    count += best[i];
  }
  return count;
}

}  // namespace pop
