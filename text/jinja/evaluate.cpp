// Expressions.
#include "text/jinja/interpreter.h"

namespace pop::jinja {
Value Interpreter::evaluate(const Expr& e) {
  if (e.kind == ExprKind::kConst) return e.value;
  DepthGuard guard(depth_);
  heap_.step();
  line_ = e.line;
  return compute(e);
}

Value Interpreter::compute(const Expr& e) {
  auto part = [&](size_t k) { return e.args[k] ? evaluate(*e.args[k]) : Value::none(); };
  switch (e.kind) {
    case ExprKind::kConst: return e.value;
    case ExprKind::kName: return name(e);
    case ExprKind::kList: return heap_.list(evaluate_all(e.args));
    case ExprKind::kTuple: return heap_.tuple(evaluate_all(e.args));
    case ExprKind::kDict: return dict_literal(e);
    case ExprKind::kAttribute: return attribute(evaluate(*e.target), e.name);
    case ExprKind::kItem: {
      Value object = evaluate(*e.target), key = part(0);
      line_ = e.line;
      return object.is(Kind::kLoop) && key.is_string() ? attribute(object, key.text()) : get_item(heap_, object, key);
    }
    case ExprKind::kSlice: {
      Value object = evaluate(*e.target), start = part(0), stop = part(1), step = part(2);
      return slice(heap_, object, start, stop, step);
    }
    case ExprKind::kCall: {
      Value callee = evaluate(*e.target);
      Args args = arguments(e);
      line_ = e.line;
      return call(callee, std::move(args));
    }
    case ExprKind::kFilter: {
      Value input = evaluate(*e.target);
      Args args = arguments(e);
      line_ = e.line;
      return apply_filter(heap_, e.name, input, args);
    }
    case ExprKind::kTest: {
      Value input = evaluate(*e.target);
      Args args = arguments(e);
      line_ = e.line;
      return Value::of(apply_test(heap_, e.name, input, args));
    }
    case ExprKind::kBody: return *body_;
    case ExprKind::kNot: return Value::of(!truth(evaluate(*e.target)));
    case ExprKind::kNegate: return negate(evaluate(*e.target));
    case ExprKind::kPlus: return plus(evaluate(*e.target));
    case ExprKind::kBinary: {
      Value a = part(0), b = part(1);
      line_ = e.line;
      return binary_operator(heap_, e.name, a, b);
    }
    case ExprKind::kCompare: return compare_chain(e);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value v = part(0);
      for (size_t k = 1; k < e.args.size() && truth(v) == (e.kind == ExprKind::kAnd); ++k) v = part(k);
      return v;
    }
    case ExprKind::kConcat: return concat(e);
    case ExprKind::kConditional:
      if (truth(part(1))) return part(0);
      if (e.args[2]) return part(2);
      return heap_.undefined("the inline if-expression evaluated to false and no else section was defined");
    case ExprKind::kNamespaceField: break;
  }
  fail("not an expression");
}

Value Interpreter::name(const Expr& e) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    auto it = scope->variables.find(e.name);
    if (it != scope->variables.end()) return it->second;
  }
  if (is_global(e.name)) return global(e.name);
  return heap_.undefined(fmt::format("'{}' is undefined", e.name));
}

Value Interpreter::compare_chain(const Expr& e) {
  Value left = evaluate(*e.args[0]);
  for (size_t k = 0; k < e.names.size(); ++k) {
    Value right = evaluate(*e.args[k + 1]);
    line_ = e.line;
    if (!compare(heap_, e.names[k], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Interpreter::concat(const Expr& e) {
  std::string text;
  for (const ExprPtr& part : e.args) {
    text += str(heap_, evaluate(*part));
    heap_.check_size(text.size());
  }
  return heap_.string(std::move(text));
}

Value Interpreter::dict_literal(const Expr& e) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t k = 0; k < e.args.size(); k += 2) {
    Value key = evaluate(*e.args[k]), value = evaluate(*e.args[k + 1]);
    set_entry(heap_, entries, key, std::move(value));
  }
  return heap_.dict(std::move(entries));
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  return object.is(Kind::kLoop) ? loop_attribute(object, name) : get_attribute(heap_, object, name);
}

Value Interpreter::loop_attribute(const Value& object, std::string_view name) {
  auto helper = [&] {
    Value v = Value::of(Kind::kCallable);
    v.ref = std::make_shared<HelperObject>(&heap_, std::string(name), object);
    return v;
  };
  if (const auto* cycler = dynamic_cast<const CyclerObject*>(object.ref.get())) {
    if (name == "next" || name == "reset") return helper();
    if (name == "current") return cycler->items[cycler->position];
    return heap_.undefined(fmt::format("the cycler has no attribute '{}'", printable(name)));
  }
  const auto& loop = static_cast<const LoopObject&>(*object.ref);
  auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items.size());
  if (loop.finished) fail("using a loop object behind its loop is not supported");
  if (name == "cycle" || name == "changed") return helper();
  if (name == "index") return Value::of(index + 1);
  if (name == "index0") return Value::of(index);
  if (name == "revindex") return Value::of(size - index);
  if (name == "revindex0") return Value::of(size - index - 1);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index + 1 == size);
  if (name == "length") return Value::of(size);
  if (name == "depth") return Value::of(int64_t{1});
  if (name == "depth0") return Value::of(int64_t{0});
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : heap_.undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? loop.items[loop.index + 1] : heap_.undefined("there is no next item");
  return heap_.undefined(fmt::format("the loop has no attribute '{}'", printable(name)));
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExprPtr>& list) {
  std::vector<Value> values;
  values.reserve(list.size());
  for (const ExprPtr& item : list) values.push_back(evaluate(*item));
  return values;
}

Args Interpreter::arguments(const Expr& e) {
  Args args;
  if (e.kind != ExprKind::kCompare) args.positional = evaluate_all(e.args);
  for (const auto& [name, value] : e.kwargs) args.named.emplace_back(name, evaluate(*value));
  if (e.star_args) {
    for (Value& item : iterate(heap_, evaluate(*e.star_args))) args.positional.push_back(std::move(item));
  }
  if (!e.star_kwargs) return args;
  Value more = evaluate(*e.star_kwargs);
  if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping, not {}", type_name(more));
  for (const auto& [key, value] : more.entries()) {
    const std::string& name = plain_text(key, "keywords");
    for (const auto& [other, old] : args.named) {
      if (other == name) fail("got multiple values for keyword argument '{}'", printable(name));
    }
    heap_.step(args.named.size());
    args.named.emplace_back(name, value);
  }
  return args;
}

}  // namespace pop::jinja
