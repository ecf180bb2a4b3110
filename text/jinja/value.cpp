#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

int height(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) {
    if (item.ref) depth = std::max(depth, item.ref->depth);
  }
  return depth + 1;
}

int height(const std::vector<std::pair<Value, Value>>& entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) {
    if (key.ref) depth = std::max(depth, key.ref->depth);
    if (value.ref) depth = std::max(depth, value.ref->depth);
  }
  return depth + 1;
}

// Exact, unlike a comparison after rounding the integer to double.
int compare_int_real(int64_t i, double d) {
  if (d >= 9223372036854775808.0) return -1;
  if (d < -9223372036854775808.0) return 1;
  double whole = std::floor(d);
  auto w = static_cast<int64_t>(whole);
  if (i != w) return i < w ? -1 : 1;
  return whole < d ? -1 : 0;
}

bool is_nan(const Value& v) { return v.kind == Kind::kFloat && std::isnan(v.real); }

// -1, 0, 1; neither may be NaN.
int compare_numbers(const Value& a, const Value& b) {
  if (a.kind == Kind::kFloat && b.kind == Kind::kFloat) return a.real < b.real ? -1 : a.real > b.real ? 1 : 0;
  if (a.kind == Kind::kFloat) return -compare_int_real(b.as_integer(), a.real);
  if (b.kind == Kind::kFloat) return compare_int_real(a.as_integer(), b.real);
  return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
}

bool same_items(Heap& heap, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (!equals(heap, a[k], b[k])) return false;
  }
  return true;
}

bool same_entries(Heap& heap, const Value& a, const Value& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = find_entry(heap, b, key);
    if (!other || !equals(heap, value, *other)) return false;
  }
  return true;
}

bool same_range(const Value& a, const Value& b) {
  const auto& x = static_cast<const RangeObject&>(*a.ref);
  const auto& y = static_cast<const RangeObject&>(*b.ref);
  if (x.length != y.length) return false;
  return x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step));
}

}  // namespace

Object::Object(Heap* owner, size_t size, int height) : heap(nullptr), bytes(size), depth(height) {
  if (height > kMaxValueDepth) fail("values nest too deeply (limit {})", kMaxValueDepth);
  if (owner) owner->take(size);
  heap = owner;
}
Object::~Object() {
  if (heap) heap->give(bytes);
}

StringObject::StringObject(Heap* owner, std::string value)
    : Object(owner, 64 + value.capacity(), 0), text(std::move(value)), ascii(is_ascii(text)) {}
SequenceObject::SequenceObject(Heap* owner, std::vector<Value> values)
    : Object(owner, 64 + values.size() * sizeof(Value), height(values)), items(std::move(values)) {}
DictObject::DictObject(Heap* owner, std::vector<std::pair<Value, Value>> members)
    : Object(owner, 64 + members.size() * 2 * sizeof(Value), height(members)), entries(std::move(members)) {}
RangeObject::RangeObject(Heap* owner, int64_t first, int64_t stride, int64_t count, int64_t end)
    : Object(owner, 64, 0), start(first), step(stride), length(count), stop(end) {}
IteratorObject::IteratorObject(Heap* owner, std::vector<Value> values, std::string failure)
    : Object(owner, 64 + values.size() * sizeof(Value), height(values)),
      items(std::move(values)),
      error(std::move(failure)) {}

Value Value::constant(std::string text) {
  Value v = of(Kind::kString);
  v.ref = std::make_shared<StringObject>(nullptr, std::move(text));
  return v;
}
const std::string& Value::text() const { return static_cast<const StringObject&>(*ref).text; }
const std::vector<Value>& Value::items() const { return static_cast<const SequenceObject&>(*ref).items; }
const std::vector<std::pair<Value, Value>>& Value::entries() const {
  return static_cast<const DictObject&>(*ref).entries;
}

Value Heap::string(std::string text) {
  step(text.size() / 16 + 1);
  Value v = Value::of(Kind::kString);
  v.ref = std::make_shared<StringObject>(this, std::move(text));
  return v;
}
Value Heap::markup(std::string text) {
  Value v = string(std::move(text));
  static_cast<StringObject&>(*v.ref).markup = true;
  return v;
}
Value Heap::character(char32_t c) {
  std::string text;
  append_code_point(text, c);
  return string(std::move(text));
}
Value Heap::list(std::vector<Value> items) {
  step(items.size() / 4 + 1);
  Value v = Value::of(Kind::kList);
  v.ref = std::make_shared<SequenceObject>(this, std::move(items));
  return v;
}
Value Heap::tuple(std::vector<Value> items) {
  Value v = list(std::move(items));
  v.kind = Kind::kTuple;
  return v;
}
Value Heap::view(const char* name, std::vector<Value> items) {
  Value v = list(std::move(items));
  v.kind = Kind::kView;
  static_cast<SequenceObject&>(*v.ref).view = name;
  return v;
}
Value Heap::dict(std::vector<std::pair<Value, Value>> entries) {
  step(entries.size() / 4 + 1);
  Value v = Value::of(Kind::kDict);
  v.ref = std::make_shared<DictObject>(this, std::move(entries));
  return v;
}
Value Heap::range(int64_t start, int64_t stop, int64_t stride) {
  if (stride == 0) fail("range() arg 3 must not be zero");
  __extension__ using Wide = __int128;
  Wide span = stride > 0 ? Wide{stop} - start : Wide{start} - stop;
  Wide size = stride > 0 ? Wide{stride} : -Wide{stride};
  Wide count = span <= 0 ? 0 : (span + size - 1) / size;
  if (count > 100000) fail("range too big (limit 100000)");
  Value v = Value::of(Kind::kRange);
  v.ref = std::make_shared<RangeObject>(this, start, stride, static_cast<int64_t>(count), stop);
  return v;
}
Value Heap::iterator(std::vector<Value> items, std::string error) {
  step(items.size() / 4 + 1);
  Value v = Value::of(Kind::kIterator);
  v.ref = std::make_shared<IteratorObject>(this, std::move(items), std::move(error));
  return v;
}
Value Heap::undefined(std::string why) {
  Value v;
  v.ref = std::make_shared<StringObject>(this, std::move(why));
  return v;
}

const char* type_name(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kRange: return "range";
    case Kind::kView: return static_cast<const SequenceObject&>(*v.ref).view;
    case Kind::kIterator: return "generator";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCallable: return "function";
  }
  return "object";
}

std::string undefined_message(const Value& v) { return v.ref ? v.text() : "the value is undefined"; }

bool truth(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return v.boolean;
    case Kind::kInt: return v.integer != 0;
    case Kind::kFloat: return v.real != 0;
    case Kind::kString: return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return !v.items().empty();
    case Kind::kDict: return !v.entries().empty();
    case Kind::kRange: return static_cast<const RangeObject&>(*v.ref).length != 0;
    default: return true;
  }
}

bool equals(Heap& heap, const Value& a, const Value& b) {
  heap.step();
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: heap.step(a.text().size() / 16); return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: return same_items(heap, a.items(), b.items());
    case Kind::kDict: return same_entries(heap, a, b);
    case Kind::kRange: return same_range(a, b);
    case Kind::kView:
      if (a.ref == b.ref) return true;
      fail("comparing dict views is not supported");
    case Kind::kCallable:
      if (a.ref == b.ref) return true;
      fail("comparing functions is not supported");
    default: return a.ref == b.ref;
  }
}

bool less(Heap& heap, const Value& a, const Value& b, const char* op) {
  heap.step();
  if (a.is_undefined()) fail("{}", undefined_message(a));
  if (b.is_undefined()) fail("{}", undefined_message(b));
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) < 0;
  if (a.is_string() && b.is_string()) {
    heap.step(std::min(a.text().size(), b.text().size()) / 16);
    return a.text() < b.text();  // UTF-8 sorts as code points do
  }
  if (a.kind == b.kind && a.is_sequence()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t k = 0; k < std::min(x.size(), y.size()); ++k) {
      if (!equals(heap, x[k], y[k])) return less(heap, x[k], y[k], op);
    }
    return x.size() < y.size();
  }
  fail("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

bool hashable(const Value& v) {
  if (v.is(Kind::kList) || v.is(Kind::kDict)) return false;
  if (v.is(Kind::kTuple)) return std::all_of(v.items().begin(), v.items().end(), hashable);
  return true;
}

const Value* find_entry(Heap& heap, const Value& dict, const Value& key) {
  const auto& entries = dict.entries();
  heap.step(entries.size() / 8 + 1);
  for (const auto& [name, value] : entries) {
    if (name.kind == Kind::kString && key.kind == Kind::kString) {
      if (name.text() == key.text()) return &value;
    } else if (equals(heap, name, key)) {
      return &value;
    }
  }
  return nullptr;
}

void set_entry(Heap& heap, std::vector<std::pair<Value, Value>>& entries, const Value& key, Value value) {
  if (!hashable(key)) fail("unhashable type: '{}'", type_name(key));
  heap.step(entries.size() / 8 + 1);
  for (auto& [name, old] : entries) {
    if (equals(heap, name, key)) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

std::vector<Value> iterate(Heap& heap, const Value& v) {
  heap.step();
  switch (v.kind) {
    case Kind::kUndefined: return {};
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: heap.step(v.items().size() / 4); return v.items();
    case Kind::kDict: {
      std::vector<Value> keys;
      for (const auto& entry : v.entries()) keys.push_back(entry.first);
      heap.step(keys.size() / 4);
      return keys;
    }
    case Kind::kString: {
      std::vector<Value> characters;
      for (size_t at = 0; at < v.text().size();) characters.push_back(heap.character(decode_at(v.text(), at)));
      return characters;
    }
    case Kind::kRange: {
      const auto& r = static_cast<const RangeObject&>(*v.ref);
      std::vector<Value> numbers;
      for (int64_t k = 0; k < r.length; ++k) numbers.push_back(Value::of(r.start + k * r.step));
      heap.step(numbers.size() / 4);
      return numbers;
    }
    case Kind::kIterator: {
      auto& it = static_cast<IteratorObject&>(*v.ref);
      std::vector<Value> rest(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
      it.next = it.items.size();
      heap.step(rest.size() / 4);
      if (!it.error.empty()) fail("{}", std::exchange(it.error, {}));
      return rest;
    }
    case Kind::kLoop: fail("iterating over the loop object is not supported");
    default: fail("'{}' object is not iterable", type_name(v));
  }
}

int64_t length(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined: return 0;
    case Kind::kString: {
      const auto& s = static_cast<const StringObject&>(*v.ref);
      return static_cast<int64_t>(s.ascii ? s.text.size() : count_code_points(s.text));
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return static_cast<int64_t>(v.items().size());
    case Kind::kDict: return static_cast<int64_t>(v.entries().size());
    case Kind::kRange: return static_cast<const RangeObject&>(*v.ref).length;
    case Kind::kLoop: fail("len() of the loop object is not supported");
    default: fail("object of type '{}' has no len()", type_name(v));
  }
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail("'in <string>' requires string as left operand, not {}", type_name(item));
    }
    heap.step((container.text().size() + item.text().size()) / 16);
    return find_text(container.text(), item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    if (!hashable(item)) fail("unhashable type: '{}'", type_name(item));
    return find_entry(heap, container, item) != nullptr;
  }
  if (container.is(Kind::kIterator)) {
    auto& it = static_cast<IteratorObject&>(*container.ref);
    while (it.next < it.items.size()) {
      if (equals(heap, it.items[it.next++], item)) return true;
    }
    if (!it.error.empty()) fail("{}", std::exchange(it.error, {}));
    return false;
  }
  const std::vector<Value> items = iterate(heap, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& v) { return (v.ref && v.ref == item.ref) || equals(heap, v, item); });
}

}  // namespace pop::jinja
