#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/parser.h"

namespace pop::jinja {

const Token& ExpressionParser::advance() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  advance();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op).c_str());
}

std::string ExpressionParser::expect_name(const char* what) {
  if (now().kind != TokenKind::kName) unexpected(what);
  return advance().value;
}

void ExpressionParser::unexpected(const char* wanted) const {
  const Token& token = now();
  switch (token.kind) {
    case TokenKind::kEnd: fail_at(token.line, "expected {}, found the end of the template", wanted);
    case TokenKind::kVariableEnd: fail_at(token.line, "expected {}, found '}}}}'", wanted);
    case TokenKind::kBlockEnd: fail_at(token.line, "expected {}, found '%}}'", wanted);
    case TokenKind::kString: fail_at(token.line, "expected {}, found a string", wanted);
    default: fail_at(token.line, "expected {}, found '{}'", wanted, printable(token.value));
  }
}

ExprPtr ExpressionParser::make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExprPtr ExpressionParser::finish(ExprPtr node) const {
  int height = node->target ? node->target->height : 0;
  for (const ExprPtr& arg : node->args) height = std::max(height, arg ? arg->height : 0);
  for (const auto& [name, arg] : node->kwargs) height = std::max(height, arg->height);
  if (node->star_args) height = std::max(height, node->star_args->height);
  if (node->star_kwargs) height = std::max(height, node->star_kwargs->height);
  node->height = height + 1;
  if (node->height > kMaxExprHeight) fail_at(node->line, "an expression is nested too deeply");
  return node;
}

ExprPtr ExpressionParser::expression(bool conditional) {
  Nest nest(depth_, kMaxParseDepth, now().line);
  return conditional ? conditional_expression() : either();
}

ExprPtr ExpressionParser::conditional_expression() {
  int line = now().line;
  ExprPtr node = either();
  while (skip_name("if")) {
    ExprPtr conditional = make(ExprKind::kConditional, line);
    conditional->args.push_back(std::move(node));
    conditional->args.push_back(either());
    conditional->args.push_back(skip_name("else") ? expression() : nullptr);
    node = finish(std::move(conditional));
  }
  return node;
}

ExprPtr ExpressionParser::binary(std::string op, ExprPtr left, ExprPtr right) const {
  ExprPtr node = make(ExprKind::kBinary, left->line);
  node->name = std::move(op);
  node->args.push_back(std::move(left));
  node->args.push_back(std::move(right));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::either() {
  ExprPtr left = both();
  if (!at_name("or")) return left;
  ExprPtr node = make(ExprKind::kOr, left->line);
  node->args.push_back(std::move(left));
  while (skip_name("or")) node->args.push_back(both());
  return finish(std::move(node));
}

ExprPtr ExpressionParser::both() {
  ExprPtr left = negation();
  if (!at_name("and")) return left;
  ExprPtr node = make(ExprKind::kAnd, left->line);
  node->args.push_back(std::move(left));
  while (skip_name("and")) node->args.push_back(negation());
  return finish(std::move(node));
}

ExprPtr ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  Nest nest(depth_, kMaxParseDepth, now().line);
  ExprPtr node = make(ExprKind::kNot, advance().line);
  node->target = negation();
  return finish(std::move(node));
}

ExprPtr ExpressionParser::comparison() {
  static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  ExprPtr left = sum();
  ExprPtr node = make(ExprKind::kCompare, left->line);
  node->args.push_back(std::move(left));
  while (true) {
    if (now().kind == TokenKind::kOperator &&
        std::find(std::begin(kOps), std::end(kOps), now().value) != std::end(kOps)) {
      node->names.push_back(advance().value);
    } else if (skip_name("in")) {
      node->names.push_back("in");
    } else if (at_name("not") && ahead().kind == TokenKind::kName && ahead().value == "in") {
      advance();
      advance();
      node->names.push_back("not in");
    } else {
      break;
    }
    node->args.push_back(sum());
  }
  return node->names.empty() ? std::move(node->args[0]) : finish(std::move(node));
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concat();
  while (at_op("+") || at_op("-")) {
    std::string op = advance().value;
    left = binary(op, std::move(left), concat());
  }
  return left;
}

ExprPtr ExpressionParser::concat() {
  ExprPtr left = product();
  if (!at_op("~")) return left;
  ExprPtr node = make(ExprKind::kConcat, left->line);
  node->args.push_back(std::move(left));
  while (skip_op("~")) node->args.push_back(product());
  return finish(std::move(node));
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = power();
  while (at_op("*") || at_op("/") || at_op("//") || at_op("%")) {
    std::string op = advance().value;
    left = binary(op, std::move(left), power());
  }
  return left;
}

ExprPtr ExpressionParser::power() {  // left to right, and below the sign, unlike Python
  ExprPtr left = unary(true);
  while (skip_op("**")) left = binary("**", std::move(left), unary(true));
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  Nest nest(depth_, kMaxParseDepth, now().line);
  ExprPtr node;
  if (at_op("-") || at_op("+")) {
    ExprKind kind = at_op("-") ? ExprKind::kNegate : ExprKind::kPlus;
    node = make(kind, advance().line);
    node->target = unary(false);
    node = finish(std::move(node));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters(std::move(node), false) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = now();
  if (token.kind == TokenKind::kName) return name_or_constant();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return number();
  if (token.kind == TokenKind::kString) {
    ExprPtr node = make(ExprKind::kConst, token.line);
    std::string text;
    while (now().kind == TokenKind::kString) text += advance().value;
    node->value = Value::constant(std::move(text));
    return node;
  }
  if (skip_op("(")) {
    ExprPtr node = tuple(true, true);
    expect_op(")");
    return node;
  }
  if (at_op("[")) return list();
  if (at_op("{")) return dict();
  unexpected("an expression");
}

ExprPtr ExpressionParser::name_or_constant() {
  const Token& token = advance();
  const std::string& name = token.value;
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->value = Value::of(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->value = Value::none();
  } else {
    if (name == "self" || name == "super") fail_at(token.line, "'{}' is not supported", name);
    node->kind = ExprKind::kName;
    node->name = name;
    for (Macro* macro : macros_) {
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
      macro->uses_caller |= name == "caller";
    }
  }
  return node;
}

ExprPtr ExpressionParser::number() {
  const Token& token = advance();
  const std::string& text = token.value;
  ExprPtr node = make(ExprKind::kConst, token.line);
  if (token.kind == TokenKind::kFloat) {
    double real = 0;
    auto result = std::from_chars(text.data(), text.data() + text.size(), real);
    if (result.ec == std::errc::result_out_of_range)
      fail_at(token.line, "the number {} is out of range", printable(text));
    node->value = Value::of(real);
    return node;
  }
  int base = 10;
  size_t start = 0;
  if (text.size() > 2 && text[0] == '0') {
    char mark = static_cast<char>(text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    start = base == 10 ? 0 : 2;
  }
  int64_t integer = 0;
  auto result = std::from_chars(text.data() + start, text.data() + text.size(), integer, base);
  if (result.ec != std::errc()) fail_at(token.line, "the integer {} is out of range", printable(text));
  node->value = Value::of(integer);
  return node;
}

ExprPtr ExpressionParser::list() {
  ExprPtr node = make(ExprKind::kList, advance().line);
  while (!at_op("]")) {
    if (!node->args.empty()) expect_op(",");
    if (at_op("]")) break;
    node->args.push_back(expression());
  }
  expect_op("]");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::dict() {
  ExprPtr node = make(ExprKind::kDict, advance().line);
  while (!at_op("}")) {
    if (!node->args.empty()) expect_op(",");
    if (at_op("}")) break;
    node->args.push_back(expression());
    expect_op(":");
    node->args.push_back(expression());
  }
  expect_op("}");
  return finish(std::move(node));
}

bool ExpressionParser::at_tuple_end(std::string_view until) const {
  return now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd || at_op(")") ||
         (!until.empty() && at_name(until));
}

ExprPtr ExpressionParser::tuple(bool conditional, bool in_brackets, std::string_view until) {
  int line = now().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_op(",");
    if (at_tuple_end(until)) break;
    items.push_back(expression(conditional));
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_brackets) unexpected("an expression");
  }
  ExprPtr node = make(ExprKind::kTuple, line);
  node->args = std::move(items);
  return finish(std::move(node));
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  while (true) {
    if (at_op(".") || at_op("[")) {
      node = subscript(std::move(node));
    } else if (at_op("(")) {
      ExprPtr call = make(ExprKind::kCall, now().line);
      call->target = std::move(node);
      call_arguments(*call);
      node = finish(std::move(call));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr target) {
  int line = now().line;
  if (skip_op(".")) {
    if (now().kind == TokenKind::kName) {
      ExprPtr node = make(ExprKind::kAttribute, line);
      node->name = advance().value;
      node->target = std::move(target);
      return finish(std::move(node));
    }
    if (now().kind != TokenKind::kInteger) unexpected("a name or number behind '.'");
    ExprPtr node = make(ExprKind::kItem, line);
    node->args.push_back(number());
    node->target = std::move(target);
    return finish(std::move(node));
  }
  advance();
  ExprPtr index = slice_or_index(target);
  if (!at_op(",")) {
    expect_op("]");
    if (!target) return index;  // a slice, which took the target
    ExprPtr node = make(ExprKind::kItem, line);
    node->target = std::move(target);
    node->args.push_back(std::move(index));
    return finish(std::move(node));
  }
  if (!target) fail_at(line, "slices in a tuple are not supported");
  ExprPtr key = make(ExprKind::kTuple, line);
  key->args.push_back(std::move(index));
  while (skip_op(",")) key->args.push_back(expression());
  expect_op("]");
  ExprPtr node = make(ExprKind::kItem, line);
  node->target = std::move(target);
  node->args.push_back(finish(std::move(key)));
  return finish(std::move(node));
}

// An index, or a whole slice expression that takes `target` into itself.
ExprPtr ExpressionParser::slice_or_index(ExprPtr& target) {
  int line = now().line;
  ExprPtr first = at_op(":") ? nullptr : expression();
  if (!at_op(":")) return first;
  advance();
  auto at_part = [&] { return !at_op(":") && !at_op("]") && !at_op(","); };
  ExprPtr second = at_part() ? expression() : nullptr;
  ExprPtr third = skip_op(":") && at_part() ? expression() : nullptr;
  ExprPtr node = make(ExprKind::kSlice, line);
  node->target = std::move(target);
  node->args.push_back(std::move(first));
  node->args.push_back(std::move(second));
  node->args.push_back(std::move(third));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::filters(ExprPtr node, bool first_without_bar) {
  while (true) {
    if (at_op("|") || first_without_bar) {
      if (!first_without_bar) advance();
      first_without_bar = false;
      ExprPtr filter = make(ExprKind::kFilter, now().line);
      filter->name = expect_name("a filter name");
      while (skip_op(".")) filter->name.append(1, '.').append(expect_name("a filter name"));
      filter->target = std::move(node);
      if (at_op("(")) call_arguments(*filter);
      node = finish(std::move(filter));
    } else if (at_name("is")) {
      node = test(std::move(node));
    } else if (at_op("(")) {
      ExprPtr call = make(ExprKind::kCall, now().line);
      call->target = std::move(node);
      call_arguments(*call);
      node = finish(std::move(call));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::test(ExprPtr target) {
  int line = advance().line;
  bool negated = skip_name("not");
  ExprPtr node = make(ExprKind::kTest, line);
  node->name = expect_name("a test name");
  while (skip_op(".")) node->name.append(1, '.').append(expect_name("a test name"));
  node->target = std::move(target);
  bool is_name = now().kind == TokenKind::kName && !at_name("else") && !at_name("or") && !at_name("and");
  bool is_value = now().kind == TokenKind::kString || now().kind == TokenKind::kInteger ||
                  now().kind == TokenKind::kFloat || at_op("[") || at_op("{");
  if (at_op("(")) {
    call_arguments(*node);
  } else if (is_name || is_value) {
    if (at_name("is")) fail_at(now().line, "tests cannot be chained with 'is'");
    Nest nest(depth_, kMaxParseDepth, now().line);
    node->args.push_back(postfix(primary()));
  }
  node = finish(std::move(node));
  if (!negated) return node;
  ExprPtr opposite = make(ExprKind::kNot, line);
  opposite->target = std::move(node);
  return finish(std::move(opposite));
}

void ExpressionParser::call_arguments(Expr& call) {
  expect_op("(");
  bool first = true;
  while (!at_op(")")) {
    if (!first) expect_op(",");
    first = false;
    if (at_op(")")) break;
    call_argument(call);
  }
  expect_op(")");
}

void ExpressionParser::call_argument(Expr& call) {
  int line = now().line;
  bool is_keyword = now().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().value == "=";
  if (skip_op("*")) {
    if (call.star_args || call.star_kwargs) fail_at(line, "invalid order of call arguments");
    call.star_args = expression();
  } else if (skip_op("**")) {
    if (call.star_kwargs) fail_at(line, "invalid order of call arguments");
    call.star_kwargs = expression();
  } else if (is_keyword) {
    if (call.star_kwargs) fail_at(line, "invalid order of call arguments");
    std::string name = advance().value;
    advance();
    for (const auto& [other, value] : call.kwargs) {
      if (other == name) fail_at(line, "keyword argument '{}' is given twice", name);
    }
    call.kwargs.emplace_back(std::move(name), expression());
  } else {
    if (call.star_args || call.star_kwargs || !call.kwargs.empty()) fail_at(line, "invalid order of call arguments");
    call.args.push_back(expression());
  }
}

}  // namespace pop::jinja
