// Filters on single values: text, numbers, defaults.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

Value trim(Heap& heap, const Value& input, const Args& args) {
  Bound bound("trim", args, {"chars"});
  std::string text = soft_text(heap, input, "trim");
  if (!bound.has(0) || bound[0].is_none()) return heap.string(std::string(strip(text, true, true)));
  return heap.string(std::string(strip_chars(text, plain_text(bound[0], "trim"), true, true)));
}

template <std::string (*kChange)(std::string_view)>
Value change(Heap& heap, const Value& input, const Args& args) {
  Bound none("the filter", args, {});
  return heap.string(kChange(soft_text(heap, input, "the filter")));
}

// Jinja's own title: every part after a space, hyphen or opening bracket.
std::string title_words(std::string_view text) {
  std::string out;
  auto separates = [](char32_t c) { return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at, next = at;
    bool separators = separates(decode_at(text, next));
    while (end < text.size()) {
      next = end;
      if (separates(decode_at(text, next)) != separators) break;
      end = next;
    }
    std::string_view part = text.substr(at, end - at);
    size_t first = 0;
    decode_at(part, first);
    out += upper(part.substr(0, first)) + lower(part.substr(first));
    at = end;
  }
  return out;
}

Value replace_filter(Heap& heap, const Value& input, const Args& args) {
  Bound bound("replace", args, {"old", "new", "count"});
  Args method;
  method.positional = {heap.string(soft_text(heap, bound.required(0), "replace")),
                       heap.string(soft_text(heap, bound.required(1), "replace"))};
  if (bound.has(2) && !bound[2].is_none()) method.positional.push_back(bound[2]);
  return call_text_method(heap, heap.string(soft_text(heap, input, "replace")), "replace", method);
}

Value default_filter(Heap& heap, const Value& input, const Args& args) {
  Bound bound("default", args, {"default_value", "boolean"});
  if (!input.is_undefined() && !(bound.flag(1, false) && !truth(input))) return input;
  return bound.has(0) ? bound[0] : heap.string("");
}

Value string_filter(Heap& heap, const Value& input, const Args& args) {
  Bound none("string", args, {});
  return input.is_string() ? input : heap.string(str(heap, input));
}

std::string without_underscores(std::string_view text, bool& good) {
  std::string out;
  for (size_t k = 0; k < text.size(); ++k) {
    bool between = k > 0 && k + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[k - 1])) &&
                   std::isdigit(static_cast<unsigned char>(text[k + 1]));
    if (text[k] != '_') {
      out += text[k];
    } else if (!between) {
      good = false;
    }
  }
  return out;
}

// Python's int(text, base); nothing when Python raises ValueError.
std::optional<int64_t> parse_integer(std::string_view input, int64_t base) {
  if (base != 2 && base != 8 && base != 10 && base != 16) fail("int: the base {} is not supported", base);
  if (!is_ascii(input)) fail("int: non-ASCII digits are not supported");
  bool good = true;
  std::string text = without_underscores(strip(input, true, true), good);
  size_t at = 0;
  bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) ++at;
  char mark = text.size() > at + 1 && text[at] == '0' ? static_cast<char>(text[at + 1] | 0x20) : '\0';
  if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b')) at += 2;
  uint64_t size = 0;
  if (at >= text.size() || !good) return std::nullopt;
  auto result = std::from_chars(text.data() + at, text.data() + text.size(), size, static_cast<int>(base));
  if (result.ptr != text.data() + text.size()) return std::nullopt;
  if (result.ec != std::errc() || size > uint64_t{INT64_MAX}) fail("an integer is out of range (64 bits)");
  return negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size);
}

// Python's float(text); nothing when Python raises ValueError.
std::optional<double> parse_real(std::string_view input) {
  if (!is_ascii(input)) fail("float: non-ASCII digits are not supported");
  bool good = true;
  std::string text = lower(without_underscores(strip(input, true, true), good));
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  std::string rest = text.substr(at);
  double sign = text[0] == '-' ? -1 : 1, value = 0;
  if (!good) return std::nullopt;
  if (rest == "inf" || rest == "infinity") return sign * HUGE_VAL;
  if (rest == "nan") return std::nan("");
  if (rest.empty() || rest.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (result.ptr != rest.data() + rest.size() || rest[0] == '-') return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) fail("float: the number is out of range");
  if (result.ec != std::errc()) return std::nullopt;
  return sign * value;
}

std::optional<int64_t> truncate_real(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (!(std::fabs(value) < 9.2e18)) fail("an integer is out of range (64 bits)");
  return static_cast<int64_t>(value);
}

Value int_filter(Heap&, const Value& input, const Args& args) {
  Bound bound("int", args, {"default", "base"});
  if (input.is_undefined()) fail("{}", undefined_message(input));
  std::optional<int64_t> result;
  if (input.is_string()) {
    result = parse_integer(input.text(), bound.integer(1, 10));
    if (!result) {
      std::optional<double> real = parse_real(input.text());
      if (real && std::isfinite(*real)) result = truncate_real(*real);
    }
  } else if (input.is_number()) {
    result = input.is(Kind::kFloat) ? truncate_real(input.real) : input.as_integer();
  }
  if (result) return Value::of(*result);
  return bound.has(0) ? bound[0] : Value::of(int64_t{0});
}

Value float_filter(Heap&, const Value& input, const Args& args) {
  Bound bound("float", args, {"default"});
  if (input.is_undefined()) fail("{}", undefined_message(input));
  std::optional<double> result;
  if (input.is_string()) result = parse_real(input.text());
  if (input.is_number()) result = input.as_real();
  if (result) return Value::of(*result);
  return bound.has(0) ? bound[0] : Value::of(0.0);
}

Value abs_filter(Heap&, const Value& input, const Args& args) {
  Bound none("abs", args, {});
  if (input.is(Kind::kFloat)) return Value::of(std::fabs(input.real));
  if (!input.is_integral()) fail("bad operand type for abs(): '{}'", type_name(input));
  return input.as_integer() < 0 ? negate(input) : Value::of(input.as_integer());
}

Value round_filter(Heap& heap, const Value& input, const Args& args) {
  Bound bound("round", args, {"precision", "method"});
  int64_t precision = bound.integer(0, 0);
  std::string method = bound.has(1) && bound[1].is_string() ? bound[1].text() : bound.has(1) ? "?" : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (input.is_undefined()) fail("{}", undefined_message(input));
  if (!input.is_number()) fail("type {} cannot be rounded", type_name(input));
  if (precision < 0 || precision > 20) fail("round: a precision outside 0 .. 20 is not supported");
  if (method != "common") {
    Value scale = binary_operator(heap, "**", Value::of(int64_t{10}), Value::of(precision));
    double scaled = binary_operator(heap, "*", input, scale).as_real();
    double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
    if (!(std::fabs(whole) < 9e15)) fail("round: the number is out of range");
    return Value::of(whole / scale.as_real() + 0.0);
  }
  if (!input.is(Kind::kFloat)) return Value::of(input.as_integer());
  if (!std::isfinite(input.real)) return input;
  std::string digits = fmt::format("{:.{}f}", input.real, static_cast<int>(precision));
  return Value::of(std::strtod(digits.c_str(), nullptr));
}

Value indent(Heap& heap, const Value& input, const Args& args) {
  Bound bound("indent", args, {"width", "first", "blank"});
  const std::string& text = plain_text(input, "indent");
  std::string margin = "    ";
  if (bound.has(0) && bound[0].is_string()) {
    margin = plain_text(bound[0], "indent");
  } else if (bound.has(0)) {
    int64_t width = std::max<int64_t>(to_index(bound[0], "indent"), 0);
    heap.check_size(static_cast<uint64_t>(width));
    margin.assign(static_cast<size_t>(width), ' ');
  }
  bool first = bound.flag(1, false), blank = bound.flag(2, false);
  std::string out;
  bool at_first = true;
  for (const std::string& line : split_lines(text + "\n", false)) {
    if (!at_first) out += "\n";
    if (at_first ? first : blank || !line.empty()) out += margin;
    at_first = false;
    out += line;
    heap.check_size(out.size());
  }
  return heap.string(std::move(out));
}

Value wordcount(Heap& heap, const Value& input, const Args& args) {
  Bound none("wordcount", args, {});
  std::string text = soft_text(heap, input, "wordcount");
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = decode_at(text, at);
    bool word = c == '_' || is_alpha(c) || is_digit(c);
    words += word && !inside;
    inside = word;
  }
  return Value::of(words);
}

std::string quote(std::string_view text, bool for_query) {
  std::string out;
  for (char c : text) {
    bool safe = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !for_query);
    if (safe) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value urlencode(Heap& heap, const Value& input, const Args& args) {
  Bound none("urlencode", args, {});
  if (input.is_string() || !(input.is(Kind::kDict) || input.is_sequence())) {
    return heap.string(quote(soft_text(heap, input, "urlencode"), false));
  }
  std::string out;
  std::vector<Value> pairs = input.is_sequence() ? input.items() : std::vector<Value>{};
  if (input.is(Kind::kDict)) {
    for (const auto& [key, value] : input.entries()) pairs.push_back(heap.tuple({key, value}));
  }
  for (const Value& pair : pairs) {
    const std::vector<Value> parts = iterate(heap, pair);
    if (parts.size() != 2) fail("urlencode: expected pairs");
    if (!out.empty()) out += '&';
    out +=
        quote(soft_text(heap, parts[0], "urlencode"), true) + "=" + quote(soft_text(heap, parts[1], "urlencode"), true);
    heap.check_size(out.size());
  }
  return heap.string(std::move(out));
}

Value safe(Heap& heap, const Value& input, const Args& args) {
  Bound none("safe", args, {});
  return heap.markup(str(heap, input));
}

Value escape_always(Heap& heap, const Value& input, const Args& args) {
  Bound none("escape", args, {});
  std::string out;
  for (char c : str(heap, input)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return heap.markup(std::move(out));
}

Value escape(Heap& heap, const Value& input, const Args& args) {
  bool done = input.is_string() && static_cast<const StringObject&>(*input.ref).markup;
  return done ? input : escape_always(heap, input, args);
}

Value format_filter(Heap& heap, const Value& input, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) fail("format cannot take positional and keyword arguments");
  std::string text = soft_text(heap, input, "format");
  if (args.named.empty()) return heap.string(percent_format(heap, text, heap.tuple(args.positional)));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : args.named) entries.emplace_back(heap.string(name), value);
  return heap.string(percent_format(heap, text, heap.dict(std::move(entries))));
}

Value center(Heap& heap, const Value& input, const Args& args) {
  Bound bound("center", args, {"width"});
  Args method;
  method.positional = {bound.has(0) ? bound[0] : Value::of(int64_t{80})};
  return call_text_method(heap, heap.string(soft_text(heap, input, "center")), "center", method);
}

Value truncate(Heap& heap, const Value& input, const Args& args) {
  Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  std::u32string end = bound.has(2) ? to_code_points(plain_text(bound[2], "truncate")) : U"...";
  int64_t size = bound.integer(0, 255);
  int64_t leeway = bound.has(3) && !bound[3].is_none() ? bound.integer(3, 5) : 5;
  if (size < static_cast<int64_t>(end.size())) fail("truncate: expected a length of at least {}", end.size());
  if (leeway < 0) fail("truncate: expected a leeway of at least 0");
  int64_t count = length(input);
  if (count <= size || count - size <= leeway) return input;
  std::u32string text = to_code_points(plain_text(input, "truncate"));
  std::u32string kept = text.substr(0, static_cast<size_t>(size) - end.size());
  if (!bound.flag(1, false)) kept = kept.substr(0, std::min(kept.rfind(U' '), kept.size()));
  return heap.string(to_utf8(kept + end));
}

}  // namespace

std::vector<FilterEntry> text_filters() {
  return {{"trim", trim},
          {"upper", change<upper>},
          {"lower", change<lower>},
          {"capitalize", change<capitalize>},
          {"title", change<title_words>},
          {"replace", replace_filter},
          {"default", default_filter},
          {"d", default_filter},
          {"string", string_filter},
          {"int", int_filter},
          {"float", float_filter},
          {"abs", abs_filter},
          {"round", round_filter},
          {"indent", indent},
          {"wordcount", wordcount},
          {"urlencode", urlencode},
          {"safe", safe},
          {"escape", escape},
          {"e", escape},
          {"forceescape", escape_always},
          {"format", format_filter},
          {"center", center},
          {"truncate", truncate},
          {"tojson", to_json}};
}

}  // namespace pop::jinja
