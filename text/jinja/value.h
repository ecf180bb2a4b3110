// The values of a template: Python's None, bool, int, float, str, list, tuple, dict, range and the objects Jinja adds,
// with Python's str(), repr(), ==, < and truth. Integers are 64 bit: what Python would carry further is an error.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"

namespace pop::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,
  kIterator,
  kNamespace,
  kLoop,
  kCallable,
};

class Heap;

// Base of everything a Value points at. `depth` is the height of the nesting below it: bounded, so that recursion over
// values (and their destruction) is bounded too.
struct Object {
  Object(Heap* heap, size_t bytes, int depth);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  Heap* heap;  // charged for `bytes` while this lives; null for constants of a compiled template
  size_t bytes;
  int depth;
};

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    bool boolean;
    int64_t integer;
    double real;
  };
  std::shared_ptr<Object> ref;

  Value() : integer(0) {}
  static Value none() { return of(Kind::kNone); }
  static Value of(bool b) {
    Value v = of(Kind::kBool);
    v.integer = 0;
    v.boolean = b;
    return v;
  }
  static Value of(int64_t i) {
    Value v = of(Kind::kInt);
    v.integer = i;
    return v;
  }
  static Value of(double d) {
    Value v = of(Kind::kFloat);
    v.real = d;
    return v;
  }
  static Value of(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
  static Value constant(std::string text);  // a string outside any heap

  bool is(Kind k) const { return kind == k; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }  // bool is an int, as in Python
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  int64_t as_integer() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  double as_real() const { return kind == Kind::kFloat ? real : static_cast<double>(as_integer()); }

  const std::string& text() const;                              // kString
  const std::vector<Value>& items() const;                      // kList, kTuple, kView
  const std::vector<std::pair<Value, Value>>& entries() const;  // kDict, kNamespace
};

struct StringObject : Object {
  StringObject(Heap* heap, std::string value);
  std::string text;
  bool ascii;
  bool markup = false;  // made by `safe` or `escape`: operators on it would escape, so they are refused
};

struct SequenceObject : Object {
  SequenceObject(Heap* heap, std::vector<Value> values);
  std::vector<Value> items;
  const char* view = nullptr;  // kView: "dict_keys", "dict_values" or "dict_items"
  bool group = false;          // kTuple made by groupby: has .grouper and .list
};

struct DictObject : Object {
  DictObject(Heap* heap, std::vector<std::pair<Value, Value>> members);
  std::vector<std::pair<Value, Value>> entries;  // in insertion order, keys distinct
};

struct RangeObject : Object {
  RangeObject(Heap* heap, int64_t first, int64_t stride, int64_t count, int64_t end);
  int64_t start, step, length, stop;
};

// What map(), select(), dict.items|items and so on return: can be walked once.
struct IteratorObject : Object {
  IteratorObject(Heap* heap, std::vector<Value> values, std::string failure);
  std::vector<Value> items;
  size_t next = 0;
  std::string error;  // not empty: walking past the items fails with it, as the lazy generator would
};

// A constructed value plus everything it costs. One heap per render; it outlives its values.
class Heap {
 public:
  explicit Heap(const ChatTemplateLimits& limits) : steps_(limits.steps), limit_(limits.bytes), free_(limits.bytes) {}

  void step(uint64_t count = 1) {
    if (count > steps_) fail("the template does too much work (limit of steps passed)");
    steps_ -= count;
  }
  void take(size_t bytes) {
    if (bytes > free_) fail("the template needs too much memory (limit {} bytes)", limit_);
    free_ -= bytes;
  }
  void give(size_t bytes) { free_ += bytes; }
  // Call before building something of that size outside the heap.
  void check_size(uint64_t bytes) const {
    if (bytes > free_) fail("the template needs too much memory (limit {} bytes)", limit_);
  }

  Value string(std::string text);
  Value markup(std::string text);
  Value character(char32_t c);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value view(const char* name, std::vector<Value> items);
  Value dict(std::vector<std::pair<Value, Value>> entries);
  Value range(int64_t start, int64_t stop, int64_t step);  // at most 100,000 items, as Jinja's sandbox
  Value iterator(std::vector<Value> items, std::string error = {});
  Value undefined(std::string why);  // prints as nothing, fails with `why` when used

 private:
  uint64_t steps_, limit_, free_;
};

inline constexpr int kMaxValueDepth = 200;

const char* type_name(const Value& v);  // as Python's type(v).__name__
std::string undefined_message(const Value& v);
bool truth(const Value& v);
bool equals(Heap& heap, const Value& a, const Value& b);
// Python's a < b for sorting and comparisons; `op` is only for the message. Error for types that do not compare.
bool less(Heap& heap, const Value& a, const Value& b, const char* op = "<");
// Python's hash(v) would work: needed for keys.
bool hashable(const Value& v);
const Value* find_entry(Heap& heap, const Value& dict, const Value& key);
void set_entry(Heap& heap, std::vector<std::pair<Value, Value>>& entries, const Value& key, Value value);

std::string str(Heap& heap, const Value& v);
std::string repr(Heap& heap, const Value& v);
std::string float_repr(double value);
std::string string_repr(std::string_view text);

// Every item of an iterable, in order; walks an iterator to its end. Error for what Python cannot iterate.
std::vector<Value> iterate(Heap& heap, const Value& v);
int64_t length(const Value& v);                                        // len()
bool contains(Heap& heap, const Value& container, const Value& item);  // item in container

}  // namespace pop::jinja
