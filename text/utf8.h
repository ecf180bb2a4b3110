// UTF-8 seen byte by byte: how long the character at a place is, and whether a cut one may still be completed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pop {

// Bytes (1-4) of the well-formed character at the start of `text`; 0 if there is none: a stray or missing continuation
// byte, an overlong form, a surrogate, above U+10FFFF (Unicode 15, table 3-7), or an empty text.
size_t utf8_char_length(std::string_view text);

// True if `text` (1-3 bytes) is the beginning of some well-formed character and more bytes are needed.
bool utf8_is_cut_char(std::string_view text);

// Bytes of the longest well-formed beginning of `text`.
size_t utf8_valid_prefix(std::string_view text);

// Appends the UTF-8 form of a code point (<= U+10FFFF, not a surrogate).
void utf8_append(std::string& out, uint32_t code);

// The code point of the well-formed character text[0, length).
uint32_t utf8_decode(std::string_view text, size_t length);

// Calls valid(run) for each run of well-formed UTF-8 and invalid(byte) for each byte between them.
template <class Valid, class Invalid>
void each_run(std::string_view text, Valid valid, Invalid invalid) {
  while (!text.empty()) {
    const size_t length = utf8_valid_prefix(text);
    if (length > 0) valid(text.substr(0, length));
    text.remove_prefix(length);
    if (text.empty()) break;
    invalid(text.substr(0, 1));
    text.remove_prefix(1);
  }
}

}  // namespace pop
