// Finds tokens that stand in text as they are (control and user-defined ones) before any other cutting.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace pop {

class AddedTokens {
 public:
  // `text` is not empty and was not added before.
  void add(std::string_view text, int32_t id);

  // The id and length of the longest added token that `text` begins with; {-1, 0} if there is none.
  std::pair<int32_t, size_t> match(std::string_view text) const;

  // Calls found(id, length) for every added token that `text` begins with, the shortest first.
  template <class Found>
  void each_match(std::string_view text, Found found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t* next = child(node, text[i]);
      if (!next) return;
      node = *next;
      if (nodes_[node].id >= 0) found(nodes_[node].id, i + 1);
    }
  }

 private:
  struct Node {
    int32_t id = -1;                                  // of the token that ends here
    std::vector<std::pair<char, uint32_t>> children;  // byte, node
  };
  const uint32_t* child(uint32_t node, char byte) const;

  std::vector<Node> nodes_{1};  // a trie; [0] is the root
};

}  // namespace pop
