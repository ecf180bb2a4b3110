#include "text/added_tokens.h"

#include <algorithm>

namespace pop {

const uint32_t* AddedTokens::child(uint32_t node, char byte) const {
  const auto& children = nodes_[node].children;
  const auto found = std::find_if(children.begin(), children.end(), [byte](const auto& c) { return c.first == byte; });
  return found == children.end() ? nullptr : &found->second;
}

void AddedTokens::add(std::string_view text, int32_t id) {
  uint32_t node = 0;
  for (const char byte : text) {
    const uint32_t* known = child(node, byte);
    const auto next = known ? *known : static_cast<uint32_t>(nodes_.size());
    if (!known) {
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[node].id = id;
}

std::pair<int32_t, size_t> AddedTokens::match(std::string_view text) const {
  std::pair<int32_t, size_t> best{-1, 0};
  each_match(text, [&](int32_t id, size_t length) { best = {id, length}; });
  return best;
}

}  // namespace pop
