#include "base/error.h"

#include <cstdint>

#ifdef __FAST_MATH__
#error "-ffast-math and -Ofast let the compiler drop the checks for NaN and change sums: build without them"
#endif

namespace pop {

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  size_t i = 0;
  while (i < text.size() && i < limit) {
    const auto c = static_cast<unsigned char>(text[i]);
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (i + n > text.size()) n = 0;
    for (size_t k = 1; k < n; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) n = 0;
    if (n == 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
      i += 1;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  if (i < text.size()) out += "...";
  return out;
}

}  // namespace pop
