#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/utf8.h"

namespace pop {
namespace {

// A Unicode normalisation form of well-formed text. utf8proc decomposes and composes; the marks are put in order here
// because its own ordering takes the square of the length of a run of marks.
std::string normal_form(std::string_view text, bool compatible, bool compose) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_char_length(text.substr(at));
    utf8proc_int32_t parts[32];  // U+FDFA becomes 18, the most of all
    const auto code = static_cast<utf8proc_int32_t>(utf8_decode(text.substr(at), length));
    const auto count = utf8proc_decompose_char(code, parts, 32, options, nullptr);
    if (count < 0 || count > 32) fail("Unicode normalisation: {}", utf8proc_errmsg(count));
    codes.insert(codes.end(), parts, parts + count);
    at += length;
  }
  const auto order = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (auto from = codes.begin(); from != codes.end();) {
    const auto starter = [&](utf8proc_int32_t code) { return order(code) == 0; };
    from = std::find_if_not(from, codes.end(), starter);
    const auto to = std::find_if(from, codes.end(), starter);
    std::stable_sort(from, to, [&](auto a, auto b) { return order(a) < order(b); });
    from = to;
  }
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if (compose)
    count = utf8proc_normalize_utf32(codes.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (count < 0) fail("Unicode normalisation: {}", utf8proc_errmsg(count));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) utf8_append(out, static_cast<uint32_t>(codes[static_cast<size_t>(i)]));
  return out;
}

// `change` of each run of well-formed text.
template <class Change>
std::string change_runs(std::string_view text, Change change) {
  std::string out;
  each_run(
      text, [&](std::string_view run) { out += change(run); }, [&](std::string_view byte) { out += byte; });
  return out;
}

std::string form(std::string_view text, NormalStep::Kind kind) {
  const bool compatible = kind == NormalStep::Kind::kNfkc || kind == NormalStep::Kind::kNfkd;
  const bool compose = kind == NormalStep::Kind::kNfc || kind == NormalStep::Kind::kNfkc;
  // Nothing below U+0300 (lead byte 0xCC) is changed by form C, nothing below U+00A0 by any, and most text is.
  const uint8_t first = kind == NormalStep::Kind::kNfc ? 0xCC : 0xC2;
  if (std::none_of(text.begin(), text.end(), [&](char byte) { return static_cast<uint8_t>(byte) >= first; }))
    return std::string(text);
  return change_runs(text, [&](std::string_view run) { return normal_form(run, compatible, compose); });
}

// Lower case of one character; Unicode 16's additions are newer than many a utf8proc.
uint32_t lower(uint32_t code) {
  if (code >= 0x10D50 && code <= 0x10D65) return code + 0x20;
  switch (code) {
    case 0x1C89: return 0x1C8A;
    case 0xA7CB: return 0x264;
    case 0xA7CC: return 0xA7CD;
    case 0xA7DA: return 0xA7DB;
    case 0xA7DC: return 0x19B;
    default: return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
  }
}

std::string lowercase(std::string_view run) {
  std::string out;
  for (size_t at = 0; at < run.size();) {
    const size_t length = utf8_char_length(run.substr(at));
    const uint32_t code = utf8_decode(run.substr(at), length);
    utf8_append(out, lower(code));
    if (code == 0x130) utf8_append(out, 0x307);  // the only one that becomes two
    at += length;
  }
  return out;
}

bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_word(std::string_view character) {
  const auto code = static_cast<utf8proc_int32_t>(utf8_decode(character, character.size()));
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return code == 0x200C || code == 0x200D;
  }
}

// The last character of `text`; empty if it does not end with a whole one.
std::string_view last_character(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size()); ++length)
    if (utf8_char_length(text.substr(text.size() - length)) == length) return text.substr(text.size() - length);
  return {};
}

std::string single_spaces(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  for (size_t length = 0; (length = utf8_char_length(text.substr(at))) > 0; at += length)
    if (!is_space(utf8_decode(text.substr(at), length))) break;
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t size = 0;
  for (;;) {
    const std::string_view last = last_character(text.substr(0, text.size() - size));
    if (last.empty() || !is_space(utf8_decode(last, last.size()))) return size;
    size += last.size();
  }
}

bool begins_with_word(std::string_view text) {
  const size_t length = utf8_char_length(text);
  return length > 0 && is_word(text.substr(0, length));
}

bool ends_with_word(std::string_view text) {
  const std::string_view last = last_character(text);
  return !last.empty() && is_word(last);
}

namespace {

[[noreturn]] void fail_too_long(size_t most) {
  fail("text: expected at most {} bytes once it is normalized, found more", most);
}

std::string replace_within(std::string_view text, const NormalStep& step, size_t most) {
  size_t length = text.size();
  for (size_t at = 0; (at = text.find(step.from, at)) != std::string_view::npos; at += step.from.size())
    if ((length += step.to.size()) > most + text.size()) fail_too_long(most);
  return replace_all(text, step.from, step.to);
}

std::string apply(const NormalStep& step, std::string text, bool begins_input, size_t most) {
  switch (step.kind) {
    case NormalStep::Kind::kNfc:
    case NormalStep::Kind::kNfd:
    case NormalStep::Kind::kNfkc:
    case NormalStep::Kind::kNfkd: return form(text, step.kind);
    case NormalStep::Kind::kLowercase: return change_runs(text, lowercase);
    case NormalStep::Kind::kStrip:
      if (step.left) text.erase(0, leading_space(text));
      if (step.right) text.resize(text.size() - trailing_space(text));
      return text;
    case NormalStep::Kind::kPrefix:
      if (text.starts_with(step.to) || (step.first_only && !begins_input)) return text;
      [[fallthrough]];
    case NormalStep::Kind::kPrepend:
      if (!text.empty()) text.insert(0, step.to);
      return text;
    case NormalStep::Kind::kReplace: return replace_within(text, step, most);
    case NormalStep::Kind::kCharsmap: return step.charsmap->apply(text);
    case NormalStep::Kind::kSingleSpaces: return single_spaces(text);
  }
  return text;
}

}  // namespace

std::string normalize(std::span<const NormalStep> steps, std::string_view text, bool begins_input) {
  // NFKD makes at most 18 bytes of one, marks for spaces 3: a file whose rules want far more would take all memory.
  const size_t most = 4096 + 256 * text.size();
  std::string out(text);
  for (const NormalStep& step : steps) {
    out = apply(step, std::move(out), begins_input, most);
    if (out.size() > most) fail_too_long(most);
  }
  return out;
}

}  // namespace pop
