// Python's % formatting and str.format, for the conversions templates use.
#include <charconv>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000;
constexpr int64_t kMaxPrecision = 300;

struct Spec {
  char fill[8] = " ";
  char align = '\0', sign = '-', type = '\0';
  bool alternate = false, zero = false, comma = false;
  int64_t width = 0, precision = -1;
};

std::string pad(std::string text, const Spec& spec, char default_align) {
  auto size = static_cast<int64_t>(count_code_points(text));
  if (size >= spec.width) return text;
  int64_t missing = spec.width - size;
  char align = spec.align ? spec.align : default_align;
  int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (int64_t k = 0; k < missing; ++k) (k < left ? before : after) += spec.fill;
  if (align != '=') return before + text + after;
  size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
  return text.substr(0, sign) + before + text.substr(sign);
}

std::string with_sign(std::string digits, bool negative, char sign) {
  if (negative) return digits.insert(0, 1, '-');
  if (sign == '+' || sign == ' ') return digits.insert(0, 1, sign);
  return digits;
}

std::string grouped(const std::string& digits) {
  size_t whole = digits.find_first_not_of("0123456789");
  if (whole == std::string::npos) whole = digits.size();
  std::string out;
  for (size_t k = 0; k < whole; ++k) {
    if (k > 0 && (whole - k) % 3 == 0) out += ',';
    out += digits[k];
  }
  return out + digits.substr(whole);
}

std::string integer_digits(int64_t v, char type) {
  uint64_t size = v < 0 ? uint64_t{0} - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  if (type == 'x') return fmt::format("{:x}", size);
  if (type == 'X') return fmt::format("{:X}", size);
  if (type == 'o') return fmt::format("{:o}", size);
  if (type == 'b') return fmt::format("{:b}", size);
  return fmt::format("{}", size);
}

std::string real_digits(double v, char type, int64_t precision, bool alternate) {
  v = std::fabs(v);
  bool upper_case = type == 'F' || type == 'E' || type == 'G';
  if (!std::isfinite(v)) return std::isnan(v) ? (upper_case ? "NAN" : "nan") : (upper_case ? "INF" : "inf");
  if (alternate) fail("the '#' flag is not supported for floats");
  int digits = static_cast<int>(precision < 0 ? 6 : precision);
  switch (type) {
    case 'f':
    case 'F': return fmt::format("{:.{}f}", v, digits);
    case 'e': return fmt::format("{:.{}e}", v, digits);
    case 'E': return fmt::format("{:.{}E}", v, digits);
    case 'g': return fmt::format("{:.{}g}", v, digits);
    default: return fmt::format("{:.{}G}", v, digits);
  }
}

int64_t read_number(std::string_view text, size_t& at, int64_t limit) {
  int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > limit) fail("a format width or precision is above {}", limit);
  }
  return number;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t first = 0;
  if (!text.empty()) decode_at(text, first);
  if (first > 0 && first < text.size() && is_align(text[first])) {
    text.copy(spec.fill, first);
    spec.fill[first] = '\0';
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') fail("'#' in a format specification is not supported");
  if (at < text.size() && text[at] == '0') {
    spec.zero = true;
    ++at;
  }
  spec.width = read_number(text, at, kMaxWidth);
  if (at < text.size() && text[at] == ',') {
    spec.comma = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.') {
    size_t start = ++at;
    spec.precision = read_number(text, at, kMaxWidth);
    if (at == start) fail("format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail("invalid or unsupported format specifier '{}'", printable(text));
  if (spec.zero && !spec.align) {
    spec.fill[0] = '0';
    spec.align = '=';
  }
  return spec;
}

std::string format_number(const Value& v, Spec spec) {
  char type = spec.type;
  bool integer_type = type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b' || type == '\0';
  bool real_type = type == 'f' || type == 'F' || type == 'e' || type == 'E' || type == 'g' || type == 'G';
  if (spec.zero && spec.comma && spec.width > 0) fail("zero padding with ',' is not supported");
  std::string digits;
  bool negative;
  if (v.is_integral() && integer_type) {
    if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
    if (spec.comma && type != 'd' && type != '\0') fail("cannot specify ',' with '{}'", type);
    negative = v.as_integer() < 0;
    digits = integer_digits(v.as_integer(), type);
  } else if (real_type || type == '%') {
    if (spec.precision > kMaxPrecision) fail("a format precision is above {}", kMaxPrecision);
    double real = type == '%' ? v.as_real() * 100 : v.as_real();
    negative = std::signbit(real) && !std::isnan(real);
    digits = real_digits(real, type == '%' ? 'f' : type, spec.precision, false) + (type == '%' ? "%" : "");
  } else {
    if (!v.is(Kind::kFloat) || type != '\0' || spec.precision >= 0) fail("the format type '{}' is not supported", type);
    negative = std::signbit(v.real) && !std::isnan(v.real);
    digits = float_repr(std::fabs(v.real));
  }
  if (spec.comma) digits = grouped(digits);
  return pad(with_sign(std::move(digits), negative, spec.sign), spec, '>');
}

std::string truncate(std::string_view text, int64_t count) {
  size_t at = 0;
  for (int64_t k = 0; k < count && at < text.size(); ++k) decode_at(text, at);
  return std::string(text.substr(0, at));
}

// The values % takes from its right side, in turn or by name.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& values) : values_(values) {}
  const Value& next() {
    if (!values_.is(Kind::kTuple)) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return values_;
    }
    if (used_ >= values_.items().size()) fail("not enough arguments for format string");
    return values_.items()[used_++];
  }
  const Value& named(Heap& heap, std::string_view name) {
    if (!values_.is(Kind::kDict)) fail("format requires a mapping");
    by_name_ = true;
    const Value* found = find_entry(heap, values_, Value::constant(std::string(name)));
    if (!found) fail("format key '{}' is missing", printable(name));
    return *found;
  }
  void finish() const {
    bool unused = values_.is(Kind::kTuple) ? used_ < values_.items().size() : used_ == 0 && !values_.is(Kind::kDict);
    // Python lets everything but a str pass unused that has a subscript.
    if (unused && !values_.is(Kind::kList) && !values_.is(Kind::kRange) && !values_.is_undefined() && !by_name_) {
      fail("not all arguments converted during string formatting");
    }
  }

 private:
  const Value& values_;
  size_t used_ = 0;
  bool by_name_ = false;
};

std::string percent_number(const Value& v, char type, const Spec& spec) {
  if (!v.is_number()) fail("%{} format: a number is required, not {}", type, type_name(v));
  if (type == 'd' || type == 'i' || type == 'u') {
    int64_t number = 0;
    if (v.is(Kind::kFloat)) {
      if (!(std::fabs(v.real) < 9e18)) fail("an integer is out of range (64 bits)");
      number = static_cast<int64_t>(v.real);
    } else {
      number = v.as_integer();
    }
    if (spec.precision >= 0) fail("precision in %{} is not supported", type);
    return with_sign(integer_digits(number, 'd'), number < 0, spec.sign);
  }
  if (type == 'x' || type == 'X' || type == 'o') {
    if (!v.is_integral()) fail("%{} format: an integer is required, not {}", type, type_name(v));
    if (spec.precision >= 0 || spec.alternate) fail("flags of %{} are not supported", type);
    return with_sign(integer_digits(v.as_integer(), type), v.as_integer() < 0, spec.sign);
  }
  if (spec.precision > kMaxPrecision) fail("a format precision is above {}", kMaxPrecision);
  double real = v.as_real();
  return with_sign(real_digits(real, type, spec.precision, spec.alternate), std::signbit(real) && !std::isnan(real),
                   spec.sign);
}

std::string percent_value(Heap& heap, const Value& v, char type, Spec spec) {
  if (std::string_view("diuxXoeEfFgG").find(type) != std::string_view::npos) {
    std::string text = percent_number(v, type, spec);
    if (spec.zero && !spec.align && std::isfinite(v.as_real())) {
      spec.align = '=';
      spec.fill[0] = '0';
    }
    return pad(std::move(text), spec, '>');
  }
  if (type != 's' && type != 'r') fail("the conversion %{} is not supported", printable(std::string(1, type)));
  std::string text = type == 's' ? soft_text(heap, v, "%s") : repr(heap, v);
  if (spec.precision >= 0) text = truncate(text, spec.precision);
  return pad(std::move(text), spec, '>');
}

}  // namespace

std::string percent_format(Heap& heap, std::string_view format, const Value& values) {
  PercentArguments arguments(values);
  std::string out;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    heap.step();
    heap.check_size(out.size());
    ++at;
    const Value* chosen = nullptr;
    if (at < format.size() && format[at] == '(') {
      size_t close = format.find(')', at);
      if (close == std::string_view::npos) fail("incomplete format key");
      chosen = &arguments.named(heap, format.substr(at + 1, close - at - 1));
      at = close + 1;
    }
    Spec spec;
    for (; at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos; ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+' || (format[at] == ' ' && spec.sign != '+')) spec.sign = format[at];
      spec.zero |= format[at] == '0';
      spec.alternate |= format[at] == '#';
    }
    spec.width = read_number(format, at, kMaxWidth);
    if (at < format.size() && format[at] == '.') spec.precision = read_number(format, ++at, kMaxWidth);
    if (at >= format.size()) fail("incomplete format");
    char type = format[at++];
    if (type == '%') {
      out += '%';
    } else {
      out += percent_value(heap, chosen ? *chosen : arguments.next(), type, spec);
    }
  }
  arguments.finish();
  return out;
}

std::string format_value(Heap& heap, const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return soft_text(heap, v, "format");
  if (v.is_undefined() || (!v.is_string() && !v.is_number())) {
    fail("unsupported format string passed to {}.__format__", type_name(v));
  }
  Spec spec = parse_spec(spec_text);
  if (!v.is_string()) {
    if (v.is(Kind::kBool) && spec.type == '\0') fail("formatting a bool is not supported");
    return format_number(v, spec);
  }
  if ((spec.type != '\0' && spec.type != 's') || spec.sign != '-' || spec.comma || spec.align == '=') {
    fail("invalid format specifier for a string");
  }
  std::string text = plain_text(v, "format");
  if (spec.precision >= 0) text = truncate(text, spec.precision);
  return pad(std::move(text), spec, '<');
}

namespace {

// The value a replacement field such as "0", "name", "" or "user.name[0]" stands for.
Value field_value(Heap& heap, std::string_view field, const Args& args, int& automatic) {
  size_t end = std::min(field.find_first_of(".["), field.size());
  std::string_view first = field.substr(0, end);
  Value value;
  bool number = first.find_first_not_of("0123456789") == std::string_view::npos;
  if (number) {
    if (first.empty() ? automatic < 0 : automatic > 0) fail("cannot mix automatic and numbered format fields");
    size_t index = 0;
    if (first.empty()) {
      index = static_cast<size_t>(automatic++);
    } else {
      automatic = -1;
      auto result = std::from_chars(first.data(), first.data() + first.size(), index);
      if (result.ec != std::errc()) fail("a format field number is out of range");
    }
    if (index >= args.positional.size()) fail("replacement index {} out of range for positional args", index);
    value = args.positional[index];
  } else {
    const Value* found = nullptr;
    for (const auto& [name, candidate] : args.named) found = name == first ? &candidate : found;
    if (!found) fail("format key '{}' is missing", printable(first));
    value = *found;
  }
  if (end != field.size()) fail("attributes and subscripts in format fields are not supported");
  (void)heap;
  return value;
}

}  // namespace

std::string brace_format(Heap& heap, std::string_view format, const Args& args) {
  std::string out;
  int automatic = 0;  // fields counted so far; negative once numbered ones are used
  for (size_t at = 0; at < format.size();) {
    char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
    } else if (c == '}') {
      fail("single '}}' encountered in format string");
    } else if (c != '{') {
      out += format[at++];
    } else {
      heap.step();
      heap.check_size(out.size());
      size_t close = format.find_first_of("{}", at + 1);
      if (close == std::string_view::npos) fail("single '{{' encountered in format string");
      if (format[close] == '{') fail("nested format fields are not supported");
      std::string_view field = format.substr(at + 1, close - at - 1), spec;
      if (size_t colon = field.find(':'); colon != std::string_view::npos) {
        spec = field.substr(colon + 1);
        field = field.substr(0, colon);
      }
      char conversion = '\0';
      if (size_t mark = field.find('!'); mark != std::string_view::npos) {
        if (mark + 2 != field.size()) fail("unsupported conversion in format field");
        conversion = field[mark + 1];
        field = field.substr(0, mark);
      }
      Value value = field_value(heap, field, args, automatic);
      if (conversion == 'r') {
        value = heap.string(repr(heap, value));
      } else if (conversion == 's') {
        value = heap.string(soft_text(heap, value, "format"));
      } else if (conversion != '\0') {
        fail("unsupported conversion in format field");
      }
      out += format_value(heap, value, spec);
      at = close + 1;
    }
  }
  return out;
}

}  // namespace pop::jinja
