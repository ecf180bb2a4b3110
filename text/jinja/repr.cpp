// Python's str() and repr().
#include <charconv>
#include <cmath>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace pop::jinja {
namespace {

void append_repr(Heap& heap, std::string& out, const Value& v);

void append_items(Heap& heap, std::string& out, const std::vector<Value>& items) {
  for (size_t k = 0; k < items.size(); ++k) {
    if (k > 0) out += ", ";
    append_repr(heap, out, items[k]);
  }
}

void append_entries(Heap& heap, std::string& out, const Value& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(heap, out, key);
    out += ": ";
    append_repr(heap, out, value);
  }
  out += '}';
}

void append_range(std::string& out, const RangeObject& r) {
  out += fmt::format("range({}, {}", r.start, r.stop);
  if (r.step != 1) out += fmt::format(", {}", r.step);
  out += ')';
}

void append_repr(Heap& heap, std::string& out, const Value& v) {
  heap.step();
  heap.check_size(out.size());
  switch (v.kind) {
    case Kind::kUndefined: out += "Undefined"; return;
    case Kind::kNone: out += "None"; return;
    case Kind::kBool: out += v.boolean ? "True" : "False"; return;
    case Kind::kInt: out += std::to_string(v.integer); return;
    case Kind::kFloat: out += float_repr(v.real); return;
    case Kind::kString:
      if (static_cast<const StringObject&>(*v.ref).markup) fail("repr of an escaped string is not supported");
      heap.step(v.text().size() / 16);
      out += string_repr(v.text());
      return;
    case Kind::kList:
      out += '[';
      append_items(heap, out, v.items());
      out += ']';
      return;
    case Kind::kTuple:
      out += '(';
      append_items(heap, out, v.items());
      out += v.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict: append_entries(heap, out, v); return;
    case Kind::kView:
      out += type_name(v);
      out += "([";
      append_items(heap, out, v.items());
      out += "])";
      return;
    case Kind::kRange: append_range(out, static_cast<const RangeObject&>(*v.ref)); return;
    default: fail("printing a {} object is not supported", type_name(v));
  }
}

}  // namespace

std::string str(Heap& heap, const Value& v) {
  if (v.is_string()) return v.text();
  if (v.is_undefined()) return {};
  return repr(heap, v);
}

std::string repr(Heap& heap, const Value& v) {
  std::string out;
  append_repr(heap, out, v);
  return out;
}

// The shortest digits that read back as the same double, in Python's notation.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  size_t e = text.find('e');
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text[0] == '+') exponent_text.remove_prefix(1);
  int exponent = 0;
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", text.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string string_repr(std::string_view text) {
  bool has_single = text.find('\'') != std::string_view::npos, has_double = text.find('"') != std::string_view::npos;
  char32_t quote = has_single && !has_double ? '"' : '\'';
  std::string out;
  append_code_point(out, quote);
  for (size_t at = 0; at < text.size();) {
    char32_t c = decode_at(text, at);
    if (c == quote || c == '\\') {
      out += '\\';
      append_code_point(out, c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_code_point(out, c);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  append_code_point(out, quote);
  return out;
}

}  // namespace pop::jinja
