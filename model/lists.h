// Lists of units or columns: all of them, those of several rows together, those of a range.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/matrix.h"

namespace pop {

inline IndexList everything(int count) { return {nullptr, count}; }

// What any of some lists holds; keeps its memory from one use to the next.
class Union {
 public:
  void begin(int all) {
    marks_.assign(size_t(all), 0);
    whole_ = false;
  }
  void add(IndexList list) {
    whole_ = whole_ || (list.index == nullptr && list.count > 0);
    for (int i = 0; !whole_ && i < list.count; ++i) marks_[size_t(list.index[i])] = 1;
  }
  IndexList list() {
    if (whole_) return everything(int(marks_.size()));
    members_.clear();
    for (size_t i = 0; i < marks_.size(); ++i)
      if (marks_[i] != 0) members_.push_back(int32_t(i));
    return {members_.data(), int(members_.size())};
  }

 private:
  std::vector<uint8_t> marks_;
  std::vector<int32_t> members_;
  bool whole_ = false;
};

// The members of a list in [first, last), as places in it.
inline std::pair<int, int> between(IndexList list, int first, int last) {
  if (list.index == nullptr) return {std::min(list.count, first), std::min(list.count, last)};
  const int32_t* const end = list.index + list.count;
  const int32_t* const from = std::lower_bound(list.index, end, first);
  return {int(from - list.index), int(std::lower_bound(from, end, last) - list.index)};
}

}  // namespace pop
