#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail("{}", undefined_message(a));
  if (b.is_undefined()) fail("{}", undefined_message(b));
  fail("unsupported operand types for {}: '{}' and '{}'", op, type_name(a), type_name(b));
}

[[noreturn]] void overflow() { fail("an integer is out of range (64 bits)"); }

double exact_real(int64_t i) {
  if (i > (int64_t{1} << 53) || i < -(int64_t{1} << 53)) fail("an integer is too large for exact division");
  return static_cast<double>(i);
}

Value finite(double result, bool inputs_finite) {
  if (inputs_finite && std::isinf(result)) fail("a floating-point result is out of range");
  return Value::of(result);
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 ? -1 : 1;
  for (int64_t k = 0; k < exponent; ++k) {
    if (__builtin_mul_overflow(result, base, &result)) overflow();
  }
  return result;
}

Value power(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral() && b.as_integer() >= 0) {
    return Value::of(integer_power(a.as_integer(), b.as_integer()));
  }
  double x = a.as_real(), y = b.as_real();
  if (x == 0 && y < 0) fail("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(y) && y != std::floor(y)) fail("complex numbers are not supported");
  return finite(std::pow(x, y), std::isfinite(x) && std::isfinite(y));
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) {
    int64_t negative;
    if (__builtin_sub_overflow(int64_t{0}, a, &negative)) overflow();
    return negative;
  }
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// Python's float modulo: the sign of the divisor.
double real_modulo(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0) return (b < 0) != (result < 0) ? result + b : result;
  return std::copysign(0.0, b);
}

double real_floor_divide(double a, double b) {
  double mod = std::fmod(a, b), div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(0.0, a / b);
  double whole = std::floor(div);
  return div - whole > 0.5 ? whole + 1 : whole;
}

Value integer_operator(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+" && !__builtin_add_overflow(a, b, &result)) return Value::of(result);
  if (op == "-" && !__builtin_sub_overflow(a, b, &result)) return Value::of(result);
  if (op == "*" && !__builtin_mul_overflow(a, b, &result)) return Value::of(result);
  if (op == "+" || op == "-" || op == "*") overflow();
  if (b == 0) fail("division by zero");
  if (op == "/") return Value::of(exact_real(a) / exact_real(b));
  if (op == "//") return Value::of(floor_divide(a, b));
  if (b == -1) return Value::of(int64_t{0});
  result = a % b;
  return Value::of(result != 0 && (result < 0) != (b < 0) ? result + b : result);
}

Value number_operator(std::string_view op, const Value& a, const Value& b) {
  if (op == "**") return power(a, b);
  if (a.is_integral() && b.is_integral()) return integer_operator(op, a.as_integer(), b.as_integer());
  double x = a.as_real(), y = b.as_real();
  if (op == "+") return Value::of(x + y);
  if (op == "-") return Value::of(x - y);
  if (op == "*") return Value::of(x * y);
  if (y == 0) fail("division by zero");
  if (op == "/") return Value::of(x / y);
  return Value::of(op == "//" ? real_floor_divide(x, y) : real_modulo(x, y));
}

Value repeat(Heap& heap, const Value& v, int64_t count) {
  uint64_t times = count < 0 ? 0 : static_cast<uint64_t>(count);
  bool is_text = v.is_string();
  uint64_t unit = is_text ? plain_text(v, "*").size() : v.items().size() * sizeof(Value);
  if (unit == 0) times = 0;
  if (unit > 0 && times > UINT64_MAX / unit) times = UINT64_MAX / unit;
  heap.check_size(unit * times);
  if (is_text) {
    std::string text;
    text.reserve(unit * times);
    for (uint64_t k = 0; k < times; ++k) text += v.text();
    return heap.string(std::move(text));
  }
  std::vector<Value> items;
  items.reserve(v.items().size() * times);
  for (uint64_t k = 0; k < times; ++k) items.insert(items.end(), v.items().begin(), v.items().end());
  return v.is(Kind::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

Value add(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    const std::string &x = plain_text(a, "+"), &y = plain_text(b, "+");
    heap.check_size(x.size() + y.size());
    return heap.string(x + y);
  }
  if (a.kind != b.kind || !a.is_sequence()) unsupported("+", a, b);
  std::vector<Value> items;
  items.reserve(a.items().size() + b.items().size());
  items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

struct Span {
  int64_t start, step, count;
};

// Python's slice.indices().
Span resolve_slice(int64_t length, const Value& start, const Value& stop, const Value& step) {
  auto part = [](const Value& v) {
    if (v.is_undefined()) fail("{}", undefined_message(v));
    return to_index(v, "slice");
  };
  int64_t stride = step.is_none() ? 1 : part(step);
  if (stride == 0) fail("slice step cannot be zero");
  int64_t low = stride < 0 ? -1 : 0, high = stride < 0 ? length - 1 : length;
  auto place = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    int64_t i = part(v);
    if (i < 0) return i < -length ? low : std::max(i + length, low);
    return std::min(i, high);
  };
  int64_t from = place(start, stride < 0 ? high : low), to = place(stop, stride < 0 ? low : high);
  int64_t distance = stride < 0 ? from - to : to - from;
  if (distance <= 0) return {from, stride, 0};
  uint64_t size = stride < 0 ? uint64_t{0} - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
  return {from, stride, static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / size + 1)};
}

Value slice_text(Heap& heap, const Value& object, const Span& span) {
  const auto& s = static_cast<const StringObject&>(*object.ref);
  heap.step(s.text.size() / 16);
  if (s.ascii && span.step == 1) {
    return heap.string(s.text.substr(static_cast<size_t>(span.start), static_cast<size_t>(span.count)));
  }
  std::u32string points = to_code_points(s.text), out;
  for (int64_t k = 0; k < span.count; ++k) out += points[static_cast<size_t>(span.start + k * span.step)];
  return heap.string(to_utf8(out));
}

Value item_of_range(const RangeObject& r, int64_t index) { return Value::of(r.start + index * r.step); }

Value missing(Heap& heap, const Value& object, const Value& key) {
  std::string name = key.is_string() ? printable(key.text()) : str(heap, key);
  return heap.undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

// The attribute Python's getattr would find, or null kind with `found` false.
Value bound_method(Heap& heap, const Value& object, std::string_view name, bool& found) {
  Method method = is_method(object, name);
  found = method != Method::kNone;
  if (method == Method::kUnsafe) {
    return heap.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
  }
  if (method == Method::kUnsupported) fail("'{}' of a {} is not supported", name, type_name(object));
  Value v;
  if (!found) return v;
  v.kind = Kind::kCallable;
  v.ref = std::make_shared<MethodObject>(&heap, std::string(name), object);
  return v;
}

const Value* namespace_field(const Value& object, std::string_view name) {
  for (const auto& [key, value] : object.entries()) {
    if (key.text() == name) return &value;
  }
  return nullptr;
}

}  // namespace

MethodObject::MethodObject(Heap* owner, std::string method, Value receiver)
    : CallableObject(owner, std::move(method)), self(std::move(receiver)) {
  depth = self.ref ? self.ref->depth + 1 : 1;
  if (depth > kMaxValueDepth) fail("values nest too deeply (limit {})", kMaxValueDepth);
}

Value binary_operator(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return number_operator(op, a, b);
  if (op == "%" && a.is_string()) return heap.string(percent_format(heap, plain_text(a, "%"), b));
  if (op == "+") return add(heap, a, b);
  if (op == "*") {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(heap, a, b.as_integer());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(heap, b, a.as_integer());
  }
  unsupported(op, a, b);
}

Value negate(const Value& v) {
  if (v.is(Kind::kFloat)) return Value::of(-v.real);
  if (v.is_undefined()) fail("{}", undefined_message(v));
  if (!v.is_integral()) fail("bad operand type for unary -: '{}'", type_name(v));
  int64_t result;
  if (__builtin_sub_overflow(int64_t{0}, v.as_integer(), &result)) overflow();
  return Value::of(result);
}

Value plus(const Value& v) {
  if (v.is(Kind::kFloat)) return v;
  if (v.is_undefined()) fail("{}", undefined_message(v));
  if (!v.is_integral()) fail("bad operand type for unary +: '{}'", type_name(v));
  return Value::of(v.as_integer());
}

bool compare(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  if (op == "in") return contains(heap, b, a);
  if (op == "not in") return !contains(heap, b, a);
  if (op == "==") return equals(heap, a, b);
  if (op == "!=") return !equals(heap, a, b);
  const char* name = op == "<" ? "<" : op == "<=" ? "<=" : op == ">" ? ">" : ">=";
  if (op == "<") return less(heap, a, b, name);
  if (op == ">") return less(heap, b, a, name);
  bool below = op == "<=" ? less(heap, a, b, name) : less(heap, b, a, name);
  return below || equals(heap, a, b);
}

Value get_item(Heap& heap, const Value& object, const Value& key) {
  if (object.is_undefined()) fail("{}", undefined_message(object));
  if (object.is(Kind::kDict) && hashable(key)) {
    if (const Value* found = find_entry(heap, object, key)) return *found;
  } else if (key.is_integral() && (object.is_string() || object.is_sequence() || object.is(Kind::kRange))) {
    int64_t count = length(object), index = key.as_integer();
    if (index < 0) index = index < -count ? -1 : index + count;
    if (index < 0 || index >= count) return missing(heap, object, key);
    auto place = static_cast<size_t>(index);
    if (object.is(Kind::kRange)) return item_of_range(static_cast<const RangeObject&>(*object.ref), index);
    if (!object.is_string()) return object.items()[place];
    return slice_text(heap, object, {index, 1, 1});
  }
  if (!key.is_string()) return missing(heap, object, key);
  bool group = object.is(Kind::kTuple) && static_cast<const SequenceObject&>(*object.ref).group;
  if (group || object.is(Kind::kNamespace)) return get_attribute(heap, object, key.text());
  bool found = false;
  Value method = bound_method(heap, object, key.text(), found);
  return found ? method : missing(heap, object, key);
}

Value get_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail("{}", undefined_message(object));
  if (object.is(Kind::kNamespace)) {
    const Value* field = name.empty() || name[0] == '_' ? nullptr : namespace_field(object, name);
    return field ? *field : heap.undefined(fmt::format("the namespace has no attribute '{}'", printable(name)));
  }
  if (object.is(Kind::kTuple) && static_cast<const SequenceObject&>(*object.ref).group) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  bool found = false;
  Value method = bound_method(heap, object, name, found);
  if (found) return method;
  if (object.is(Kind::kDict)) {
    heap.step(object.entries().size() / 8 + 1);
    for (const auto& [key, value] : object.entries()) {
      if (key.is_string() && key.text() == name) return value;
    }
  }
  return heap.undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), printable(name)));
}

Value slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail("{}", undefined_message(object));
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    fail("'{}' object cannot be sliced", type_name(object));
  }
  Span span = resolve_slice(length(object), start, stop, step);
  if (object.is_string()) {
    plain_text(object, "a slice");
    return slice_text(heap, object, span);
  }
  if (object.is(Kind::kRange)) {
    const auto& r = static_cast<const RangeObject&>(*object.ref);
    int64_t stride = 0, first = 0, reach = 0, end = 0;
    if (__builtin_mul_overflow(r.step, span.step, &stride) || __builtin_mul_overflow(r.step, span.start, &first) ||
        __builtin_add_overflow(r.start, first, &first) || __builtin_mul_overflow(stride, span.count, &reach) ||
        __builtin_add_overflow(first, reach, &end)) {
      overflow();
    }
    return heap.range(first, end, stride);
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(span.count));
  for (int64_t k = 0; k < span.count; ++k) {
    items.push_back(object.items()[static_cast<size_t>(span.start + k * span.step)]);
  }
  return object.is(Kind::kList) ? heap.list(std::move(items)) : heap.tuple(std::move(items));
}

}  // namespace pop::jinja
