// A compiled template: the tree the parser makes and the interpreter walks.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace pop::jinja {

enum class ExprKind : uint8_t {
  kConst,      // value
  kName,       // name
  kList,       // args
  kTuple,      // args
  kDict,       // args: key, value, key, value, ...
  kAttribute,  // target.name
  kItem,       // target[args[0]]
  kSlice,      // target[args[0]:args[1]:args[2]], each may be null
  kCall,       // target(args, kwargs)
  kFilter,     // target|name(args, kwargs)
  kTest,       // target is name(args, kwargs)
  kBody,       // the text of the block a filter is applied to
  kNot,        // not target
  kNegate,     // -target
  kPlus,       // +target
  kBinary,     // args[0] name args[1], name one of + - * / // % **
  kCompare,    // args[0] names[0] args[1] names[1] args[2] ...
  kAnd,
  kOr,              // args[0] .. args[1]
  kConcat,          // args joined by ~
  kConditional,     // args[0] if args[1] else args[2], which may be null
  kNamespaceField,  // name.names[0], only as a target of set
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int height = 1;  // of this tree; bounded, so that walking it is
  Value value;
  std::string name;
  std::vector<std::string> names;
  ExprPtr target;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> kwargs;
  ExprPtr star_args, star_kwargs;
};

enum class NodeKind : uint8_t {
  kText,      // text
  kPrint,     // expr
  kIf,        // branches, else_body
  kFor,       // target in expr if test; body, else_body
  kSet,       // target = expr
  kSetBlock,  // target = body, through the filters of expr when not null
  kMacro,     // macro
  kCall,      // expr is the call, macro the caller
  kFilter,    // body through the filters of expr
  kWith,      // bindings, body
  kScope,     // body ({% generation %})
  kBreak,
  kContinue,
};

struct Node;
using Body = std::vector<std::unique_ptr<Node>>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};

struct Node {
  NodeKind kind = NodeKind::kText;
  int line = 0;
  std::string text;
  ExprPtr target, expr, test;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;
  Body body, else_body;
  std::unique_ptr<Macro> macro;
};

// Immutable after construction: shared by renders in several threads.
class Template {
 public:
  Body body;
};

}  // namespace pop::jinja
