// Runs a compiled template once.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/operators.h"

namespace pop::jinja {

// Bounds the recursion of the interpreter (macros included), whose frames take about 1 KiB each.
inline constexpr int kMaxRunDepth = 1000;

struct Scope {
  std::map<std::string, Value, std::less<>> variables;
  std::shared_ptr<Scope> parent;
};

struct MacroObject : CallableObject {
  MacroObject(Heap* heap, const Macro& definition, std::shared_ptr<Scope> scope)
      : CallableObject(heap, definition.name), macro(definition), closure(std::move(scope)) {}
  const Macro& macro;
  std::shared_ptr<Scope> closure;
};

// The variable `loop` inside {% for %}.
struct LoopObject : Object {
  LoopObject(Heap* heap, std::vector<Value> values, int height)
      : Object(heap, 128 + values.size() * sizeof(Value), height), items(std::move(values)) {}
  std::vector<Value> items, changed;
  size_t index = 0;
  bool has_changed = false, finished = false;
};

struct CyclerObject : Object {
  CyclerObject(Heap* heap, std::vector<Value> values, int height)
      : Object(heap, 128 + values.size() * sizeof(Value), height), items(std::move(values)) {}
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : CallableObject {
  JoinerObject(Heap* heap, Value text) : CallableObject(heap, "joiner"), separator(std::move(text)) {}
  Value separator;
  bool used = false;
};

// loop.cycle, loop.changed, cycler.next, cycler.reset: called on `self`.
struct HelperObject : CallableObject {
  HelperObject(Heap* heap, std::string name, Value receiver)
      : CallableObject(heap, std::move(name)), self(std::move(receiver)) {
    depth = self.ref->depth;
  }
  Value self;
};

// Counts the recursion while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) {
    if (depth >= kMaxRunDepth) fail("macros or expressions nest too deeply (limit {})", kMaxRunDepth);
    ++depth_;
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

class Interpreter {
 public:
  Interpreter(const ChatTemplateLimits& limits, const ChatTime& now) : heap_(limits), now_(now) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws Error "chat template line N: ...".
  std::string run(const Template& program, const nlohmann::ordered_json& context);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  // Statements (jinja_interpreter.cpp)
  Value from_json(const nlohmann::ordered_json& json, int depth);
  Flow execute(const Body& body);
  Flow execute(const Node& node);
  Flow if_statement(const Node& node);
  Flow for_statement(const Node& node);
  Flow scoped(const Body& body);
  void with_statement(const Node& node, Flow& flow);
  void block_set(const Node& node);
  void filter_block(const Node& node);
  void call_block(const Node& node);
  std::vector<Value> loop_items(const Node& node);
  void assign(const Expr& target, Value value);
  void assign_field(const Expr& target, Value value);
  std::string captured(const Body& body, Flow* flow);
  void emit(std::string_view text);
  const ScopePtr& keep_scope();  // the current scope, kept until the end: a macro refers to it

  // Expressions (jinja_evaluate.cpp)
  Value evaluate(const Expr& e);
  Value compute(const Expr& e);
  Value name(const Expr& e);
  Value compare_chain(const Expr& e);
  Value concat(const Expr& e);
  Value dict_literal(const Expr& e);
  Value attribute(const Value& object, std::string_view name);
  Value loop_attribute(const Value& object, std::string_view name);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& list);
  Args arguments(const Expr& e);

  // Calls (jinja_calls.cpp)
  Value call(const Value& callee, Args args);
  Value call_global(const std::string& name, const Args& args);
  Value call_helper(const HelperObject& helper, const Args& args);
  Value call_macro(const MacroObject& object, Args args);
  void bind_macro(const Macro& macro, Args& args);
  Value make_namespace(const Args& args);
  Value make_dict(const Args& args);
  Value make_cycler(const Args& args);
  Value make_range(const Args& args);
  Value global(std::string_view name);

  Heap heap_;  // first: everything below holds values charged to it
  const ChatTime& now_;
  std::string out_;
  ScopePtr scope_;
  std::vector<ScopePtr> kept_scopes_;                         // emptied at the end: macros make cycles
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;  // likewise
  const Value* body_ = nullptr;                               // what ExprKind::kBody stands for
  int depth_ = 0, line_ = 1;
};

bool is_global(std::string_view name);
// strftime in the C locale. Conversions it does not know are errors.
std::string format_time(const ChatTime& time, std::string_view format);

}  // namespace pop::jinja
