// SentencePiece's precompiled_charsmap: which characters are written as which others before a text is cut.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"

namespace pop {

// A double-array trie (Yata's darts-clone) from the characters to places in a list of texts, each ended by NUL.
class Charsmap {
 public:
  // `kept`: texts that stay as they are (user-defined tokens). Throws Error if sizes do not fit; places outside of the
  // lists that only a lookup meets are errors there.
  Charsmap(std::string_view blob, const std::vector<std::string>& kept);

  // Each longest known beginning is replaced, other characters stay; bytes that are not UTF-8 stay.
  std::string apply(std::string_view text) const;

 private:
  // Bytes of `text` that the longest entry covers, and its replacement; 0 if there is none.
  size_t longest(std::string_view text, std::string_view& replacement) const;
  uint32_t unit(size_t at) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  AddedTokens kept_;
};

}  // namespace pop
