// The grammar of Jinja2 expressions and statements, by recursive descent with bounded depth.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace pop::jinja {

inline constexpr int kMaxParseDepth = 100;  // nested brackets, operators and blocks
inline constexpr int kMaxExprHeight = 400;  // of one expression tree, long chains of operators included

// Throws Error "chat template line N: ...".
std::shared_ptr<const Template> parse_template(std::string_view source);

// The stream of tokens and the expression half of the grammar.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Token& now() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& advance();
  bool at_op(std::string_view op) const { return now().kind == TokenKind::kOperator && now().value == op; }
  bool at_name(std::string_view name) const { return now().kind == TokenKind::kName && now().value == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name(const char* what);
  [[noreturn]] void unexpected(const char* wanted) const;

  // A tuple without brackets where commas allow it; `in_brackets`: "()" is the empty one. `until`: a name that ends it.
  ExprPtr tuple(bool conditional, bool in_brackets, std::string_view until = {});
  ExprPtr expression(bool conditional = true);
  ExprPtr filters(ExprPtr start, bool first_without_bar);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr node);
  ExprPtr make(ExprKind kind, int line) const;
  ExprPtr finish(ExprPtr node) const;  // computes and checks the height

  std::vector<Macro*> macros_;  // being parsed, outermost first
  int depth_ = 0;

 private:
  ExprPtr conditional_expression();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr name_or_constant();
  ExprPtr number();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr subscript(ExprPtr target);
  ExprPtr slice_or_index(ExprPtr& target);
  ExprPtr test(ExprPtr target);
  void call_arguments(Expr& call);
  void call_argument(Expr& call);
  ExprPtr binary(std::string op, ExprPtr left, ExprPtr right) const;
  bool at_tuple_end(std::string_view until) const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

// Counts nesting while it lives.
class Nest {
 public:
  Nest(int& depth, int limit, int line) : depth_(depth) {
    if (depth >= limit) fail_at(line, "nested too deeply (limit {})", limit);
    ++depth_;
  }
  ~Nest() { --depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  int& depth_;
};

}  // namespace pop::jinja
