#include "text/charsmap.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "text/utf8.h"

namespace pop {

Charsmap::Charsmap(std::string_view blob, const std::vector<std::string>& kept) {
  uint32_t bytes = 0;
  if (blob.size() < 4) fail("precompiled_charsmap: expected at least 4 bytes, found {}", blob.size());
  std::memcpy(&bytes, blob.data(), 4);
  if (bytes == 0 || bytes % 4 != 0 || bytes > blob.size() - 4)
    fail("precompiled_charsmap: expected a table within {} bytes, found one of {}", blob.size() - 4, bytes);
  units_.resize(bytes / 4);
  std::memcpy(units_.data(), blob.data() + 4, bytes);
  texts_ = blob.substr(4 + bytes);
  if (texts_.empty() || texts_.back() != '\0') fail("precompiled_charsmap: expected a NUL at its end, found none");
  for (const std::string& text : kept) kept_.add(text, 0);
}

uint32_t Charsmap::unit(size_t at) const {
  if (at >= units_.size()) fail("precompiled_charsmap: expected a place below {}, found {}", units_.size(), at);
  return units_[at];
}

size_t Charsmap::longest(std::string_view text, std::string_view& replacement) const {
  // How a unit of darts-clone is read: offset to the children, label of the node itself, whether a value hangs on it.
  const auto offset = [](uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); };
  const auto label = [](uint32_t unit) { return unit & ((1u << 31) | 0xFF); };
  size_t best = 0, node = offset(unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((node ^ byte) >= units_.size()) break;
    const uint32_t here = units_[node ^ byte];
    if (label(here) != byte) break;
    node = node ^ byte ^ offset(here);
    if ((here >> 8 & 1) == 0) continue;
    const uint32_t place = unit(node) & 0x7FFFFFFF;
    if (place >= texts_.size()) fail("precompiled_charsmap: expected a text below {}, found {}", texts_.size(), place);
    replacement = texts_.c_str() + place;
    best = i + 1;
  }
  return best;
}

std::string Charsmap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t length = kept_.match(text).second;
    std::string_view piece = text.substr(0, length);
    if (length == 0 && utf8_char_length(text) > 0) length = longest(text, piece);
    if (length == 0) {
      length = std::max<size_t>(1, utf8_char_length(text));
      piece = text.substr(0, length);
    }
    out += piece;
    if (out.size() > INT32_MAX) fail("text: expected at most {} bytes once it is normalized, found more", INT32_MAX);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace pop
