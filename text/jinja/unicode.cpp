#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/special_casing.h"

namespace pop::jinja {
namespace {

bool continuation(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Length of the well-formed sequence at `at`, 0 when there is none.
size_t sequence_length(std::string_view text, size_t at) {
  auto byte = [&](size_t k) { return static_cast<unsigned char>(text[at + k]); };
  unsigned char b0 = byte(0);
  if (b0 < 0x80) return 1;
  if (b0 >= 0xC2 && b0 <= 0xDF) return continuation(text, at + 1) ? 2 : 0;
  if (b0 >= 0xE0 && b0 <= 0xEF) {
    if (!continuation(text, at + 1) || !continuation(text, at + 2)) return 0;
    if (b0 == 0xE0 && byte(1) < 0xA0) return 0;
    if (b0 == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (b0 >= 0xF0 && b0 <= 0xF4) {
    if (!continuation(text, at + 1) || !continuation(text, at + 2) || !continuation(text, at + 3)) return 0;
    if (b0 == 0xF0 && byte(1) < 0x90) return 0;
    if (b0 == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

const SpecialCase* special_case(char32_t c) {
  if (c < 0x80) return nullptr;
  auto less = [](const SpecialCase& entry, char32_t code) { return entry.code < code; };
  auto it = std::lower_bound(std::begin(kSpecialCasing), std::end(kSpecialCasing), c, less);
  return it != std::end(kSpecialCasing) && it->code == c ? it : nullptr;
}

void append_upper(std::u32string& out, char32_t c) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->upper;
  } else {
    out += static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
  }
}

void append_title(std::u32string& out, char32_t c) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->title;
  } else {
    out += static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
  }
}

bool case_ignorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD || c == 0xB7) return true;
  if (c == 0x2019 || c == 0x2018 || c == 0x2024 || c == 0x2027) return true;
  auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

// Greek capital sigma is written differently at the end of a word (Unicode, Final_Sigma).
bool final_sigma(const std::u32string& text, size_t at) {
  size_t before = at;
  while (before > 0 && case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::u32string& out, const std::u32string& text, size_t at) {
  char32_t c = text[at];
  if (c == 0x3A3) {
    out += final_sigma(text, at) ? U'\u03C2' : U'\u03C3';
  } else if (c == 0x130) {
    out += U"i\u0307";
  } else {
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

template <class Drop>
std::string_view strip_if(std::string_view text, bool left, bool right, Drop drop) {
  while (left && !text.empty()) {
    size_t next = 0;
    if (!drop(decode_at(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && continuation(text, start)) --start;
    size_t next = start;
    if (!drop(decode_at(text, next))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace

bool valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t n = sequence_length(text, at);
    if (n == 0) return false;
    at += n;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

char32_t decode_at(std::string_view text, size_t& position) {
  auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + k])); };
  char32_t b0 = byte(0), c = b0;
  size_t n = b0 < 0x80 ? 1 : b0 < 0xE0 ? 2 : b0 < 0xF0 ? 3 : 4;
  if (n == 2) c = ((b0 & 0x1F) << 6) | (byte(1) & 0x3F);
  if (n == 3) c = ((b0 & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
  if (n == 4) c = ((b0 & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F);
  position += n;
  return c;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out += decode_at(text, at);
  return out;
}

void append_code_point(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char32_t c : text) append_code_point(out, c);
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  auto k = category(c);
  return k != UTF8PROC_CATEGORY_CC && k != UTF8PROC_CATEGORY_CF && k != UTF8PROC_CATEGORY_CS &&
         k != UTF8PROC_CATEGORY_CO && k != UTF8PROC_CATEGORY_CN && k != UTF8PROC_CATEGORY_ZL &&
         k != UTF8PROC_CATEGORY_ZP && k != UTF8PROC_CATEGORY_ZS;
}

bool is_alpha(char32_t c) {
  auto k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_cased(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  auto code = static_cast<utf8proc_int32_t>(c);
  return utf8proc_islower(code) || utf8proc_isupper(code) || category(c) == UTF8PROC_CATEGORY_LT;
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (char32_t c : to_code_points(text)) append_upper(out, c);
  return to_utf8(out);
}

std::string lower(std::string_view text) {
  std::u32string in = to_code_points(text), out;
  for (size_t k = 0; k < in.size(); ++k) append_lower(out, in, k);
  return to_utf8(out);
}

std::string title(std::string_view text) {
  std::u32string in = to_code_points(text), out;
  bool in_word = false;
  for (size_t k = 0; k < in.size(); ++k) {
    if (in_word) {
      append_lower(out, in, k);
    } else {
      append_title(out, in[k]);
    }
    in_word = is_cased(in[k]);
  }
  return to_utf8(out);
}

std::string capitalize(std::string_view text) {
  std::u32string in = to_code_points(text), out;
  for (size_t k = 0; k < in.size(); ++k) {
    if (k == 0) {
      append_title(out, in[k]);
    } else {
      append_lower(out, in, k);
    }
  }
  return to_utf8(out);
}

std::string_view strip(std::string_view text, bool left, bool right) { return strip_if(text, left, right, is_space); }

std::string_view strip_chars(std::string_view text, std::string_view chars, bool left, bool right) {
  std::u32string set = to_code_points(chars);
  std::sort(set.begin(), set.end());
  return strip_if(text, left, right, [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    char32_t c = decode_at(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (needle.size() <= 16) return text.find(needle, from);
  if (from > text.size() || text.size() - from < needle.size()) return std::string_view::npos;
  std::vector<size_t> border(needle.size(), 0);  // Knuth-Morris-Pratt
  for (size_t k = 1, m = 0; k < needle.size(); ++k) {
    while (m > 0 && needle[k] != needle[m]) m = border[m - 1];
    if (needle[k] == needle[m]) ++m;
    border[k] = m;
  }
  for (size_t k = from, m = 0; k < text.size(); ++k) {
    while (m > 0 && text[k] != needle[m]) m = border[m - 1];
    if (text[k] == needle[m]) ++m;
    if (m == needle.size()) return k + 1 - m;
  }
  return std::string_view::npos;
}

}  // namespace pop::jinja
