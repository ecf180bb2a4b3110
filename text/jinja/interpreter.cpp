#include "text/jinja/interpreter.h"

#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

// Puts a value back however the block is left.
template <class T>
class Saved {
 public:
  explicit Saved(T& place) : place_(place), old_(place) {}
  ~Saved() { place_ = std::move(old_); }
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

 private:
  T& place_;
  T old_;
};

}  // namespace

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : kept_scopes_) scope->variables.clear();
  for (const auto& space : namespaces_) space->entries.clear();
}

std::string Interpreter::run(const Template& program, const nlohmann::ordered_json& context) {
  if (!context.is_object())
    fail("chat template line 1: expected an object of variables, found {}", context.type_name());
  try {
    auto outer = std::make_shared<Scope>();
    for (const auto& [key, value] : context.items()) outer->variables[key] = from_json(value, 0);
    scope_ = std::make_shared<Scope>();
    scope_->parent = std::move(outer);
    execute(program.body);
  } catch (const Error& e) {
    fail("chat template line {}: {}", line_, e.what());
  }
  return std::move(out_);
}

Value Interpreter::from_json(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth) fail("the variables nest too deeply (limit {})", kMaxValueDepth);
  auto text = [&](const std::string& s) {
    if (!valid_utf8(s)) fail("a variable holds text that is not valid UTF-8: {}", printable(s));
    return heap_.string(s);
  };
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::null: return Value::none();
    case Type::boolean: return Value::of(json.get<bool>());
    case Type::number_integer: return Value::of(json.get<int64_t>());
    case Type::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX}) fail("an integer among the variables is out of range (64 bits)");
      return Value::of(json.get<int64_t>());
    case Type::number_float: return Value::of(json.get<double>());
    case Type::string: return text(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return heap_.list(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, value] : json.items()) entries.emplace_back(text(key), from_json(value, depth + 1));
      return heap_.dict(std::move(entries));
    }
    default: fail("a variable holds binary data");
  }
}

void Interpreter::emit(std::string_view text) {
  heap_.take(text.size());
  heap_.step(text.size() / 16);
  out_ += text;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  DepthGuard guard(depth_);
  for (const auto& node : body) {
    heap_.step();
    line_ = node->line;
    if (Flow flow = execute(*node); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Node& node) {
  Flow flow = Flow::kNormal;
  switch (node.kind) {
    case NodeKind::kText: emit(node.text); break;
    case NodeKind::kPrint: emit(str(heap_, evaluate(*node.expr))); break;
    case NodeKind::kIf: return if_statement(node);
    case NodeKind::kFor: return for_statement(node);
    case NodeKind::kSet: assign(*node.target, evaluate(*node.expr)); break;
    case NodeKind::kSetBlock: block_set(node); break;
    case NodeKind::kMacro: {
      Value macro = Value::of(Kind::kCallable);
      macro.ref = std::make_shared<MacroObject>(&heap_, *node.macro, keep_scope());
      scope_->variables[node.macro->name] = std::move(macro);
      break;
    }
    case NodeKind::kCall: call_block(node); break;
    case NodeKind::kFilter: filter_block(node); break;
    case NodeKind::kWith: with_statement(node, flow); break;
    case NodeKind::kScope: flow = scoped(node.body); break;
    case NodeKind::kBreak: return Flow::kBreak;
    case NodeKind::kContinue: return Flow::kContinue;
  }
  return flow;
}

Interpreter::Flow Interpreter::if_statement(const Node& node) {
  for (const auto& [condition, body] : node.branches) {
    if (truth(evaluate(*condition))) return execute(body);
  }
  return execute(node.else_body);
}

std::vector<Value> Interpreter::loop_items(const Node& node) {
  std::vector<Value> items = iterate(heap_, evaluate(*node.expr));
  if (!node.test) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    auto inner = std::make_shared<Scope>();
    inner->parent = scope_;
    Saved<ScopePtr> outer(scope_);
    scope_ = std::move(inner);
    assign(*node.target, item);
    if (truth(evaluate(*node.test))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::for_statement(const Node& node) {
  Value loop_value = Value::of(Kind::kLoop);
  {
    std::vector<Value> items = loop_items(node);
    int height = 0;
    for (const Value& item : items) height = std::max(height, item.ref ? item.ref->depth : 0);
    loop_value.ref = std::make_shared<LoopObject>(&heap_, std::move(items), height + 1);
  }
  auto& loop = static_cast<LoopObject&>(*loop_value.ref);
  struct Finish {  // what loop.changed() keeps could otherwise hold the loop itself
    LoopObject& loop;
    ~Finish() {
      loop.finished = true;
      loop.changed.clear();
    }
  } finish{loop};
  bool completed = false;  // one round at least ran to its end: only then Jinja skips the else part
  {
    Saved<ScopePtr> saved(scope_);
    ScopePtr outer = scope_;
    for (loop.index = 0; loop.index < loop.items.size(); ++loop.index) {
      heap_.step();
      scope_ = std::make_shared<Scope>();
      scope_->parent = outer;
      scope_->variables["loop"] = loop_value;
      assign(*node.target, loop.items[loop.index]);
      Flow flow = execute(node.body);
      completed |= flow == Flow::kNormal;
      if (flow == Flow::kBreak) break;
    }
  }
  return completed || node.else_body.empty() ? Flow::kNormal : scoped(node.else_body);
}

Interpreter::Flow Interpreter::scoped(const Body& body) {
  Saved<ScopePtr> saved(scope_);
  auto inner = std::make_shared<Scope>();
  inner->parent = scope_;
  scope_ = std::move(inner);
  return execute(body);
}

void Interpreter::with_statement(const Node& node, Flow& flow) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.bindings) values.push_back(evaluate(*value));
  Saved<ScopePtr> saved(scope_);
  auto inner = std::make_shared<Scope>();
  inner->parent = scope_;
  scope_ = std::move(inner);
  for (size_t k = 0; k < values.size(); ++k) assign(*node.bindings[k].first, std::move(values[k]));
  flow = execute(node.body);
}

// The text a body writes, kept from the output.
std::string Interpreter::captured(const Body& body, Flow* flow) {
  std::string outer = std::exchange(out_, {});
  Flow result = scoped(body);
  if (flow) *flow = result;
  heap_.give(out_.size());
  return std::exchange(out_, std::move(outer));
}

void Interpreter::block_set(const Node& node) {
  Flow flow = Flow::kNormal;
  Value text = heap_.string(captured(node.body, &flow));
  if (flow != Flow::kNormal) fail("break and continue inside a set block are not supported");
  Saved<const Value*> saved(body_);
  body_ = &text;
  assign(*node.target, node.expr ? evaluate(*node.expr) : text);
}

void Interpreter::filter_block(const Node& node) {
  Flow flow = Flow::kNormal;
  Value text = heap_.string(captured(node.body, &flow));
  if (flow != Flow::kNormal) fail("break and continue inside a filter block are not supported");
  Saved<const Value*> saved(body_);
  body_ = &text;
  emit(str(heap_, evaluate(*node.expr)));
}

void Interpreter::call_block(const Node& node) {
  Value caller = Value::of(Kind::kCallable);
  caller.ref = std::make_shared<MacroObject>(&heap_, *node.macro, keep_scope());
  Value callee = evaluate(*node.expr->target);
  Args args = arguments(*node.expr);
  for (const auto& [name, value] : args.named) {
    if (name == "caller") fail("the call block and its call both give 'caller'");
  }
  args.named.emplace_back("caller", std::move(caller));
  line_ = node.line;
  emit(str(heap_, call(callee, std::move(args))));
}

const Interpreter::ScopePtr& Interpreter::keep_scope() {
  if (kept_scopes_.empty() || kept_scopes_.back() != scope_) {
    heap_.take(256);  // never given back: the scope stays
    kept_scopes_.push_back(scope_);
  }
  return scope_;
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) {
    scope_->variables[target.name] = std::move(value);
    return;
  }
  if (target.kind == ExprKind::kNamespaceField) return assign_field(target, std::move(value));
  const std::vector<Value> parts = iterate(heap_, value);
  if (parts.size() != target.args.size()) {
    fail("cannot unpack {} values into {} names", parts.size(), target.args.size());
  }
  for (size_t k = 0; k < parts.size(); ++k) assign(*target.args[k], parts[k]);
}

void Interpreter::assign_field(const Expr& target, Value value) {
  Value space = name(target);
  if (!space.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
  auto& entries = static_cast<NamespaceObject&>(*space.ref).entries;
  for (auto& [key, old] : entries) {
    if (key.text() == target.names[0]) {
      old = std::move(value);
      return;
    }
  }
  heap_.take(2 * sizeof(Value));
  entries.emplace_back(heap_.string(target.names[0]), std::move(value));
}

}  // namespace pop::jinja
