#include "text/known_patterns.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode_classes.h"

namespace pop {
namespace {

struct Class {
  std::string_view name, inside;
};
constexpr Class kClasses[] = {
    {"L", POP_LETTER},        {"N", POP_NUMBER},        {"P", POP_PUNCTUATION},
    {"S", POP_SYMBOL},        {"M", POP_MARK},          {"Lu", POP_LETTER_UPPER},
    {"Ll", POP_LETTER_LOWER}, {"Lt", POP_LETTER_TITLE}, {"Lm", POP_LETTER_MODIFIER},
    {"Lo", POP_LETTER_OTHER},
};

std::string_view class_named(std::string_view name) {
  for (const Class& known : kClasses)
    if (known.name == name) return known.inside;
  fail("pattern: expected a known character class, found \\p{{{}}}", printable(name));
}

}  // namespace

bool is_known_pattern(std::string_view pattern) {
  constexpr std::string_view kKnown[] = {kGpt2Pattern,  kLlama3Pattern,  kQwen2Pattern, kTekkenPattern,
                                         kGpt4oPattern, kDeepseekDigits, kDeepseekCjk,  kDeepseekWords};
  return std::find(std::begin(kKnown), std::end(kKnown), pattern) != std::end(kKnown);
}

std::string pcre_pattern(std::string_view published) {
  std::string out;
  bool in_class = false;
  const auto put_class = [&](std::string_view inside, bool negated) {
    if (!in_class) out += negated ? "[^" : "[";
    out += inside;
    if (!in_class) out += ']';
  };
  for (size_t at = 0; at < published.size(); ++at) {
    const char c = published[at];
    const std::string_view rest = published.substr(at);
    if (rest.starts_with("\\p{")) {
      const size_t close = rest.find('}');
      put_class(class_named(rest.substr(3, close - 3)), false);
      at += close;
    } else if (rest.starts_with("\\s")) {
      put_class(POP_SPACE, false);
      ++at;
    } else if (rest.starts_with("\\S") && !in_class) {
      put_class(POP_SPACE, true);
      ++at;
    } else if (c == '\\') {
      out += rest.substr(0, 2);
      ++at;
    } else {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
    }
  }
  return out;
}

}  // namespace pop
