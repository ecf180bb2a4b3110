#include "text/bpe.h"

#include <algorithm>
#include <functional>

namespace pop {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

bool BpeMerges::add(int32_t left, int32_t right, int32_t result) {
  if (!ranks_.emplace(pair_key(left, right), static_cast<uint32_t>(merges_.size())).second) return false;
  merges_.push_back({left, right, result});
  return true;
}

bool BpeMerges::candidate(const std::vector<BpeScratch::Symbol>& symbols, uint32_t at, uint64_t& entry) const {
  const uint32_t next = symbols[at].next;
  if (next == kNone) return false;
  const auto found = ranks_.find(pair_key(symbols[at].id, symbols[next].id));
  if (found == ranks_.end()) return false;
  entry = static_cast<uint64_t>(found->second) << 32 | at;
  return true;
}

void BpeMerges::merge(BpeScratch& scratch, std::vector<int32_t>& out) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<uint32_t>(symbols.size());
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i].previous = i == 0 ? kNone : i - 1;
    symbols[i].next = i + 1 == count ? kNone : i + 1;
  }
  heap.clear();
  uint64_t entry = 0;
  for (uint32_t i = 0; i < count; ++i)
    if (candidate(symbols, i, entry)) heap.push_back(entry);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto offer = [&](uint32_t at) {
    if (!candidate(symbols, at, entry)) return;
    heap.push_back(entry);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t best = heap.back();
    heap.pop_back();
    const Merge& merge = merges_[best >> 32];
    const auto at = static_cast<uint32_t>(best);
    BpeScratch::Symbol& left = symbols[at];
    if (left.id != merge.left || left.next == kNone || symbols[left.next].id != merge.right) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    left.id = merge.result;
    left.next = right.next;
    right.id = -1;
    if (left.next != kNone) symbols[left.next].previous = at;
    if (left.previous != kNone) offer(left.previous);
    offer(at);
  }
  // The first symbol is never the right half of a merge, so the list always begins with it.
  for (uint32_t i = count == 0 ? kNone : 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace pop
