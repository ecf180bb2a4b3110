#include "text/utf8.h"

namespace pop {
namespace {

struct Lead {
  size_t length;      // of the whole character; 0: not a lead byte
  uint8_t low, high;  // what the second byte may be: narrower than 80..BF where overlong forms etc. would begin
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many of the bytes of the character at the start of `text` are there and right.
size_t right_bytes(std::string_view text, const Lead& lead) {
  size_t have = 1;
  while (have < lead.length && have < text.size()) {
    const auto byte = static_cast<uint8_t>(text[have]);
    if (byte < (have == 1 ? lead.low : 0x80) || byte > (have == 1 ? lead.high : 0xBF)) break;
    ++have;
  }
  return have;
}

}  // namespace

size_t utf8_char_length(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  return lead.length != 0 && right_bytes(text, lead) == lead.length ? lead.length : 0;
}

bool utf8_is_cut_char(std::string_view text) {
  if (text.empty()) return false;
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  return text.size() < lead.length && right_bytes(text, lead) == text.size();
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : utf8_char_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

void utf8_append(std::string& out, uint32_t code) {
  const auto continuation = [code](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += continuation(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += continuation(6);
    out += continuation(0);
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += continuation(12);
    out += continuation(6);
    out += continuation(0);
  }
}

uint32_t utf8_decode(std::string_view text, size_t length) {
  const auto first = static_cast<uint8_t>(text[0]);
  uint32_t code = length == 1 ? first : first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = (code << 6) | (static_cast<uint8_t>(text[i]) & 0x3Fu);
  return code;
}

}  // namespace pop
