// Cuts a template into tokens, with Jinja's whitespace control (trim_blocks and lstrip_blocks on, one trailing newline
// dropped), comments and raw blocks resolved.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pop::jinja {

enum class TokenKind : uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string value;  // kString: without quotes, escapes resolved; numbers: without underscores
  int line = 0;       // 1-based
};

inline constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

template <class... Args>
[[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
  fail("chat template line {}: {}", line, fmt::format(format, std::forward<Args>(args)...));
}

// Ends with one kEnd token. Throws Error "chat template line N: ...".
std::vector<Token> tokenize(std::string_view source);

}  // namespace pop::jinja
