// Binding call arguments to parameters, and the small conversions filters and methods share.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {

Bound::Bound(std::string_view function, const Args& args, std::initializer_list<const char*> names)
    : function_(function), values_(names.size()), given_(names.size(), false) {
  if (args.positional.size() > names.size()) {
    fail("{} takes at most {} arguments, {} given", function, names.size(), args.positional.size());
  }
  for (size_t k = 0; k < args.positional.size(); ++k) {
    values_[k] = args.positional[k];
    given_[k] = true;
  }
  for (const auto& [name, value] : args.named) {
    auto it = std::find_if(names.begin(), names.end(), [&key = name](const char* other) { return key == other; });
    if (it == names.end()) fail("{} got an unexpected keyword argument '{}'", function, printable(name));
    auto k = static_cast<size_t>(it - names.begin());
    if (given_[k]) fail("{} got multiple values for argument '{}'", function, name);
    values_[k] = value;
    given_[k] = true;
  }
}

int64_t Bound::integer(size_t k, int64_t otherwise) const {
  return given_[k] ? to_index(values_[k], function_) : otherwise;
}

const Value& Bound::required(size_t k) const {
  if (!given_[k]) fail("{} is missing a required argument", function_);
  return values_[k];
}

const std::string& plain_text(const Value& v, std::string_view who) {
  if (v.is_undefined()) fail("{}", undefined_message(v));
  if (!v.is_string()) fail("{}: expected a string, found {}", who, type_name(v));
  if (static_cast<const StringObject&>(*v.ref).markup) fail("{} on an escaped or safe string is not supported", who);
  return v.text();
}

std::string soft_text(Heap& heap, const Value& v, std::string_view who) {
  return v.is_string() ? plain_text(v, who) : str(heap, v);
}

int64_t to_index(const Value& v, std::string_view who) {
  if (v.is_undefined()) fail("{}", undefined_message(v));
  if (!v.is_integral()) fail("{}: expected an integer, found {}", who, type_name(v));
  return v.as_integer();
}

Value walk_attribute(Heap& heap, const Value& item, const Value& attribute) {
  if (!attribute.is_string()) return get_item(heap, item, attribute);
  Value result = item;
  std::string_view path = attribute.text();
  while (true) {
    size_t dot = std::min(path.find('.'), path.size());
    std::string_view part = path.substr(0, dot);
    bool number = !part.empty() && part.size() < 19 && part.find_first_not_of("0123456789") == std::string_view::npos;
    Value key = number ? Value::of(int64_t{std::stoll(std::string(part))}) : heap.string(std::string(part));
    result = get_item(heap, result, key);
    if (dot == path.size()) return result;
    path.remove_prefix(dot + 1);
  }
}

Value sort_key(Heap& heap, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? heap.string(lower(plain_text(v, "sorting"))) : v;
}

}  // namespace pop::jinja
