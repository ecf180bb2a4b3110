// tojson as transformers defines it: Python's json.dumps with ensure_ascii off, key order kept, nothing escaped for HTML.
#include <algorithm>
#include <cmath>
#include <optional>

#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Heap& heap, bool ascii, bool sort_keys, std::optional<std::string> margin, std::string comma,
             std::string colon)
      : heap_(heap),
        ascii_(ascii),
        sort_keys_(sort_keys),
        margin_(std::move(margin)),
        comma_(std::move(comma)),
        colon_(std::move(colon)) {}

  void write(const Value& v, int level) {
    heap_.step();
    heap_.check_size(out.size());
    switch (v.kind) {
      case Kind::kNone: out += "null"; return;
      case Kind::kBool: out += v.boolean ? "true" : "false"; return;
      case Kind::kInt: out += std::to_string(v.integer); return;
      case Kind::kFloat: out += number(v.real); return;
      case Kind::kString: write_text(v.text()); return;
      case Kind::kList:
      case Kind::kTuple: write_list(v.items(), level); return;
      case Kind::kDict: write_dict(v.entries(), level); return;
      default: fail("Object of type {} is not JSON serializable", type_name(v));
    }
  }

  std::string out;

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void line(int level) {
    if (!margin_) return;
    out += '\n';
    for (int k = 0; k < level; ++k) out += *margin_;
    heap_.check_size(out.size());
  }

  void write_list(const std::vector<Value>& items, int level) {
    out += '[';
    for (size_t k = 0; k < items.size(); ++k) {
      if (k > 0) out += comma_;
      line(level + 1);
      write(items[k], level + 1);
    }
    if (!items.empty()) line(level);
    out += ']';
  }

  static std::string key_text(const Value& key) {
    switch (key.kind) {
      case Kind::kString: return key.text();
      case Kind::kNone: return "null";
      case Kind::kBool: return key.boolean ? "true" : "false";
      case Kind::kInt: return std::to_string(key.integer);
      case Kind::kFloat: return number(key.real);
      default: fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_dict(std::vector<std::pair<Value, Value>> entries, int level) {
    if (sort_keys_) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto& a, const auto& b) { return less(heap_, a.first, b.first); });
    }
    out += '{';
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) out += comma_;
      first = false;
      line(level + 1);
      write_text(key_text(key));
      out += colon_;
      write(value, level + 1);
    }
    if (!entries.empty()) line(level);
    out += '}';
  }

  void write_text(std::string_view text) {
    heap_.step(text.size() / 16);
    out += '"';
    for (size_t at = 0; at < text.size();) {
      char32_t c = decode_at(text, at);
      static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      size_t which = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
      if (which != std::string_view::npos) {
        out += '\\';
        out += kLetters[which];
      } else if (c < 0x20 || (ascii_ && c > 0x7E)) {
        if (c >= 0x10000) {
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((static_cast<uint32_t>(c) - 0x10000) >> 10),
                             0xDC00 + (static_cast<uint32_t>(c) & 0x3FF));
        } else {
          out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
        }
      } else {
        append_code_point(out, c);
      }
    }
    out += '"';
  }

  Heap& heap_;
  bool ascii_, sort_keys_;
  std::optional<std::string> margin_;
  std::string comma_, colon_;
};

}  // namespace

Value to_json(Heap& heap, const Value& input, const Args& args) {
  Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  std::optional<std::string> margin;
  if (bound.has(1) && bound[1].is_string()) {
    margin = plain_text(bound[1], "tojson");
  } else if (bound.has(1) && !bound[1].is_none()) {
    int64_t width = std::max<int64_t>(to_index(bound[1], "tojson indent"), 0);
    heap.check_size(static_cast<uint64_t>(width));
    margin = std::string(static_cast<size_t>(width), ' ');
  }
  std::string comma = margin ? "," : ", ", colon = ": ";
  if (bound.has(2) && !bound[2].is_none()) {
    const std::vector<Value> parts = iterate(heap, bound[2]);
    if (parts.size() != 2) fail("tojson: expected two separators, found {}", parts.size());
    comma = plain_text(parts[0], "tojson separators");
    colon = plain_text(parts[1], "tojson separators");
  }
  JsonWriter writer(heap, bound.flag(0, false), bound.flag(3, false), std::move(margin), comma, colon);
  writer.write(input, 0);
  return heap.string(std::move(writer.out));
}

}  // namespace pop::jinja
