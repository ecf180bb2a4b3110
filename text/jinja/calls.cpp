// Calls: macros, the global functions, loop helpers; strftime.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace pop::jinja {
namespace {

constexpr std::string_view kGlobals[] = {"range",  "dict",   "namespace",       "cycler",
                                         "joiner", "lipsum", "raise_exception", "strftime_now"};

int height_of(const std::vector<Value>& items) {
  int height = 0;
  for (const Value& item : items) height = std::max(height, item.ref ? item.ref->depth : 0);
  return height + 1;
}

bool leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int day_of_year(const ChatTime& t) {  // from 1
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kBefore[t.month - 1] + t.day + (t.month > 2 && leap(t.year));
}

int weekday(const ChatTime& t) {  // 0 is Sunday
  int64_t y = t.year - 1;
  return static_cast<int>((y * 365 + y / 4 - y / 100 + y / 400 + day_of_year(t)) % 7);
}

// One conversion without flag; the numbers of %d and the like come back with `width` for padding.
std::string time_field(const ChatTime& t, char what) {
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  std::string month = kMonths[t.month - 1], day = kDays[weekday(t)];
  int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  switch (what) {
    case 'Y': return fmt::format("{}", t.year);
    case 'y': return fmt::format("{:02}", t.year % 100);
    case 'C': return fmt::format("{:02}", t.year / 100);
    case 'm': return fmt::format("{:02}", t.month);
    case 'd': return fmt::format("{:02}", t.day);
    case 'e': return fmt::format("{:2}", t.day);
    case 'H': return fmt::format("{:02}", t.hour);
    case 'I': return fmt::format("{:02}", hour12);
    case 'M': return fmt::format("{:02}", t.minute);
    case 'S': return fmt::format("{:02}", t.second);
    case 'j': return fmt::format("{:03}", day_of_year(t));
    case 'p': return t.hour < 12 ? "AM" : "PM";
    case 'B': return month;
    case 'b':
    case 'h': return month.substr(0, 3);
    case 'A': return day;
    case 'a': return day.substr(0, 3);
    case 'u': return fmt::format("{}", weekday(t) == 0 ? 7 : weekday(t));
    case 'w': return fmt::format("{}", weekday(t));
    case 'n': return "\n";
    case 't': return "\t";
    case 'f': return "000000";
    case 'z':
    case 'Z': return "";  // the time has no zone, as datetime.now()
    case '%': return "%";
    case 'F': return fmt::format("{}-{:02}-{:02}", t.year, t.month, t.day);
    case 'T':
    case 'X': return fmt::format("{:02}:{:02}:{:02}", t.hour, t.minute, t.second);
    case 'R': return fmt::format("{:02}:{:02}", t.hour, t.minute);
    case 'D':
    case 'x': return fmt::format("{:02}/{:02}/{:02}", t.month, t.day, t.year % 100);
    case 'c':
      return fmt::format("{} {} {:2} {:02}:{:02}:{:02} {}", day.substr(0, 3), month.substr(0, 3), t.day, t.hour,
                         t.minute, t.second, t.year);
    default: fail("strftime_now: the conversion %{} is not supported", printable(std::string(1, what)));
  }
}

}  // namespace

std::string format_time(const ChatTime& t, std::string_view format) {
  bool valid = t.year >= 1000 && t.year <= 9999 && t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 &&
               t.hour >= 0 && t.hour < 24 && t.minute >= 0 && t.minute < 60 && t.second >= 0 && t.second < 61;
  if (!valid) fail("strftime_now: the caller gave no valid time");
  std::string out;
  for (size_t k = 0; k < format.size(); ++k) {
    if (format[k] != '%') {
      out += format[k];
      continue;
    }
    bool unpadded = k + 1 < format.size() && format[k + 1] == '-';
    k += unpadded ? 2 : 1;
    if (k >= format.size()) fail("strftime_now: the format ends with %");
    std::string field = time_field(t, format[k]);
    if (unpadded) {
      if (std::string_view("mdeHIMSjy").find(format[k]) == std::string_view::npos) {
        fail("strftime_now: the conversion %-{} is not supported", printable(std::string(1, format[k])));
      }
      field.erase(0, std::min(field.find_first_not_of("0 "), field.size() - 1));
    }
    out += field;
  }
  return out;
}

bool is_global(std::string_view name) {
  return std::find(std::begin(kGlobals), std::end(kGlobals), name) != std::end(kGlobals);
}

Value Interpreter::global(std::string_view name) {
  Value v = Value::of(Kind::kCallable);
  v.ref = std::make_shared<CallableObject>(&heap_, std::string(name));
  return v;
}

Value Interpreter::call(const Value& callee, Args args) {
  if (callee.is_undefined()) fail("{}", undefined_message(callee));
  if (callee.is(Kind::kLoop)) fail("calling the loop object is not supported");
  if (!callee.is(Kind::kCallable)) fail("'{}' object is not callable", type_name(callee));
  Object& object = *callee.ref;
  if (auto* method = dynamic_cast<MethodObject*>(&object)) return call_method(heap_, method->self, method->name, args);
  if (auto* macro = dynamic_cast<MacroObject*>(&object)) return call_macro(*macro, std::move(args));
  if (auto* helper = dynamic_cast<HelperObject*>(&object)) return call_helper(*helper, args);
  if (auto* joiner = dynamic_cast<JoinerObject*>(&object)) {
    Bound none("joiner", args, {});
    return std::exchange(joiner->used, true) ? joiner->separator : heap_.string("");
  }
  return call_global(static_cast<CallableObject&>(object).name, args);
}

Value Interpreter::call_global(const std::string& name, const Args& args) {
  if (name == "range") return make_range(args);
  if (name == "dict") return make_dict(args);
  if (name == "namespace") return make_namespace(args);
  if (name == "cycler") return make_cycler(args);
  if (name == "joiner") {
    Bound bound(name, args, {"sep"});
    Value v = Value::of(Kind::kCallable);
    v.ref = std::make_shared<JoinerObject>(&heap_, bound.has(0) ? bound[0] : heap_.string(", "));
    v.ref->depth = bound[0].ref ? bound[0].ref->depth : 0;
    return v;
  }
  if (name == "raise_exception") {
    Bound bound(name, args, {"message"});
    fail("{}", str(heap_, bound.required(0)));
  }
  if (name == "strftime_now") {
    Bound bound(name, args, {"format"});
    return heap_.string(format_time(now_, plain_text(bound.required(0), name)));
  }
  fail("'{}' is not supported", name);
}

Value Interpreter::make_range(const Args& args) {
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  Bound bound("range", args, {"start", "stop", "step"});
  int64_t first = to_index(bound.required(0), "range");
  if (!bound.has(1)) return heap_.range(0, first, 1);
  return heap_.range(first, bound.integer(1, 0), bound.integer(2, 1));
}

Value Interpreter::make_dict(const Args& args) {
  std::vector<std::pair<Value, Value>> entries;
  if (args.positional.size() > 1) fail("dict expected at most 1 argument, got {}", args.positional.size());
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kDict)) {
      entries = from.entries();
    } else {
      for (const Value& pair : iterate(heap_, from)) {
        const std::vector<Value> parts = iterate(heap_, pair);
        if (parts.size() != 2) fail("dict: expected pairs");
        set_entry(heap_, entries, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) set_entry(heap_, entries, heap_.string(name), value);
  return heap_.dict(std::move(entries));
}

Value Interpreter::make_namespace(const Args& args) {
  Value fields = make_dict(args);
  for (const auto& [key, value] : fields.entries()) {
    if (!key.is_string()) fail("namespace: expected names as keys");
  }
  heap_.take(fields.entries().size() * 2 * sizeof(Value));
  auto space = std::make_shared<NamespaceObject>(&heap_);
  space->entries = fields.entries();
  namespaces_.push_back(space);
  Value v = Value::of(Kind::kNamespace);
  v.ref = std::move(space);
  return v;
}

Value Interpreter::make_cycler(const Args& args) {
  if (!args.named.empty() || args.positional.empty()) fail("cycler: expected at least one item and no keywords");
  Value v = Value::of(Kind::kLoop);
  v.ref = std::make_shared<CyclerObject>(&heap_, args.positional, height_of(args.positional));
  return v;
}

Value Interpreter::call_helper(const HelperObject& helper, const Args& args) {
  if (!args.named.empty()) fail("{}() takes no keyword arguments", helper.name);
  if (auto* cycler = dynamic_cast<CyclerObject*>(helper.self.ref.get())) {
    Bound none(helper.name, args, {});
    size_t next = helper.name == "reset" ? 0 : (cycler->position + 1) % cycler->items.size();
    size_t old = std::exchange(cycler->position, next);
    return helper.name == "reset" ? Value::none() : cycler->items[old];
  }
  auto& loop = static_cast<LoopObject&>(*helper.self.ref);
  if (loop.finished) fail("using a loop object behind its loop is not supported");
  if (helper.name == "cycle") {
    if (args.positional.empty()) fail("no items for cycling given");
    return args.positional[loop.index % args.positional.size()];
  }
  bool same = loop.has_changed && loop.changed.size() == args.positional.size();
  for (size_t k = 0; same && k < loop.changed.size(); ++k) same = equals(heap_, loop.changed[k], args.positional[k]);
  loop.has_changed = true;
  if (!same) loop.changed = args.positional;
  return Value::of(!same);
}

// Puts the parameters into the current scope, in the order Jinja fills them.
void Interpreter::bind_macro(const Macro& macro, Args& args) {
  auto take_named = [&](const std::string& name, Value& value) {
    auto it =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& entry) { return entry.first == name; });
    if (it == args.named.end()) return false;
    value = std::move(it->second);
    args.named.erase(it);
    return true;
  };
  size_t count = macro.parameters.size(), first_default = count - macro.defaults.size();
  std::vector<size_t> absent;
  for (size_t k = 0; k < count; ++k) {
    Value value;
    if (k < args.positional.size()) {
      value = args.positional[k];
    } else if (!take_named(macro.parameters[k], value)) {
      value = heap_.undefined(fmt::format("parameter '{}' was not provided", macro.parameters[k]));
      if (k >= first_default) absent.push_back(k);
    }
    scope_->variables[macro.parameters[k]] = std::move(value);
  }
  if (macro.uses_caller) {
    Value caller;
    if (!take_named("caller", caller) || caller.is_none()) caller = heap_.undefined("No caller defined");
    scope_->variables["caller"] = std::move(caller);
  }
  if (macro.uses_kwargs) {
    Args named;
    named.named = std::exchange(args.named, {});
    scope_->variables["kwargs"] = make_dict(named);
  } else if (!args.named.empty()) {
    fail("macro '{}' takes no keyword argument '{}'", macro.name, printable(args.named[0].first));
  }
  if (macro.uses_varargs) {
    size_t used = std::min(count, args.positional.size());
    std::vector<Value> rest(args.positional.begin() + static_cast<std::ptrdiff_t>(used), args.positional.end());
    scope_->variables["varargs"] = heap_.tuple(std::move(rest));
  } else if (args.positional.size() > count) {
    fail("macro '{}' takes not more than {} arguments", macro.name, count);
  }
  for (size_t k : absent) scope_->variables[macro.parameters[k]] = evaluate(*macro.defaults[k - first_default]);
}

Value Interpreter::call_macro(const MacroObject& object, Args args) {
  ScopePtr outer = std::exchange(scope_, std::make_shared<Scope>());
  struct Return {
    ScopePtr &scope, &outer;
    ~Return() { scope = std::move(outer); }
  } back{scope_, outer};
  scope_->parent = object.closure;
  bind_macro(object.macro, args);
  std::string text = std::exchange(out_, {});
  execute(object.macro.body);
  heap_.give(out_.size());
  return heap_.string(std::exchange(out_, std::move(text)));
}

}  // namespace pop::jinja
