#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/utf8.h"

namespace pop {
namespace {

// Form C of well-formed text. utf8proc decomposes and composes; the marks are put in order here because its own
// ordering takes the square of the length of a run of marks.
std::string form_c(std::string_view text) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_char_length(text.substr(at));
    utf8proc_int32_t parts[8];
    const auto code = static_cast<utf8proc_int32_t>(utf8_decode(text.substr(at), length));
    const auto count =
        utf8proc_decompose_char(code, parts, 8, static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), nullptr);
    if (count < 0 || count > 8) fail("NFC: {}", utf8proc_errmsg(count));
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
  const auto count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (count < 0) fail("NFC: {}", utf8proc_errmsg(count));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) utf8_append(out, static_cast<uint32_t>(codes[static_cast<size_t>(i)]));
  return out;
}

std::string nfc(std::string_view text) {
  // Nothing below U+0300 (lead byte 0xCC) is changed by form C, and most text is.
  const auto may_change = [](char byte) { return static_cast<uint8_t>(byte) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);
  std::string out;
  each_run(
      text, [&](std::string_view run) { out += form_c(run); }, [&](std::string_view byte) { out += byte; });
  return out;
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

std::string normalize(std::span<const NormalStep> steps, std::string_view text) {
  std::string out(text);
  for (const NormalStep& step : steps) {
    switch (step.kind) {
      case NormalStep::Kind::kNfc:
        out = nfc(out);
        break;
      case NormalStep::Kind::kPrepend:
        if (!out.empty()) out.insert(0, step.to);
        break;
      case NormalStep::Kind::kReplace:
        out = replace_all(out, step.from, step.to);
        break;
      case NormalStep::Kind::kCharsmap:
        out = step.charsmap->apply(out);
        break;
      case NormalStep::Kind::kSingleSpaces:
        out = single_spaces(out);
        break;
    }
  }
  return out;
}

}  // namespace pop
