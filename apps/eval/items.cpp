#include "apps/eval/items.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/validators.h"
#include "base/error.h"
#include "base/hash.h"

namespace pop::app {
namespace {

// What stands in a field, for a message: a value that fits into a line, else its kind.
std::string shown(const Json& value) {
  return value.is_structured() ? std::string(value.type_name()) : printable(to_text(value));
}

Json parse_object(std::string_view line, const std::string& where) {
  Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("{}: expected a JSON object, found '{}'", where, printable(line));
  return json;
}

// A task file's first line: what all its items share.
bool is_header(const Json& json) { return json.contains("task") && json.contains("kind"); }

// --items: a file of ids. Each must be there.
std::set<int64_t> chosen_ids(const std::string& path) {
  const auto ids = parse_ids(read_file(path), printable(path, 400));
  return {ids.begin(), ids.end()};
}

}  // namespace

std::string sha256_text(std::string_view bytes) {
  return sha256_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

void add_item_options(CLI::App& app, ItemArgs& args) {
  app.add_option("-f,--file", args.file, "The items: a task file, JSON Lines")->option_text("FILE");
  app.add_option("--limit", args.limit, "The first N items only [all]")
      ->option_text("N")
      ->check(whole_in(1, INT32_MAX));
  app.add_option("--items", args.only,
                 "Only these items: a file of their places from 0, separated by commas or blanks [all]")
      ->option_text("FILE");
}

std::vector<int64_t> Items::ids() const {
  std::vector<int64_t> out;
  for (const Item& item : list) out.push_back(item.id);
  return out;
}

Items read_items(const ItemArgs& args) {
  if (args.file.empty()) throw UsageError("expected a file of items, -f FILE");
  if (args.limit > 0 && !args.only.empty()) throw UsageError("--limit and --items exclude each other");
  Items out;
  out.path = args.file;
  const std::string bytes = read_file(args.file), name = printable(args.file, 400);
  out.header = {-1, fmt::format("{}:1", name), "", Json::object()};
  out.sha256 = sha256_text(bytes);
  std::set<int64_t> wanted;
  if (!args.only.empty()) wanted = chosen_ids(args.only);
  out.task = std::filesystem::path(args.file).stem().string();
  int64_t id = 0, number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = std::string_view(bytes).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (args.limit > 0 && id == args.limit) break;
    const std::string where = fmt::format("{}:{}", name, number);
    if (number == 1)
      if (Json json = parse_object(line, where); is_header(json)) {
        out.header = {-1, where, sha256_text(line), std::move(json)};
        out.task = text_field(out.header, "task");
        continue;
      }
    const int64_t place = id++;
    if (!args.only.empty() && wanted.erase(place) == 0) continue;
    out.list.push_back({place, where, sha256_text(line), parse_object(line, where)});
  }
  if (!wanted.empty()) fail("{}: expected item {} (--items), found {} items", name, *wanted.begin(), id);
  if (out.list.empty()) fail("{}: expected at least one item, found none", name);
  return out;
}

void bad_field(const Item& item, const char* name, std::string_view expected) {
  const auto found = item.json.find(name);
  fail("{}: \"{}\": expected {}, found {}", item.where, name, expected,
       found == item.json.end() ? "nothing" : shown(*found));
}

const std::string& text_field(const Item& item, const char* name, bool allow_empty) {
  const auto found = item.json.find(name);
  if (found == item.json.end() || !found->is_string()) bad_field(item, name, "a text");
  const auto& text = found->get_ref<const std::string&>();
  if (text.empty() && !allow_empty) bad_field(item, name, "a text that is not empty");
  return text;
}

bool bool_field(const Item& item, const char* name) {
  const auto found = item.json.find(name);
  if (found == item.json.end() || !found->is_boolean()) bad_field(item, name, "true or false");
  return found->get<bool>();
}

int64_t int_field(const Item& item, const char* name, int64_t low, int64_t high) {
  const auto found = item.json.find(name);
  const bool whole = found != item.json.end() && found->is_number_integer();
  // An unsigned value above INT64_MAX would wrap around.
  const bool huge = whole && found->is_number_unsigned() && found->get<uint64_t>() > uint64_t(INT64_MAX);
  if (!whole || huge || found->get<int64_t>() < low || found->get<int64_t>() > high)
    bad_field(item, name, fmt::format("a whole number from {} to {}", low, high));
  return found->get<int64_t>();
}

std::vector<std::string> text_list(const Item& item, const char* name, size_t least) {
  const auto found = item.json.find(name);
  if (found == item.json.end() || !found->is_array()) bad_field(item, name, "a list of texts");
  std::vector<std::string> out;
  for (const Json& entry : *found) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().empty())
      fail("{}: \"{}\": entry {}: expected a text that is not empty, found {}", item.where, name, out.size() + 1,
           shown(entry));
    out.push_back(entry.get<std::string>());
  }
  if (out.size() < least) fail("{}: \"{}\": expected at least {} texts, found {}", item.where, name, least, out.size());
  return out;
}

}  // namespace pop::app
