// The typed getters of GgufFile: a value of the expected type, or one line that says what was found instead.
#include <cstring>

#include "base/error.h"
#include "formats/gguf_parse.h"

namespace pop {
namespace {

[[noreturn]] void fail_missing(const GgufFile& file, std::string_view key, std::string_view expected) {
  fail("{}: metadata key '{}' is missing: expected {}", file.path(), printable(key), expected);
}

[[noreturn]] void fail_type(const GgufFile& file, std::string_view key, std::string_view expected,
                            const GgufValue& found) {
  fail("{}: metadata key '{}': expected {}, found {} ({})", file.path(), printable(key), expected, found.text(),
       found.type_text());
}

constexpr std::string_view kUnsigned = "an integer from 0 to 2^64-1", kSigned = "an integer from -2^63 to 2^63-1";
constexpr std::string_view kFloat = "an F32 or F64", kBool = "a Bool", kString = "a String";

template <class T>
std::optional<T> find_as(const GgufFile& file, std::string_view key, std::string_view expected,
                         std::optional<T> (GgufValue::*as)() const) {
  const GgufValue* value = file.find_key(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<T> result = (value->*as)();
  if (!result) fail_type(file, key, expected, *value);
  return result;
}

template <class T>
T require(const GgufFile& file, std::string_view key, std::string_view expected, std::optional<T> value) {
  if (!value) fail_missing(file, key, expected);
  return *std::move(value);
}

// An array of elements that `accepts`, of `count` elements if given.
const GgufValue& require_array(const GgufFile& file, std::string_view key, std::string_view elements,
                               std::optional<uint64_t> count, bool (*accepts)(GgufType)) {
  const std::string expected =
      count ? fmt::format("an Array of {} {}", *count, elements) : fmt::format("an Array of {}", elements);
  const GgufValue* value = file.find_key(key);
  if (value == nullptr) fail_missing(file, key, expected);
  if (value->type() != GgufType::Array || !accepts(value->element_type()) || (count && value->count() != *count)) {
    fail_type(file, key, expected, *value);
  }
  return *value;
}

constexpr size_t kArrayHead = 12;  // element type, count; then the elements

template <class T>
std::vector<T> copy_elements(const GgufValue& array) {
  std::vector<T> out(array.count());
  if (!out.empty()) std::memcpy(out.data(), array.bytes().data() + kArrayHead, out.size() * sizeof(T));
  return out;
}

bool is_integer(GgufType type) {
  return type != GgufType::F32 && type != GgufType::F64 && type != GgufType::Bool && type != GgufType::String &&
         type != GgufType::Array;
}

}  // namespace

std::optional<uint64_t> GgufFile::find_u64(std::string_view key) const {
  return find_as(*this, key, kUnsigned, &GgufValue::as_u64);
}
std::optional<int64_t> GgufFile::find_i64(std::string_view key) const {
  return find_as(*this, key, kSigned, &GgufValue::as_i64);
}
std::optional<double> GgufFile::find_f64(std::string_view key) const {
  return find_as(*this, key, kFloat, &GgufValue::as_f64);
}
std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  return find_as(*this, key, kBool, &GgufValue::as_bool);
}
std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const std::optional<std::string_view> text = find_as(*this, key, kString, &GgufValue::as_string);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

uint64_t GgufFile::get_u64(std::string_view key) const { return require(*this, key, kUnsigned, find_u64(key)); }
int64_t GgufFile::get_i64(std::string_view key) const { return require(*this, key, kSigned, find_i64(key)); }
double GgufFile::get_f64(std::string_view key) const { return require(*this, key, kFloat, find_f64(key)); }
bool GgufFile::get_bool(std::string_view key) const { return require(*this, key, kBool, find_bool(key)); }
std::string GgufFile::get_string(std::string_view key) const { return require(*this, key, kString, find_string(key)); }

std::vector<std::string> GgufFile::get_strings(std::string_view key, std::optional<uint64_t> count) const {
  const GgufValue& array =
      require_array(*this, key, "String", count, [](GgufType type) { return type == GgufType::String; });
  std::vector<std::string> out;
  out.reserve(array.count());
  const uint8_t* p = array.bytes().data() + kArrayHead;
  for (uint64_t i = 0; i < array.count(); ++i) {
    uint64_t size = 0;
    std::memcpy(&size, p, sizeof size);
    out.emplace_back(reinterpret_cast<const char*>(p + sizeof size), size);
    p += sizeof size + size;
  }
  return out;
}

std::vector<int32_t> GgufFile::get_i32s(std::string_view key, std::optional<uint64_t> count) const {
  return copy_elements<int32_t>(
      require_array(*this, key, "I32", count, [](GgufType type) { return type == GgufType::I32; }));
}

std::vector<float> GgufFile::get_floats(std::string_view key, std::optional<uint64_t> count) const {
  return copy_elements<float>(
      require_array(*this, key, "F32", count, [](GgufType type) { return type == GgufType::F32; }));
}

std::vector<int64_t> GgufFile::get_ints(std::string_view key, std::optional<uint64_t> count) const {
  const GgufValue& array = require_array(*this, key, "integers", count, is_integer);
  const uint64_t size = min_value_bytes(array.element_type());
  std::vector<int64_t> out;
  out.reserve(array.count());
  for (uint64_t i = 0; i < array.count(); ++i) {
    const GgufValue element(array.element_type(), array.bytes().subspan(kArrayHead + i * size, size));
    const std::optional<int64_t> value = element.as_i64();
    if (!value) fail_type(*this, key, kSigned, element);
    out.push_back(*value);
  }
  return out;
}

std::vector<bool> GgufFile::get_bools(std::string_view key, std::optional<uint64_t> count) const {
  const GgufValue& array =
      require_array(*this, key, "Bool", count, [](GgufType type) { return type == GgufType::Bool; });
  const std::span<const uint8_t> values = array.bytes().subspan(kArrayHead);
  return {values.begin(), values.end()};
}

}  // namespace pop
