#include "text/jinja/filters.h"
#include "text/jinja/parser.h"

namespace pop::jinja {
namespace {

using NodePtr = std::unique_ptr<Node>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  std::shared_ptr<const Template> run() {
    auto result = std::make_shared<Template>();
    result->body = body_until({});
    return result;
  }

 private:
  NodePtr node(NodeKind kind, int line) const {
    auto result = std::make_unique<Node>();
    result->kind = kind;
    result->line = line;
    return result;
  }

  bool at_end_tag(const std::vector<std::string_view>& ends) const {
    for (std::string_view end : ends) {
      if (at_name(end)) return true;
    }
    return false;
  }

  // Everything up to a tag that begins with one of `ends`, whose name is the current token afterwards.
  Body body_until(const std::vector<std::string_view>& ends) {
    Nest nest(depth_, kMaxParseDepth, now().line);
    Body body;
    while (true) {
      const Token& token = now();
      if (token.kind == TokenKind::kEnd) {
        if (ends.empty()) return body;
        fail_at(token.line, "the template ends before '{}'", ends.back());
      }
      advance();
      if (token.kind == TokenKind::kText) {
        body.push_back(node(NodeKind::kText, token.line));
        body.back()->text = token.value;
      } else if (token.kind == TokenKind::kVariableBegin) {
        body.push_back(node(NodeKind::kPrint, token.line));
        body.back()->expr = tuple(true, false);
        if (now().kind != TokenKind::kVariableEnd) unexpected("'}}'");
        advance();
      } else {
        if (at_end_tag(ends)) return body;
        statement(body, token.line);
        block_end();
      }
    }
  }

  void block_end() {
    if (now().kind != TokenKind::kBlockEnd) unexpected("'%}'");
    advance();
  }

  // "%} ... {% endNAME"
  Body block(std::string_view end) {
    if (at_op(":")) advance();  // a colon behind a statement, as in Python, is allowed
    block_end();
    Body body = body_until({end});
    advance();
    return body;
  }

  void statement(Body& out, int line) {
    if (now().kind != TokenKind::kName) unexpected("a tag name");
    std::string tag = advance().value;
    if (tag == "if") {
      out.push_back(if_statement(line));
    } else if (tag == "for") {
      out.push_back(for_statement(line));
    } else if (tag == "set") {
      out.push_back(set_statement(line));
    } else if (tag == "macro") {
      out.push_back(macro_statement(line));
    } else if (tag == "call") {
      out.push_back(call_statement(line));
    } else if (tag == "filter") {
      out.push_back(node(NodeKind::kFilter, line));
      out.back()->expr = filters(make(ExprKind::kBody, line), true);
      out.back()->body = block("endfilter");
    } else if (tag == "with") {
      out.push_back(with_statement(line));
    } else if (tag == "generation") {
      out.push_back(node(NodeKind::kScope, line));
      out.back()->body = closed_block("endgeneration");
    } else if (tag == "print") {
      print_statement(out, line);
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(line, "'{}' outside a loop", tag);
      out.push_back(node(tag == "break" ? NodeKind::kBreak : NodeKind::kContinue, line));
    } else {
      fail_at(line, "unknown or unsupported tag '{}'", printable(tag));
    }
  }

  void print_statement(Body& out, int line) {
    bool first = true;
    while (now().kind != TokenKind::kBlockEnd) {
      if (!first) expect_op(",");
      first = false;
      out.push_back(node(NodeKind::kPrint, line));
      out.back()->expr = expression();
    }
  }

  // A block whose break and continue cannot reach a loop around it.
  Body closed_block(std::string_view end) {
    int loops = std::exchange(loops_, 0);
    Body body = block(end);
    loops_ = loops;
    return body;
  }

  NodePtr if_statement(int line) {
    NodePtr result = node(NodeKind::kIf, line);
    while (true) {
      ExprPtr condition = tuple(false, false);
      if (at_op(":")) advance();
      block_end();
      Body body = body_until({"elif", "else", "endif"});
      result->branches.emplace_back(std::move(condition), std::move(body));
      std::string tag = advance().value;
      if (tag == "elif") continue;
      if (tag == "else") result->else_body = block("endif");
      return result;
    }
  }

  NodePtr for_statement(int line) {
    NodePtr result = node(NodeKind::kFor, line);
    result->target = assign_target("in");
    forbid_loop_target(*result->target);
    if (!skip_name("in")) unexpected("'in'");
    result->expr = tuple(false, false, "recursive");
    if (skip_name("if")) result->test = expression();
    if (at_name("recursive")) fail_at(line, "recursive loops are not supported");
    if (at_op(":")) advance();
    block_end();
    ++loops_;
    result->body = body_until({"endfor", "else"});
    --loops_;
    if (advance().value == "else") result->else_body = block("endfor");
    return result;
  }

  void forbid_loop_target(const Expr& target) {
    if (target.kind == ExprKind::kName && target.name == "loop") {
      fail_at(target.line, "cannot assign to the special variable 'loop'");
    }
    for (const ExprPtr& part : target.args) forbid_loop_target(*part);
  }

  NodePtr set_statement(int line) {
    NodePtr result = node(NodeKind::kSet, line);
    result->target = assign_target("=", true);
    if (skip_op("=")) {
      result->expr = tuple(true, false);
      return result;
    }
    result->kind = NodeKind::kSetBlock;
    ExprPtr body = filters(make(ExprKind::kBody, line), false);
    if (body->kind != ExprKind::kBody) result->expr = std::move(body);
    result->body = block("endset");
    return result;
  }

  NodePtr with_statement(int line) {
    NodePtr result = node(NodeKind::kWith, line);
    while (now().kind != TokenKind::kBlockEnd) {
      if (!result->bindings.empty()) expect_op(",");
      ExprPtr target = assign_part(false);
      expect_op("=");
      result->bindings.emplace_back(std::move(target), expression());
    }
    result->body = block("endwith");
    return result;
  }

  NodePtr macro_statement(int line) {
    NodePtr result = node(NodeKind::kMacro, line);
    result->macro = std::make_unique<Macro>();
    result->macro->name = expect_name("a macro name");
    macro_rest(*result->macro, "endmacro", true);
    return result;
  }

  NodePtr call_statement(int line) {
    NodePtr result = node(NodeKind::kCall, line);
    result->macro = std::make_unique<Macro>();
    result->macro->name = "caller";
    if (at_op("(")) signature(*result->macro);
    result->expr = expression();
    if (result->expr->kind != ExprKind::kCall) fail_at(line, "expected a call in the call block");
    macro_rest(*result->macro, "endcall", false);
    return result;
  }

  void macro_rest(Macro& macro, std::string_view end, bool with_signature) {
    macros_.push_back(&macro);
    if (with_signature) signature(macro);
    macro.body = closed_block(end);
    macros_.pop_back();
  }

  void signature(Macro& macro) {
    expect_op("(");
    while (!at_op(")")) {
      if (!macro.parameters.empty()) expect_op(",");
      int line = now().line;
      std::string name = expect_name("a parameter name");
      forbid_constant(name, line);
      for (const std::string& other : macro.parameters) {
        if (other == name) fail_at(line, "parameter '{}' is given twice", name);
      }
      if (name == "caller" || name == "varargs" || name == "kwargs") {
        fail_at(line, "a parameter named '{}' is not supported", name);
      }
      macro.parameters.push_back(std::move(name));
      if (skip_op("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_at(line, "a parameter without default follows one with");
      }
    }
    expect_op(")");
  }

  void forbid_constant(const std::string& name, int line) {
    for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail_at(line, "cannot assign to '{}'", name);
    }
  }

  // One name, ns.field, or a bracketed tuple of targets.
  ExprPtr assign_part(bool with_namespace) {
    Nest nest(depth_, kMaxParseDepth, now().line);
    int line = now().line;
    if (skip_op("(")) {
      ExprPtr inside = assign_target(")", false);
      expect_op(")");
      return inside;
    }
    ExprPtr part = make(ExprKind::kName, line);
    part->name = expect_name("a name to assign to");
    forbid_constant(part->name, line);
    if (part->name == "self" || part->name == "super") fail_at(line, "'{}' is not supported", part->name);
    if (with_namespace && skip_op(".")) {
      part->kind = ExprKind::kNamespaceField;
      part->names.push_back(expect_name("a field name"));
    }
    return part;
  }

  ExprPtr assign_target(std::string_view end, bool with_namespace = false) {
    int line = now().line;
    ExprPtr first = assign_part(with_namespace);
    if (!at_op(",")) return first;
    ExprPtr parts = make(ExprKind::kTuple, line);
    parts->args.push_back(std::move(first));
    while (skip_op(",")) {
      if (at_op(end) || at_name(end)) break;
      parts->args.push_back(assign_part(with_namespace));
    }
    return finish(std::move(parts));
  }

  int loops_ = 0;  // around this place, within one macro
};

// Unknown filters and tests are errors at once, except where Jinja waits until they are reached: in {% if %} and in
// conditional expressions, but no longer in the scopes opened inside them.
void check_expr(const Expr* node, bool lenient) {
  if (!node) return;
  if (node->kind == ExprKind::kConditional) lenient = true;
  if (!lenient && node->kind == ExprKind::kFilter && !find_filter(node->name)) {
    fail_at(node->line, "unknown or unsupported filter '{}'", printable(node->name));
  }
  if (!lenient && node->kind == ExprKind::kTest && !find_test(node->name)) {
    fail_at(node->line, "unknown or unsupported test '{}'", printable(node->name));
  }
  check_expr(node->target.get(), lenient);
  for (const ExprPtr& arg : node->args) check_expr(arg.get(), lenient);
  for (const auto& [name, arg] : node->kwargs) check_expr(arg.get(), lenient);
  check_expr(node->star_args.get(), lenient);
  check_expr(node->star_kwargs.get(), lenient);
}

void check_body(const Body& body, bool lenient) {
  for (const NodePtr& node : body) {
    bool is_if = node->kind == NodeKind::kIf;
    bool opens_scope = node->kind != NodeKind::kIf;
    bool filters_own_body = node->kind == NodeKind::kFilter || node->kind == NodeKind::kSetBlock;
    check_expr(node->expr.get(), lenient && !filters_own_body);
    check_expr(node->test.get(), false);
    for (const auto& [condition, branch] : node->branches) {
      check_expr(condition.get(), true);
      check_body(branch, true);
    }
    for (const auto& [target, value] : node->bindings) check_expr(value.get(), lenient);
    check_body(node->body, lenient && !opens_scope);
    check_body(node->else_body, is_if);
    if (!node->macro) continue;
    for (const ExprPtr& value : node->macro->defaults) check_expr(value.get(), false);
    check_body(node->macro->body, false);
  }
}

}  // namespace

std::shared_ptr<const Template> parse_template(std::string_view source) {
  std::shared_ptr<const Template> result = Parser(tokenize(source)).run();
  check_body(result->body, false);
  return result;
}

}  // namespace pop::jinja
