#include "text/jinja/lexer.h"

#include <algorithm>
#include <optional>

#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
bool name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool name_part(char c) { return name_start(c) || digit(c); }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t k = 0; k < source.size(); ++k) {
    if (source[k] != '\r') {
      out += source[k];
    } else {
      out += '\n';
      if (k + 1 < source.size() && source[k + 1] == '\n') ++k;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) text_and_tag();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char at(size_t k) const { return k < source_.size() ? source_[k] : '\0'; }
  bool has(size_t k, std::string_view what) const { return source_.compare(k, what.size(), what) == 0; }

  int line() {
    for (; counted_ < position_; ++counted_) line_ += source_[counted_] == '\n';
    return line_;
  }
  void add(TokenKind kind, std::string value) { tokens_.push_back({kind, std::move(value), line()}); }

  size_t skip_space(size_t k) const {
    while (k < source_.size()) {
      size_t next = k;
      if (!is_space(decode_at(source_, next))) break;
      k = next;
    }
    return k;
  }

  // The text before a tag at `end`, shortened as the tag's sign and lstrip_blocks ask.
  void add_text(size_t end, char sign, bool is_variable) {
    std::string_view text(source_.data() + position_, end - position_);
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && !is_variable) {
      size_t line_start = text.rfind('\n') + 1;  // npos + 1 == 0
      bool starts_line = line_start > 0 || position_ == 0 || source_[position_ - 1] == '\n';
      if (starts_line && strip(text.substr(line_start), true, false).empty()) text = text.substr(0, line_start);
    }
    if (!text.empty()) add(TokenKind::kText, std::string(text));
  }

  void text_and_tag() {
    size_t open = position_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) {
        add(TokenKind::kText, source_.substr(position_));
        position_ = source_.size();
        return;
      }
      char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    char what = source_[open + 1];
    char sign = at(open + 2) == '-' || at(open + 2) == '+' ? at(open + 2) : '\0';
    size_t inside = open + (sign ? 3 : 2);
    add_text(open, sign, what == '{');
    position_ = open;
    if (what == '#') {
      comment(inside);
    } else if (std::optional<size_t> raw = what == '%' ? raw_begin(inside) : std::nullopt) {
      raw_block(*raw);
    } else {
      add(what == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
      position_ = inside;
      tag(what == '{');
    }
  }

  void comment(size_t inside) {
    size_t close = source_.find("#}", inside);
    if (close == std::string::npos) fail_at(line(), "missing end of comment tag '#}}'");
    char sign = close > inside ? source_[close - 1] : '\0';
    position_ = close + 2;
    if (sign == '-') {
      position_ = skip_space(position_);
    } else if (sign != '+' && at(position_) == '\n') {
      ++position_;
    }
  }

  // The place behind "raw %}" when the tag says that.
  std::optional<size_t> raw_begin(size_t k) const {
    k = skip_space(k);
    if (!has(k, "raw")) return std::nullopt;
    k = skip_space(k + 3);
    if (has(k, "-%}")) return skip_space(k + 3);
    if (has(k, "%}")) return k + 2;
    return std::nullopt;
  }

  void raw_block(size_t start) {
    int begin_line = line();
    position_ = start;
    for (size_t open = source_.find("{%", start); open != std::string::npos; open = source_.find("{%", open + 1)) {
      char sign = at(open + 2) == '-' || at(open + 2) == '+' ? at(open + 2) : '\0';
      size_t k = skip_space(open + (sign ? 3 : 2));
      if (!has(k, "endraw")) continue;
      k = skip_space(k + 6);
      size_t end;
      if (has(k, "-%}")) {
        end = skip_space(k + 3);
      } else if (has(k, "+%}")) {
        end = k + 3;
      } else if (has(k, "%}")) {
        end = k + 2 + (at(k + 2) == '\n');
      } else {
        continue;
      }
      add_text(open, sign, false);
      position_ = end;
      return;
    }
    fail_at(begin_line, "missing end of raw block");
  }

  void tag(bool is_variable) {
    std::vector<char> open_brackets;
    while (position_ < source_.size()) {
      if (open_brackets.empty() && tag_end(is_variable)) return;
      char c = source_[position_];
      size_t behind_space = skip_space(position_);
      if (behind_space != position_) {
        position_ = behind_space;
      } else if (digit(c)) {
        number();
      } else if (name_start(c)) {
        size_t end = position_;
        while (name_part(at(end))) ++end;
        add(TokenKind::kName, source_.substr(position_, end - position_));
        position_ = end;
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        op(open_brackets);
      }
    }
    fail_at(line(), "the template ends inside a tag");
  }

  bool tag_end(bool is_variable) {
    std::string_view close = is_variable ? "}}" : "%}";
    char c = source_[position_];
    size_t end;
    if (c == '-' && has(position_ + 1, close)) {
      end = skip_space(position_ + 3);
    } else if (has(position_, close)) {
      end = position_ + 2 + (!is_variable && at(position_ + 2) == '\n');
    } else if (!is_variable && c == '+' && has(position_ + 1, close)) {
      end = position_ + 3;
    } else {
      return false;
    }
    add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    position_ = end;
    return true;
  }

  // Digits with single underscores between them; returns `k` when there are none.
  size_t digits(size_t k) const {
    if (!digit(at(k))) return k;
    while (digit(at(k)) || (at(k) == '_' && digit(at(k + 1)))) ++k;
    return k;
  }

  void number() {
    size_t start = position_, whole = digits(start), end = whole;
    bool after_dot = start > 0 && source_[start - 1] == '.';
    if (!after_dot && at(whole) == '.' && digits(whole + 1) != whole + 1) end = digits(whole + 1);
    if (!after_dot && (at(end) == 'e' || at(end) == 'E')) {
      size_t exponent = end + 1 + (at(end + 1) == '+' || at(end + 1) == '-');
      if (digits(exponent) != exponent) end = digits(exponent);
    }
    TokenKind kind = end == whole ? TokenKind::kInteger : TokenKind::kFloat;
    if (kind == TokenKind::kInteger) end = integer_end(start, whole);
    std::string value = source_.substr(start, end - start);
    value.erase(std::remove(value.begin(), value.end(), '_'), value.end());
    add(kind, std::move(value));
    position_ = end;
  }

  // 0x, 0o and 0b forms; a decimal must not go on behind a leading zero unless it is all zeros.
  size_t integer_end(size_t start, size_t whole) const {
    if (source_[start] != '0') return whole;
    char base = static_cast<char>(at(start + 1) | 0x20);
    std::string_view allowed = base == 'x'   ? "0123456789abcdefABCDEF"
                               : base == 'o' ? "01234567"
                               : base == 'b' ? "01"
                                             : "";
    size_t k = start + 2;
    auto good = [&](size_t i) { return i < source_.size() && allowed.find(source_[i]) != std::string_view::npos; };
    while (good(k) || (at(k) == '_' && good(k + 1))) ++k;
    if (!allowed.empty() && k > start + 2) return k;
    k = start + 1;
    while (at(k) == '0' || (at(k) == '_' && at(k + 1) == '0')) ++k;
    return k;
  }

  void string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line(), "a string is not closed");
    add(TokenKind::kString, unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    position_ = end + 1;
  }

  std::string unescape(std::string_view text) {
    std::string out;
    for (size_t k = 0; k < text.size();) {
      if (text[k] != '\\') {
        out += text[k++];
        continue;
      }
      char c = text[k + 1];  // the scan in string() never leaves a lone backslash
      k += 2;
      static constexpr std::string_view kNames = "abfnrtv\\'\"", kCodes = "\a\b\f\n\r\t\v\\'\"";
      if (size_t which = kNames.find(c); which != std::string_view::npos) {
        out += kCodes[which];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        k = hex_escape(text, k, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
      } else if (c >= '0' && c <= '7') {
        uint32_t code = static_cast<uint32_t>(c - '0');
        for (int n = 0; n < 2 && k < text.size() && text[k] >= '0' && text[k] <= '7'; ++n) {
          code = code * 8 + static_cast<uint32_t>(text[k++] - '0');
        }
        append_code_point(out, code);
      } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
        fail_at(line(), "\\N and non-ASCII escapes in strings are not supported");
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  size_t hex_escape(std::string_view text, size_t k, size_t count, std::string& out) {
    uint64_t code = 0;
    for (size_t n = 0; n < count; ++n, ++k) {
      char c = k < text.size() ? text[k] : '\0';
      char letter = static_cast<char>(c | 0x20);
      if (digit(c)) {
        code = code * 16 + static_cast<uint64_t>(c - '0');
      } else if (letter >= 'a' && letter <= 'f') {
        code = code * 16 + static_cast<uint64_t>(letter - 'a' + 10);
      } else {
        fail_at(line(), "a string has a truncated \\x, \\u or \\U escape");
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      fail_at(line(), "a string escape names U+{:04X}, which is no character", code);
    }
    append_code_point(out, static_cast<char32_t>(code));
    return k;
  }

  void op(std::vector<char>& open_brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    std::string text(1, source_[position_]);
    for (std::string_view two : kTwo) {
      if (has(position_, two)) text = two;
    }
    if (text.size() == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(text[0]) == std::string_view::npos) {
      size_t next = position_;
      decode_at(source_, next);
      fail_at(line(), "unexpected character '{}'", printable(source_.substr(position_, next - position_)));
    }
    char c = text[0];
    if (c == '(' || c == '[' || c == '{') open_brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) fail_at(line(), "unexpected '{}'", c);
      open_brackets.pop_back();
    }
    add(TokenKind::kOperator, text);
    position_ += text.size();
  }

  std::string source_;
  size_t position_ = 0;
  size_t counted_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    fail("chat template line 1: the template has {} bytes, more than the limit {}", source.size(), kMaxTemplateBytes);
  }
  if (!valid_utf8(source)) {
    size_t end = source.size();  // name the line of the first bad byte
    size_t low = 0;
    for (size_t k = 0; k < source.size(); ++k) {
      if (source[k] != '\n') continue;
      if (!valid_utf8(source.substr(low, k - low))) {
        end = k;
        break;
      }
      low = k + 1;
    }
    auto line = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    fail("chat template line {}: the text is not valid UTF-8", line);
  }
  return Lexer(source).run();
}

}  // namespace pop::jinja
