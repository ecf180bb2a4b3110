// map, select, reject and attr, the tests, and the look-up of filters and tests by name.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

Args without_first(const Args& args, size_t count) {
  Args rest = args;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

// Jinja's generators fail when they are walked, not when they are made: the error waits in the iterator.
template <class Work>
Value lazily(Heap& heap, Work work) {
  std::vector<Value> items;
  std::string error;
  try {
    work(items);
  } catch (const Error& e) {
    error = e.what();
  }
  return heap.iterator(std::move(items), std::move(error));
}

Value map_item(Heap& heap, const Value& item, const Args& args) {
  if (!args.positional.empty()) {
    return apply_filter(heap, plain_text(args.positional[0], "map"), item, without_first(args, 1));
  }
  const Value *attribute = nullptr, *otherwise = nullptr;
  for (const auto& [name, value] : args.named) {
    if (name == "attribute") {
      attribute = &value;
    } else if (name == "default") {
      otherwise = &value;
    } else {
      fail("unexpected keyword argument '{}'", printable(name));
    }
  }
  if (!attribute) fail("map requires a filter argument");
  Value result = walk_attribute(heap, item, *attribute);
  return result.is_undefined() && otherwise && !otherwise->is_none() ? *otherwise : result;
}

Value map_filter(Heap& heap, const Value& input, const Args& args) {
  return lazily(heap, [&](std::vector<Value>& items) {
    if (!truth(input)) return;
    for (const Value& item : iterate(heap, input)) items.push_back(map_item(heap, item, args));
  });
}

template <bool kAttribute, bool kKeep>
Value select_filter(Heap& heap, const Value& input, const Args& args) {
  return lazily(heap, [&](std::vector<Value>& items) {
    if (!truth(input)) return;
    size_t used = kAttribute ? 1 : 0;
    if (args.positional.size() < used) fail("Missing parameter for attribute name");
    bool has_test = args.positional.size() > used;
    Args rest = has_test ? without_first(args, used + 1) : Args{};
    for (const Value& item : iterate(heap, input)) {
      Value subject = kAttribute ? walk_attribute(heap, item, args.positional[0]) : item;
      bool passes =
          has_test ? apply_test(heap, plain_text(args.positional[used], "select"), subject, rest) : truth(subject);
      if (passes == kKeep) items.push_back(item);
    }
  });
}

Value attr_filter(Heap& heap, const Value& input, const Args& args) {
  Bound bound("attr", args, {"name"});
  std::string name = soft_text(heap, bound.required(0), "attr");
  if (!input.is(Kind::kDict) || is_method(input, name) != Method::kNone) return get_attribute(heap, input, name);
  return heap.undefined(fmt::format("'dict object' has no attribute '{}'", printable(name)));
}

void no_arguments(const Args& args) { Bound none("the test", args, {}); }

template <Kind kKind>
bool is_kind(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  return v.is(kKind);
}

bool is_defined(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  return !v.is_undefined();
}

bool is_number(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  return v.is_number();
}

template <bool kWhich>
bool is_bool(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  return v.is(Kind::kBool) && v.boolean == kWhich;
}

bool is_sequence(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) || v.is_undefined();
}

bool is_iterable(Heap& heap, const Value& v, const Args& args) {
  return is_sequence(heap, v, args) || v.is(Kind::kView) || v.is(Kind::kIterator) || v.is(Kind::kLoop);
}

bool is_callable(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  if (v.is(Kind::kLoop)) fail("asking whether the loop object is callable is not supported");
  // Undefined has __call__, and that is what Python asks.
  return v.is(Kind::kCallable) || v.is_undefined();
}

template <int kRemainder>
bool is_parity(Heap& heap, const Value& v, const Args& args) {
  no_arguments(args);
  return equals(heap, binary_operator(heap, "%", v, Value::of(int64_t{2})), Value::of(int64_t{kRemainder}));
}

bool is_divisible(Heap& heap, const Value& v, const Args& args) {
  Bound bound("divisibleby", args, {"num"});
  return equals(heap, binary_operator(heap, "%", v, bound.required(0)), Value::of(int64_t{0}));
}

template <bool kUpper>
bool is_case(Heap& heap, const Value& v, const Args& args) {
  no_arguments(args);
  Value text = heap.string(str(heap, v));
  return truth(call_text_method(heap, text, kUpper ? "isupper" : "islower", {}));
}

bool is_in(Heap& heap, const Value& v, const Args& args) {
  Bound bound("in", args, {"seq"});
  return contains(heap, bound.required(0), v);
}

bool same_as(Heap&, const Value& v, const Args& args) {
  Bound bound("sameas", args, {"other"});
  const Value& other = bound.required(0);
  if (v.kind != other.kind) return false;
  if (v.is_none()) return true;
  if (v.is(Kind::kBool)) return v.boolean == other.boolean;
  if (v.is_number() || v.is_string() || v.is_undefined()) fail("sameas on a {} is not supported", type_name(v));
  return v.ref == other.ref;
}

bool is_escaped(Heap&, const Value& v, const Args& args) {
  no_arguments(args);
  if (v.is_undefined()) fail("escaped on an undefined value is not supported");
  return v.is_string() && static_cast<const StringObject&>(*v.ref).markup;
}

enum class Order { kEqual, kDifferent, kLess, kLessEqual, kGreater, kGreaterEqual };

template <Order kOrder>
bool compares(Heap& heap, const Value& v, const Args& args) {
  static constexpr const char* kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  Bound bound("the test", args, {"other"});
  return compare(heap, kOps[static_cast<int>(kOrder)], v, bound.required(0));
}

const std::vector<TestEntry>& tests() {
  static const std::vector<TestEntry> kTests = {
      {"defined", is_defined},
      {"undefined", is_kind<Kind::kUndefined>},
      {"none", is_kind<Kind::kNone>},
      {"string", is_kind<Kind::kString>},
      {"mapping", is_kind<Kind::kDict>},
      {"integer", is_kind<Kind::kInt>},
      {"float", is_kind<Kind::kFloat>},
      {"boolean", is_kind<Kind::kBool>},
      {"true", is_bool<true>},
      {"false", is_bool<false>},
      {"number", is_number},
      {"sequence", is_sequence},
      {"iterable", is_iterable},
      {"callable", is_callable},
      {"odd", is_parity<1>},
      {"even", is_parity<0>},
      {"divisibleby", is_divisible},
      {"lower", is_case<false>},
      {"upper", is_case<true>},
      {"in", is_in},
      {"sameas", same_as},
      {"escaped", is_escaped},
      {"eq", compares<Order::kEqual>},
      {"==", compares<Order::kEqual>},
      {"equalto", compares<Order::kEqual>},
      {"ne", compares<Order::kDifferent>},
      {"!=", compares<Order::kDifferent>},
      {"lt", compares<Order::kLess>},
      {"<", compares<Order::kLess>},
      {"lessthan", compares<Order::kLess>},
      {"le", compares<Order::kLessEqual>},
      {"<=", compares<Order::kLessEqual>},
      {"gt", compares<Order::kGreater>},
      {">", compares<Order::kGreater>},
      {"greaterthan", compares<Order::kGreater>},
      {"ge", compares<Order::kGreaterEqual>},
      {">=", compares<Order::kGreaterEqual>},
  };
  return kTests;
}

const std::vector<FilterEntry>& all_filters() {
  static const std::vector<FilterEntry> kFilters = [] {
    std::vector<FilterEntry> all = text_filters();
    for (const auto& table : {sequence_filters(), selection_filters()})
      all.insert(all.end(), table.begin(), table.end());
    return all;
  }();
  return kFilters;
}

}  // namespace

std::vector<FilterEntry> selection_filters() {
  return {{"map", map_filter},
          {"select", select_filter<false, true>},
          {"reject", select_filter<false, false>},
          {"selectattr", select_filter<true, true>},
          {"rejectattr", select_filter<true, false>},
          {"attr", attr_filter}};
}

Filter find_filter(std::string_view name) {
  for (const FilterEntry& entry : all_filters()) {
    if (name == entry.name) return entry.function;
  }
  return nullptr;
}

Test find_test(std::string_view name) {
  for (const TestEntry& entry : tests()) {
    if (name == entry.name) return entry.function;
  }
  return nullptr;
}

Value apply_filter(Heap& heap, std::string_view name, const Value& input, const Args& args) {
  heap.step();
  Filter filter = find_filter(name);
  if (!filter) fail("unknown or unsupported filter '{}'", printable(name));
  return filter(heap, input, args);
}

bool apply_test(Heap& heap, std::string_view name, const Value& input, const Args& args) {
  heap.step();
  Test test = find_test(name);
  if (!test) fail("unknown or unsupported test '{}'", printable(name));
  return test(heap, input, args);
}

}  // namespace pop::jinja
