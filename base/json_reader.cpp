#include "base/json_reader.h"

#include <algorithm>

#include "base/error.h"

namespace pop {
namespace {

constexpr int kDeepest = 64;

// The parser does not recurse, but what walks over its values may.
void check_depth(std::string_view bytes, const std::string& file) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepest) fail("{}: expected values nested at most {} deep, found more at byte {}", file, kDeepest, i);
  }
}

const nlohmann::json& null_value() {
  static const nlohmann::json null;
  return null;
}

// Numbers and the like, and a few of them or of texts in a list.
bool shows_whole(const nlohmann::json& value) {
  if (!value.is_array()) return true;
  return !value.empty() && value.size() <= 8 &&
         std::none_of(value.begin(), value.end(), [](const auto& element) { return element.is_structured(); });
}

}  // namespace

nlohmann::json parse_json(std::string_view bytes, const std::string& file) {
  check_depth(bytes, file);
  try {
    return nlohmann::json::parse(bytes);
  } catch (const nlohmann::json::parse_error& error) {
    fail("{}: expected JSON, found an error at byte {} of {}", file, error.byte, bytes.size());
  } catch (const nlohmann::json::out_of_range&) {
    fail("{}: expected JSON, found a number that is too large", file);
  }
}

JsonReader JsonReader::at(const char* key) const {
  if (!value_.is_object()) expected("an object");
  const auto found = value_.find(key);
  return {found == value_.end() ? null_value() : *found, name_ + (name_.ends_with(' ') ? "" : ".") + printable(key)};
}

JsonReader JsonReader::element(size_t index) const { return {value_.at(index), fmt::format("{}[{}]", name_, index)}; }

size_t JsonReader::size() const {
  if (!value_.is_array()) expected("a list");
  return value_.size();
}

const std::string& JsonReader::text() const {
  if (!value_.is_string()) expected("a string");
  return value_.get_ref<const std::string&>();
}

bool JsonReader::flag() const {
  if (!value_.is_boolean()) expected("true or false");
  return value_.get<bool>();
}

double JsonReader::number() const {
  if (!value_.is_number()) expected("a number");
  return value_.get<double>();
}

int32_t JsonReader::id() const {
  constexpr uint64_t kLimit = uint64_t{1} << 22;
  if (!value_.is_number_unsigned() || value_.get<uint64_t>() >= kLimit)
    expected(fmt::format("a token id below {}", kLimit));
  return static_cast<int32_t>(value_.get<uint64_t>());
}

void JsonReader::expected(const std::string& what) const {
  const std::string found = value_.is_null()      ? "none"
                            : value_.is_string()  ? '"' + printable(value_.get_ref<const std::string&>()) + '"'
                            : value_.is_object()  ? "an object"
                            : shows_whole(value_) ? printable(value_.dump())
                                                  : "a list";
  fail("{}: expected {}, found {}", name_.ends_with(": ") ? name_.substr(0, name_.size() - 2) : name_, what, found);
}

}  // namespace pop
