// Filters on sequences as a whole: order, grouping, sums.
#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace pop::jinja {
namespace {

Value length_filter(Heap&, const Value& input, const Args& args) {
  Bound none("length", args, {});
  return Value::of(length(input));
}

Value first(Heap& heap, const Value& input, const Args& args) {
  Bound none("first", args, {});
  if (input.is(Kind::kIterator)) {
    auto& it = static_cast<IteratorObject&>(*input.ref);
    if (it.next < it.items.size()) return it.items[it.next++];
  }
  std::vector<Value> items = iterate(heap, input);
  return items.empty() ? heap.undefined("no first item, the sequence was empty") : items.front();
}

Value last(Heap& heap, const Value& input, const Args& args) {
  Bound none("last", args, {});
  if (input.is(Kind::kIterator)) fail("'generator' object is not reversible");
  std::vector<Value> items = iterate(heap, input);
  return items.empty() ? heap.undefined("no last item, the sequence was empty") : items.back();
}

Value list_filter(Heap& heap, const Value& input, const Args& args) {
  Bound none("list", args, {});
  return heap.list(iterate(heap, input));
}

Value reverse(Heap& heap, const Value& input, const Args& args) {
  Bound none("reverse", args, {});
  if (input.is_string()) {
    std::u32string text = to_code_points(plain_text(input, "reverse"));
    std::reverse(text.begin(), text.end());
    return heap.string(to_utf8(text));
  }
  std::vector<Value> items = iterate(heap, input);
  std::reverse(items.begin(), items.end());
  return input.is(Kind::kIterator) ? heap.list(std::move(items)) : heap.iterator(std::move(items));
}

Value join(Heap& heap, const Value& input, const Args& args) {
  Bound bound("join", args, {"d", "attribute"});
  std::string separator = bound.has(0) ? str(heap, bound[0]) : "", out;
  bool attribute = bound.has(1) && !bound[1].is_none(), first_item = true;
  for (const Value& item : iterate(heap, input)) {
    if (!first_item) out += separator;
    first_item = false;
    out += str(heap, attribute ? walk_attribute(heap, item, bound[1]) : item);
    heap.check_size(out.size());
  }
  return heap.string(std::move(out));
}

// Items with the keys they are ordered by.
using Keyed = std::vector<std::pair<Value, Value>>;

void refuse_nan(const Value& key) {
  if (key.is(Kind::kFloat) && std::isnan(key.real)) fail("ordering NaN is not supported");
  if (!key.is_sequence()) return;
  for (const Value& part : key.items()) refuse_nan(part);
}

void sort_keyed(Heap& heap, Keyed& keyed, bool descending) {
  for (const auto& [key, item] : keyed) refuse_nan(key);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? less(heap, b.first, a.first) : less(heap, a.first, b.first);
  });
}

// The key of sort(attribute="a,b.c"): a list when there are several.
Value attribute_key(Heap& heap, const Value& item, const Value& attribute, bool case_sensitive) {
  if (attribute.is_undefined() || attribute.is_none()) return sort_key(heap, item, case_sensitive);
  if (!attribute.is_string() || attribute.text().find(',') == std::string::npos) {
    return sort_key(heap, walk_attribute(heap, item, attribute), case_sensitive);
  }
  std::vector<Value> parts;
  std::string_view rest = attribute.text();
  while (true) {
    size_t comma = std::min(rest.find(','), rest.size());
    Value part = walk_attribute(heap, item, heap.string(std::string(rest.substr(0, comma))));
    parts.push_back(sort_key(heap, part, case_sensitive));
    if (comma == rest.size()) return heap.list(std::move(parts));
    rest.remove_prefix(comma + 1);
  }
}

Value sort(Heap& heap, const Value& input, const Args& args) {
  Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  Keyed keyed;
  for (const Value& item : iterate(heap, input)) {
    keyed.emplace_back(attribute_key(heap, item, bound[2], bound.flag(1, false)), item);
  }
  sort_keyed(heap, keyed, bound.flag(0, false));
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return heap.list(std::move(items));
}

Value dictsort(Heap& heap, const Value& input, const Args& args) {
  Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  std::string by = bound.has(1) ? soft_text(heap, bound[1], "dictsort") : "key";
  if (by != "key" && by != "value") fail("You can only sort by either 'key' or 'value'");
  if (!input.is(Kind::kDict)) fail("dictsort: expected a dict, found {}", type_name(input));
  Keyed keyed;
  for (const auto& [key, value] : input.entries()) {
    keyed.emplace_back(sort_key(heap, by == "key" ? key : value, bound.flag(0, false)), heap.tuple({key, value}));
  }
  sort_keyed(heap, keyed, bound.flag(2, false));
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return heap.list(std::move(items));
}

Value unique(Heap& heap, const Value& input, const Args& args) {
  Bound bound("unique", args, {"case_sensitive", "attribute"});
  std::vector<Value> seen, kept;
  std::string error;
  try {
    for (const Value& item : iterate(heap, input)) {
      Value key = bound.has(1) && !bound[1].is_none() ? walk_attribute(heap, item, bound[1]) : item;
      key = sort_key(heap, key, bound.flag(0, false));
      if (!hashable(key)) fail("unhashable type: '{}'", type_name(key));
      if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equals(heap, other, key); })) continue;
      seen.push_back(key);
      kept.push_back(item);
    }
  } catch (const Error& e) {
    error = e.what();
  }
  return heap.iterator(std::move(kept), std::move(error));
}

Value group_by(Heap& heap, const Value& input, const Args& args) {
  Bound bound("groupby", args, {"attribute", "default", "case_sensitive"});
  bool case_sensitive = bound.flag(2, false);
  auto key_of = [&](const Value& item) {
    Value key = walk_attribute(heap, item, bound.required(0));
    return key.is_undefined() && bound.has(1) && !bound[1].is_none() ? bound[1] : key;
  };
  Keyed keyed;
  for (const Value& item : iterate(heap, input)) {
    keyed.emplace_back(sort_key(heap, key_of(item), case_sensitive), item);
  }
  sort_keyed(heap, keyed, false);
  std::vector<Value> groups;
  for (size_t k = 0; k < keyed.size();) {
    std::vector<Value> members;
    size_t start = k;
    for (; k < keyed.size() && equals(heap, keyed[k].first, keyed[start].first); ++k)
      members.push_back(keyed[k].second);
    Value group = heap.tuple({key_of(members[0]), heap.list(members)});
    static_cast<SequenceObject&>(*group.ref).group = true;
    groups.push_back(std::move(group));
  }
  return heap.list(std::move(groups));
}

Value sum(Heap& heap, const Value& input, const Args& args) {
  Bound bound("sum", args, {"attribute", "start"});
  Value total = bound.has(1) ? bound[1] : Value::of(int64_t{0});
  if (total.is_string()) fail("sum() can't sum strings");
  for (const Value& item : iterate(heap, input)) {
    bool attribute = bound.has(0) && !bound[0].is_none();
    total = binary_operator(heap, "+", total, attribute ? walk_attribute(heap, item, bound[0]) : item);
  }
  return total;
}

template <bool kLargest>
Value extreme(Heap& heap, const Value& input, const Args& args) {
  Bound bound("min", args, {"case_sensitive", "attribute"});
  Value best, best_key;
  bool any = false;
  for (const Value& item : iterate(heap, input)) {
    Value key = bound.has(1) && !bound[1].is_none() ? walk_attribute(heap, item, bound[1]) : item;
    key = sort_key(heap, key, bound.flag(0, false));
    refuse_nan(key);
    if (any && !(kLargest ? less(heap, best_key, key) : less(heap, key, best_key))) continue;
    best = item;
    best_key = key;
    any = true;
  }
  return any ? best : heap.undefined("no aggregated item, the sequence was empty");
}

Value batch(Heap& heap, const Value& input, const Args& args) {
  Bound bound("batch", args, {"linecount", "fill_with"});
  int64_t size = to_index(bound.required(0), "batch");
  std::vector<Value> lines, line;
  // As Jinja: a line is closed when the next item finds it full; a size below 1 never is.
  for (const Value& item : iterate(heap, input)) {
    if (static_cast<int64_t>(line.size()) == size) lines.push_back(heap.list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (size == 0) fail("batch: a size of 0 is not supported");
  if (!line.empty()) {
    bool fill = bound.has(1) && !bound[1].is_none();
    if (fill) heap.check_size(static_cast<uint64_t>(std::max<int64_t>(size, 0)) * sizeof(Value));
    while (fill && static_cast<int64_t>(line.size()) < size) line.push_back(bound[1]);
    lines.push_back(heap.list(std::move(line)));
  }
  return heap.iterator(std::move(lines));
}

Value slice_filter(Heap& heap, const Value& input, const Args& args) {
  Bound bound("slice", args, {"slices", "fill_with"});
  const std::vector<Value> items = iterate(heap, input);
  int64_t slices = to_index(bound.required(0), "slice"), count = static_cast<int64_t>(items.size());
  if (slices < 1) fail("slice: expected at least 1 slice");
  heap.check_size(static_cast<uint64_t>(slices) * sizeof(Value));
  int64_t each = count / slices, longer = count % slices, at = 0;
  std::vector<Value> columns;
  for (int64_t k = 0; k < slices; ++k) {
    int64_t size = each + (k < longer);
    std::vector<Value> column(items.begin() + at, items.begin() + at + size);
    if (bound.has(1) && !bound[1].is_none() && k >= longer) column.push_back(bound[1]);
    columns.push_back(heap.list(std::move(column)));
    at += size;
  }
  return heap.iterator(std::move(columns));
}

Value items_filter(Heap& heap, const Value& input, const Args& args) {
  Bound none("items", args, {});
  if (input.is_undefined()) return heap.iterator({});
  if (!input.is(Kind::kDict)) return heap.iterator({}, "Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.entries()) pairs.push_back(heap.tuple({key, value}));
  return heap.iterator(std::move(pairs));
}

}  // namespace

std::vector<FilterEntry> sequence_filters() {
  return {{"length", length_filter}, {"count", length_filter}, {"first", first},      {"last", last},
          {"list", list_filter},     {"reverse", reverse},     {"join", join},        {"sort", sort},
          {"dictsort", dictsort},    {"unique", unique},       {"groupby", group_by}, {"sum", sum},
          {"min", extreme<false>},   {"max", extreme<true>},   {"batch", batch},      {"slice", slice_filter},
          {"items", items_filter}};
}

}  // namespace pop::jinja
