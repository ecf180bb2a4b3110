// The merging of byte-pair encoding over token ids.
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace pop {

// Memory that merge() needs, kept by the caller between pieces.
struct BpeScratch {
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    uint32_t previous, next;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol
};

class BpeMerges {
 public:
  // Adds the merge with the next rank (0, 1, ...). False, and nothing is added, if the pair has one already.
  bool add(int32_t left, int32_t right, int32_t result);
  size_t size() const { return merges_.size(); }

  // Merges the symbols of one piece (in scratch.symbols[i].id; the links are set here): the pair of the lowest rank
  // first, of equal ones the leftmost, until none is left. Appends the ids to `out`. n symbols cost n log n, whatever
  // they are: each merge makes at most two new candidates, and a candidate whose symbols have changed is dropped when
  // its turn comes.
  void merge(BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    int32_t left, right, result;
  };
  struct KeyHash {
    size_t operator()(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20); }
  };
  // Rank of the pair that begins at symbol `at`, as a heap entry in `entry`; false if there is none.
  bool candidate(const std::vector<BpeScratch::Symbol>& symbols, uint32_t at, uint64_t& entry) const;

  std::vector<Merge> merges_;                              // by rank
  std::unordered_map<uint64_t, uint32_t, KeyHash> ranks_;  // left << 32 | right
};

}  // namespace pop
