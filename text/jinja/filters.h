// The filters and tests of Jinja2 that chat templates use, and the helpers their arguments need.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace pop::jinja {

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments bound to parameter names as Python binds them; too many, unknown or double ones are errors.
class Bound {
 public:
  Bound(std::string_view function, const Args& args, std::initializer_list<const char*> names);
  bool has(size_t k) const { return given_[k]; }
  const Value& operator[](size_t k) const { return values_[k]; }
  bool flag(size_t k, bool otherwise) const { return given_[k] ? truth(values_[k]) : otherwise; }
  int64_t integer(size_t k, int64_t otherwise) const;  // an int, else an error
  const Value& required(size_t k) const;

 private:
  std::string function_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

using Filter = Value (*)(Heap& heap, const Value& input, const Args& args);
using Test = bool (*)(Heap& heap, const Value& input, const Args& args);
struct FilterEntry {
  const char* name;
  Filter function;
};
struct TestEntry {
  const char* name;
  Test function;
};

Filter find_filter(std::string_view name);  // null when unknown
Test find_test(std::string_view name);
// Unknown names are errors.
Value apply_filter(Heap& heap, std::string_view name, const Value& input, const Args& args);
bool apply_test(Heap& heap, std::string_view name, const Value& input, const Args& args);

// The tables, one per source file.
std::vector<FilterEntry> text_filters();
std::vector<FilterEntry> sequence_filters();
std::vector<FilterEntry> selection_filters();

// A string that operators and methods may work on. Strings made by `safe` and `escape` would escape what they touch:
// they can only be printed.
const std::string& plain_text(const Value& v, std::string_view who);
std::string soft_text(Heap& heap, const Value& v, std::string_view who);  // str(v), strings as plain_text
int64_t to_index(const Value& v, std::string_view who);                   // int or bool

// "a.b.0" as map(attribute=...) and sort(attribute=...) walk it.
Value walk_attribute(Heap& heap, const Value& item, const Value& attribute);
// The key sort, unique, min, max and groupby compare by: lower case unless case matters.
Value sort_key(Heap& heap, const Value& v, bool case_sensitive);

Value to_json(Heap& heap, const Value& input, const Args& args);  // tojson as transformers defines it

}  // namespace pop::jinja
