// The methods of str.
#include <algorithm>

#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

Value texts(Heap& heap, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (std::string_view part : parts) items.push_back(heap.string(std::string(part)));
  return heap.list(std::move(items));
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = strip(text, true, false);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (is_space(decode_at(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), true, false);
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = strip(text, false, true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t word = 0;  // where the last word starts
    for (size_t at = 0; at < text.size();) {
      if (is_space(decode_at(text, at))) word = at;
    }
    parts.push_back(text.substr(word));
    text = strip(text.substr(0, word), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t end = find_text(text, separator, start);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(start, end - start));
    start = end + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

std::vector<std::string_view> rsplit_at(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t start = text.rfind(separator);
    if (start == std::string_view::npos) break;
    parts.push_back(text.substr(start + separator.size()));
    text = text.substr(0, start);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(Heap& heap, const std::string& text, const Args& args, bool from_right) {
  Bound bound("split", args, {"sep", "maxsplit"});
  int64_t limit = bound.integer(1, -1);
  if (!bound.has(0) || bound[0].is_none()) {
    heap.step(from_right && limit > 0 ? text.size() : text.size() / 4);
    return texts(heap, from_right && limit >= 0 ? rsplit_space(text, limit) : split_space(text, limit));
  }
  const std::string& separator = plain_text(bound[0], "split");
  if (separator.empty()) fail("empty separator");
  if (from_right && limit > 0) heap.step(text.size() / 16 * separator.size() / 16);
  return texts(heap, from_right && limit >= 0 ? rsplit_at(text, separator, limit) : split_at(text, separator, limit));
}

Value strip_method(Heap& heap, const std::string& text, const Args& args, bool left, bool right) {
  if (!args.named.empty()) fail("strip() takes no keyword arguments");
  Bound bound("strip", args, {"chars"});
  if (!bound.has(0) || bound[0].is_none()) return heap.string(std::string(strip(text, left, right)));
  return heap.string(std::string(strip_chars(text, plain_text(bound[0], "strip"), left, right)));
}

// The part of `text` between two code point positions given as arguments, false when start lies behind the end.
bool window(Heap& heap, const std::string& text, const Bound& bound, std::string_view& part, int64_t& start) {
  part = text;
  start = 0;
  bool all = (!bound.has(1) || bound[1].is_none()) && (!bound.has(2) || bound[2].is_none());
  if (all) return true;
  heap.step(text.size() / 16);
  auto size = static_cast<int64_t>(count_code_points(text));
  auto place = [&](size_t k, int64_t otherwise) {
    if (!bound.has(k) || bound[k].is_none()) return otherwise;
    int64_t i = to_index(bound[k], "a position");
    return i < 0 ? std::max<int64_t>(i < -size ? 0 : i + size, 0) : i;
  };
  start = place(1, 0);
  int64_t stop = std::min(place(2, size), size);
  if (start > stop) return false;
  size_t at = 0;
  for (int64_t k = 0; k < start; ++k) decode_at(text, at);
  size_t end = at;
  for (int64_t k = start; k < stop; ++k) decode_at(text, end);
  part = std::string_view(text).substr(at, end - at);
  return true;
}

Value starts_or_ends(Heap& heap, const std::string& text, const Args& args, bool starts) {
  Bound bound(starts ? "startswith" : "endswith", args, {"affix", "start", "end"});
  if (!args.named.empty()) fail("startswith() takes no keyword arguments");
  std::vector<Value> affixes = {bound.required(0)};
  if (bound[0].is(Kind::kTuple)) affixes = bound[0].items();
  std::string_view part;
  int64_t start = 0;
  bool inside = window(heap, text, bound, part, start), result = false;
  for (const Value& affix : affixes) {
    const std::string& a = plain_text(affix, "startswith");
    bool fits = inside && a.size() <= part.size();
    result |= fits && part.substr(starts ? 0 : part.size() - a.size(), a.size()) == a;
  }
  return Value::of(result);
}

Value find_method(Heap& heap, const std::string& text, const Args& args, bool from_right, bool must_exist) {
  if (!args.named.empty()) fail("find() takes no keyword arguments");
  Bound bound("find", args, {"sub", "start", "end"});
  const std::string& needle = plain_text(bound.required(0), "find");
  std::string_view part;
  int64_t start = 0;
  size_t found = std::string_view::npos;
  heap.step(text.size() / 16);
  if (from_right) heap.step(text.size() / 16 * (needle.size() / 16));
  if (window(heap, text, bound, part, start)) found = from_right ? part.rfind(needle) : find_text(part, needle);
  if (found == std::string_view::npos) {
    if (must_exist) fail("substring not found");
    return Value::of(int64_t{-1});
  }
  return Value::of(start + static_cast<int64_t>(count_code_points(part.substr(0, found))));
}

Value replace(Heap& heap, const std::string& text, const Args& args) {
  if (!args.named.empty()) fail("replace() takes no keyword arguments");
  Bound bound("replace", args, {"old", "new", "count"});
  const std::string &old = plain_text(bound.required(0), "replace"), &with = plain_text(bound.required(1), "replace");
  int64_t left = bound.integer(2, -1);
  std::string out;
  size_t at = 0;
  while (left != 0) {
    heap.step();
    heap.check_size(out.size() + text.size());
    size_t found = old.empty() ? at : find_text(text, old, at);
    if (found == std::string::npos) break;
    out.append(text, at, found - at);
    out += with;
    at = found + old.size();
    --left;
    if (!old.empty()) continue;
    if (at == text.size()) return heap.string(std::move(out));  // the empty string is found at the very end, once
    size_t next = at;
    decode_at(text, next);
    out.append(text, at, next - at);
    at = next;
  }
  out.append(text, at);
  return heap.string(std::move(out));
}

Value join(Heap& heap, const std::string& text, const Args& args) {
  if (!args.named.empty()) fail("join() takes no keyword arguments");
  Bound bound("join", args, {"iterable"});
  if (bound.required(0).is_undefined()) return heap.string("");
  std::string out;
  bool first = true;
  for (const Value& item : iterate(heap, bound[0])) {
    if (!item.is_string()) fail("join: expected a string, found {}", type_name(item));
    if (!first) out += text;
    first = false;
    out += plain_text(item, "join");
    heap.check_size(out.size());
  }
  return heap.string(std::move(out));
}

Value count(Heap& heap, const std::string& text, const Args& args) {
  if (!args.named.empty()) fail("count() takes no keyword arguments");
  Bound bound("count", args, {"sub", "start", "end"});
  const std::string& needle = plain_text(bound.required(0), "count");
  std::string_view part;
  int64_t start = 0;
  if (!window(heap, text, bound, part, start)) return Value::of(int64_t{0});
  heap.step(text.size() / 16);
  if (needle.empty()) return Value::of(static_cast<int64_t>(count_code_points(part)) + 1);
  return Value::of(static_cast<int64_t>(split_at(part, needle, -1).size()) - 1);
}

bool all_of(const std::string& text, bool (*good)(char32_t)) {
  for (size_t at = 0; at < text.size();) {
    if (!good(decode_at(text, at))) return false;
  }
  return !text.empty();
}

bool alphanumeric_ascii(char32_t c) {
  if (c >= 0x80 && !is_alpha(c) && !is_digit(c)) fail("isalnum() and isdigit() of this character are not supported");
  return is_alpha(c) || is_digit(c);
}

Value classify(const std::string& text, std::string_view name) {
  if (name == "isalpha") return Value::of(all_of(text, is_alpha));
  if (name == "isspace") return Value::of(all_of(text, is_space));
  if (name == "isalnum") return Value::of(all_of(text, alphanumeric_ascii));
  if (name == "isdigit") {
    return Value::of(all_of(text, [](char32_t c) { return alphanumeric_ascii(c) && is_digit(c); }));
  }
  // islower, isupper: at least one cased character, and no other case
  std::string changed = name == "islower" ? lower(text) : upper(text);
  bool any = false;
  for (size_t at = 0; at < text.size();) any |= is_cased(decode_at(text, at));
  return Value::of(any && changed == text);
}

Value justify(Heap& heap, const std::string& text, std::string_view name, const Args& args) {
  if (!args.named.empty()) fail("{}() takes no keyword arguments", name);
  Bound bound(name, args, {"width", "fill"});
  std::string fill = bound.has(1) ? plain_text(bound[1], name) : name == "zfill" ? "0" : " ";
  if (count_code_points(fill) != 1) fail("the fill character must be exactly one character long");
  int64_t size = static_cast<int64_t>(count_code_points(text)), width = to_index(bound.required(0), name);
  int64_t missing = std::max<int64_t>(width - size, 0);
  heap.check_size(text.size() + static_cast<uint64_t>(missing) * fill.size());
  int64_t left = name == "ljust" ? 0 : name == "center" ? missing / 2 + (missing & width & 1) : missing;
  std::string before, after;
  for (int64_t k = 0; k < missing; ++k) (k < left ? before : after) += fill;
  bool sign = name == "zfill" && !text.empty() && (text[0] == '+' || text[0] == '-');
  return heap.string(text.substr(0, sign) + before + text.substr(sign) + after);
}

Value partition(Heap& heap, const std::string& text, std::string_view name, const Args& args) {
  if (!args.named.empty()) fail("{}() takes no keyword arguments", name);
  Bound bound(name, args, {"sep"});
  const std::string& separator = plain_text(bound.required(0), name);
  if (separator.empty()) fail("empty separator");
  bool from_right = name == "rpartition";
  if (from_right) heap.step(text.size() / 16 * (separator.size() / 16));
  size_t at = from_right ? text.rfind(separator) : find_text(text, separator);
  Value whole = heap.string(text), empty = heap.string("");
  if (at == std::string::npos)
    return heap.tuple(from_right ? std::vector{empty, empty, whole} : std::vector{whole, empty, empty});
  return heap.tuple({heap.string(text.substr(0, at)), bound[0], heap.string(text.substr(at + separator.size()))});
}

Value remove_affix(Heap& heap, const std::string& text, bool prefix, const Args& args) {
  if (!args.named.empty()) fail("removeprefix() takes no keyword arguments");
  Bound bound("removeprefix", args, {"affix"});
  const std::string& affix = plain_text(bound.required(0), "removeprefix");
  if (affix.size() > text.size() || affix.empty()) return heap.string(text);
  size_t rest = text.size() - affix.size();
  if (text.compare(prefix ? 0 : rest, affix.size(), affix) != 0) return heap.string(text);
  return heap.string(prefix ? text.substr(affix.size()) : text.substr(0, rest));
}

Value split_lines_method(Heap& heap, const std::string& text, const Args& args) {
  Bound bound("splitlines", args, {"keepends"});
  bool keep = bound.has(0) && (bound[0].is_undefined() ? to_index(bound[0], "splitlines") != 0 : truth(bound[0]));
  std::vector<Value> lines;
  for (std::string& line : split_lines(text, keep)) lines.push_back(heap.string(std::move(line)));
  return heap.list(std::move(lines));
}

}  // namespace

Value call_text_method(Heap& heap, const Value& object, std::string_view name, const Args& args) {
  const std::string& text = plain_text(object, name);
  heap.step(text.size() / 16 + 1);
  if (name == "strip") return strip_method(heap, text, args, true, true);
  if (name == "lstrip") return strip_method(heap, text, args, true, false);
  if (name == "rstrip") return strip_method(heap, text, args, false, true);
  if (name == "split") return split(heap, text, args, false);
  if (name == "rsplit") return split(heap, text, args, true);
  if (name == "splitlines") return split_lines_method(heap, text, args);
  if (name == "startswith" || name == "endswith") return starts_or_ends(heap, text, args, name == "startswith");
  if (name == "replace") return replace(heap, text, args);
  if (name == "find" || name == "index") return find_method(heap, text, args, false, name == "index");
  if (name == "rfind" || name == "rindex") return find_method(heap, text, args, true, name == "rindex");
  if (name == "join") return join(heap, text, args);
  if (name == "format") return heap.string(brace_format(heap, text, args));
  if (name == "count") return count(heap, text, args);
  if (name == "ljust" || name == "rjust" || name == "center" || name == "zfill") return justify(heap, text, name, args);
  if (name == "partition" || name == "rpartition") return partition(heap, text, name, args);
  if (name == "removeprefix" || name == "removesuffix") return remove_affix(heap, text, name == "removeprefix", args);
  Bound none(name, args, {});
  if (name == "upper") return heap.string(upper(text));
  if (name == "lower") return heap.string(lower(text));
  if (name == "title") return heap.string(title(text));
  if (name == "capitalize") return heap.string(capitalize(text));
  return classify(text, name);
}

}  // namespace pop::jinja
