// Python's operators, subscripts, attributes and methods on template values.
#pragma once
#include <string_view>

#include "text/jinja/filters.h"

namespace pop::jinja {

struct CallableObject : Object {
  CallableObject(Heap* heap, std::string function) : Object(heap, 128, 0), name(std::move(function)) {}
  std::string name;
};

// A method taken from a value: self.name, called later.
struct MethodObject : CallableObject {
  MethodObject(Heap* heap, std::string method, Value receiver);
  Value self;
};

struct NamespaceObject : DictObject {
  explicit NamespaceObject(Heap* heap) : DictObject(heap, {}) { depth = 0; }
};

// `op` is one of + - * / // % **. Integer overflow is an error.
Value binary_operator(Heap& heap, std::string_view op, const Value& a, const Value& b);
Value negate(const Value& v);
Value plus(const Value& v);
bool compare(Heap& heap, std::string_view op, const Value& a, const Value& b);  // == != < <= > >= in, not in

Value get_item(Heap& heap, const Value& object, const Value& key);            // object[key], undefined if absent
Value get_attribute(Heap& heap, const Value& object, std::string_view name);  // object.name, undefined if absent
Value slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step);

// Methods of str, list, tuple and dict. `is_method` says whether Python has it and whether it is ours.
enum class Method : uint8_t { kNone, kUnsafe, kUnsupported, kSupported };
Method is_method(const Value& object, std::string_view name);
Value call_method(Heap& heap, const Value& object, std::string_view name, const Args& args);
Value call_text_method(Heap& heap, const Value& object, std::string_view name, const Args& args);

// "..." % value and "...".format(...)
std::string percent_format(Heap& heap, std::string_view format, const Value& values);
std::string brace_format(Heap& heap, std::string_view format, const Args& args);
// One value in a format specification such as ">10" or ".2f".
std::string format_value(Heap& heap, const Value& v, std::string_view spec);

}  // namespace pop::jinja
