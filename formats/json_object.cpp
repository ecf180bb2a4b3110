#include "formats/json_object.h"

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"

namespace pop {

using nlohmann::json;

JsonObject JsonObject::read(const std::string& path, uint64_t most) {
  const MappedFile file(path);
  if (file.bytes().size() > most) fail("{}: expected at most {} bytes, found {}", path, most, file.bytes().size());
  return parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

JsonObject JsonObject::parse(std::string_view text, const std::string& name) {
  json value = parse_json(text, name);
  if (!value.is_object()) JsonReader(value, name + ": ").expected("a JSON object");
  return {name, "", std::move(value)};
}

const json* JsonObject::find(std::string_view key) const {
  const auto it = value_.find(key);
  return it == value_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonObject::has(std::string_view key) const { return value_.find(key) != value_.end(); }

void JsonObject::refuse(std::string_view key, std::string_view expected) const {
  const std::string name = fmt::format("{}: {}{}", file_, prefix_, printable(key));
  const json* value = find(key);
  if (value == nullptr) fail("{}: expected {}, found {}", name, expected, has(key) ? "null" : "none");
  JsonReader(*value, name).expected(std::string(expected));
}

std::optional<int64_t> JsonObject::find_int(std::string_view key, int64_t low, int64_t high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_unsigned() ? value->get<uint64_t>() <= uint64_t(INT64_MAX) : value->is_number_integer();
  if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high)
    refuse(key, fmt::format("an integer from {} to {}", low, high));
  return value->get<int64_t>();
}

int64_t JsonObject::integer(std::string_view key, int64_t low, int64_t high) const {
  const auto value = find_int(key, low, high);
  if (!value) refuse(key, fmt::format("an integer from {} to {}", low, high));
  return *value;
}

std::optional<double> JsonObject::find_real(std::string_view key, double low, double high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : high + 1;
  if (!(number >= low && number <= high)) refuse(key, fmt::format("a number from {} to {}", low, high));
  return number;
}

double JsonObject::real(std::string_view key, double low, double high) const {
  const auto value = find_real(key, low, high);
  if (!value) refuse(key, fmt::format("a number from {} to {}", low, high));
  return *value;
}

std::optional<std::string> JsonObject::find_string(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

bool JsonObject::flag(std::string_view key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<JsonObject> JsonObject::find_object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(key, "an object");
  return JsonObject(file_, prefix_ + std::string(key) + ".", *value);
}

std::optional<std::vector<std::string>> JsonObject::find_strings(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) refuse(key, "an array of strings");
  std::vector<std::string> strings;
  for (const json& element : *value) {
    if (!element.is_string()) refuse(key, "an array of strings");
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

std::vector<int64_t> JsonObject::integers(std::string_view key, int64_t low, int64_t high) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return {integer(key, low, high)};
  std::vector<int64_t> numbers;
  for (const json& element : *value) {
    if (!element.is_number_integer() || element.get<int64_t>() < low || element.get<int64_t>() > high)
      refuse(key, fmt::format("integers from {} to {}", low, high));
    numbers.push_back(element.get<int64_t>());
  }
  return numbers;
}

std::vector<double> JsonObject::reals(std::string_view key, double low, double high) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_array()) refuse(key, "an array of numbers");
  std::vector<double> numbers;
  for (const json& element : *value) {
    numbers.push_back(element.is_number() ? element.get<double>() : high + 1);
    if (!(numbers.back() >= low && numbers.back() <= high))
      refuse(key, fmt::format("numbers from {} to {}", low, high));
  }
  return numbers;
}

}  // namespace pop
