// Look-up of things with a name in the order of a file.
#pragma once
#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pop {

// The order of items by name, for look-up. Throws Error if a name occurs twice.
template <class Named>
std::vector<size_t> name_order(const std::vector<Named>& items, std::string_view what, const std::string& file) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a].name < items[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string& name = items[order[i]].name;
    if (items[order[i - 1]].name == name) fail("{}: {} '{}' occurs twice", file, what, printable(name));
  }
  return order;
}

template <class Named>
const Named* find_named(const std::vector<Named>& items, const std::vector<size_t>& order, std::string_view name) {
  const auto it = std::lower_bound(order.begin(), order.end(), name,
                                   [&](size_t i, std::string_view wanted) { return items[i].name < wanted; });
  return it != order.end() && items[*it].name == name ? &items[*it] : nullptr;
}

}  // namespace pop
