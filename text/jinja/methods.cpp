// Which attributes Python's types have, and the methods of list, tuple and dict.
#include <algorithm>

#include "text/jinja/operators.h"

namespace pop::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool one_of(std::string_view name, Names names) { return std::find(names.begin(), names.end(), name) != names.end(); }

Method text_method(const Value& object, std::string_view name) {
  bool ours =
      one_of(name, {"strip",    "lstrip",  "rstrip",       "split",        "rsplit",    "splitlines", "startswith",
                    "endswith", "replace", "upper",        "lower",        "title",     "capitalize", "find",
                    "rfind",    "index",   "rindex",       "join",         "format",    "count",      "isdigit",
                    "isalpha",  "isalnum", "isspace",      "isupper",      "islower",   "zfill",      "ljust",
                    "rjust",    "center",  "removeprefix", "removesuffix", "partition", "rpartition"});
  if (ours) return static_cast<const StringObject&>(*object.ref).markup ? Method::kUnsupported : Method::kSupported;
  bool theirs = one_of(name, {"casefold", "encode", "expandtabs", "format_map", "isascii", "isdecimal", "isidentifier",
                              "isnumeric", "isprintable", "istitle", "maketrans", "swapcase", "translate"});
  bool of_markup =
      static_cast<const StringObject&>(*object.ref).markup && one_of(name, {"escape", "unescape", "striptags"});
  return theirs || of_markup ? Method::kUnsupported : Method::kNone;
}

Method dict_method(std::string_view name) {
  if (one_of(name, {"items", "keys", "values", "get", "copy"})) return Method::kSupported;
  if (one_of(name, {"clear", "pop", "popitem", "setdefault", "update"})) return Method::kUnsafe;
  return name == "fromkeys" ? Method::kUnsupported : Method::kNone;
}

Method sequence_method(const Value& object, std::string_view name) {
  if (name == "index" || name == "count") return Method::kSupported;
  if (!object.is(Kind::kList)) return Method::kNone;
  if (one_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"})) return Method::kUnsafe;
  return name == "copy" ? Method::kSupported : Method::kNone;
}

Value pairs_of(Heap& heap, const Value& dict) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries()) pairs.push_back(heap.tuple({key, value}));
  return heap.view("dict_items", std::move(pairs));
}

Value call_dict_method(Heap& heap, const Value& object, std::string_view name, const Args& args) {
  if (name == "get") {
    if (!args.named.empty()) fail("dict.get() takes no keyword arguments");
    Bound bound("get", args, {"key", "default"});
    const Value& key = bound.required(0);
    if (!hashable(key)) fail("unhashable type: '{}'", type_name(key));
    if (const Value* found = find_entry(heap, object, key)) return *found;
    return bound.has(1) ? bound[1] : Value::none();
  }
  Bound none(name, args, {});
  if (name == "items") return pairs_of(heap, object);
  if (name == "copy") return object;  // dicts never change here
  std::vector<Value> parts;
  for (const auto& [key, value] : object.entries()) parts.push_back(name == "keys" ? key : value);
  return heap.view(name == "keys" ? "dict_keys" : "dict_values", std::move(parts));
}

Value call_sequence_method(Heap& heap, const Value& object, std::string_view name, const Args& args) {
  if (name == "copy") {
    Bound none(name, args, {});
    return object;
  }
  if (!args.named.empty()) fail("{}() takes no keyword arguments", name);
  const std::vector<Value> items = iterate(heap, object);
  if (name == "count") {
    Bound bound(name, args, {"value"});
    int64_t count = 0;
    for (const Value& item : items) count += equals(heap, item, bound.required(0));
    return Value::of(count);
  }
  Bound bound(name, args, {"value", "start", "stop"});
  auto size = static_cast<int64_t>(items.size());
  auto place = [&](int64_t k) { return std::clamp<int64_t>(k < 0 ? (k < -size ? 0 : k + size) : k, 0, size); };
  int64_t stop = place(bound.integer(2, size));
  for (int64_t k = place(bound.integer(1, 0)); k < stop; ++k) {
    if (equals(heap, items[static_cast<size_t>(k)], bound.required(0))) return Value::of(k);
  }
  bound.required(0);
  fail("the value is not in the list");
}

}  // namespace

Method is_method(const Value& object, std::string_view name) {
  if (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__") return Method::kUnsafe;
  Names numbers = {"real", "imag", "numerator", "denominator", "conjugate", "as_integer_ratio"};
  bool found = false;
  switch (object.kind) {
    case Kind::kString: return text_method(object, name);
    case Kind::kDict: return dict_method(name);
    case Kind::kList:
    case Kind::kTuple: return sequence_method(object, name);
    case Kind::kBool:
    case Kind::kInt:
      found = one_of(name, numbers) || one_of(name, {"bit_length", "bit_count", "to_bytes", "from_bytes"});
      break;
    case Kind::kFloat: found = one_of(name, numbers) || one_of(name, {"is_integer", "hex", "fromhex"}); break;
    case Kind::kRange: found = one_of(name, {"count", "index", "start", "stop", "step"}); break;
    case Kind::kView: found = one_of(name, {"isdisjoint", "mapping"}); break;
    case Kind::kIterator: found = one_of(name, {"send", "throw", "close"}) || name.substr(0, 3) == "gi_"; break;
    case Kind::kCallable:
      found = one_of(name, {"name", "arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller"});
      break;
    default: break;
  }
  return found ? Method::kUnsupported : Method::kNone;
}

Value call_method(Heap& heap, const Value& object, std::string_view name, const Args& args) {
  if (object.is_string()) return call_text_method(heap, object, name, args);
  if (object.is(Kind::kDict)) return call_dict_method(heap, object, name, args);
  return call_sequence_method(heap, object, name, args);
}

}  // namespace pop::jinja
