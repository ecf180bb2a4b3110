// Metadata values. Their bytes were checked when the file was parsed, so nothing here can run past them.
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "formats/gguf_parse.h"

namespace pop {
namespace {

template <class T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

constexpr size_t kArrayHead = 12;  // element type, count

// Bytes of the value that begins at p.
size_t value_bytes(GgufType type, const uint8_t* p) {
  if (type == GgufType::String) return sizeof(uint64_t) + load<uint64_t>(p);
  if (type != GgufType::Array) return min_value_bytes(type);
  const auto element = static_cast<GgufType>(load<uint32_t>(p));
  const auto count = load<uint64_t>(p + sizeof(uint32_t));
  if (element != GgufType::String && element != GgufType::Array) return kArrayHead + count * min_value_bytes(element);
  size_t bytes = kArrayHead;
  for (uint64_t i = 0; i < count; ++i) bytes += value_bytes(element, p + bytes);
  return bytes;
}

}  // namespace

const char* name_of(GgufType type) {
  static constexpr const char* kNames[kGgufTypeCount] = {"U8",   "I8",     "U16",   "I16", "U32", "I32", "F32",
                                                         "Bool", "String", "Array", "U64", "I64", "F64"};
  return kNames[static_cast<uint32_t>(type)];
}

GgufType GgufValue::element_type() const {
  if (type_ != GgufType::Array) fail("GGUF value: expected an Array, found {}", name_of(type_));
  return static_cast<GgufType>(load<uint32_t>(payload_.data()));
}

uint64_t GgufValue::count() const {
  if (type_ != GgufType::Array) fail("GGUF value: expected an Array, found {}", name_of(type_));
  return load<uint64_t>(payload_.data() + sizeof(uint32_t));
}

std::optional<int64_t> GgufValue::as_i64() const {
  const uint8_t* p = payload_.data();
  switch (type_) {
    case GgufType::U8: return load<uint8_t>(p);
    case GgufType::I8: return load<int8_t>(p);
    case GgufType::U16: return load<uint16_t>(p);
    case GgufType::I16: return load<int16_t>(p);
    case GgufType::U32: return load<uint32_t>(p);
    case GgufType::I32: return load<int32_t>(p);
    case GgufType::I64: return load<int64_t>(p);
    case GgufType::U64: {
      const auto value = load<uint64_t>(p);
      return value >> 63 ? std::nullopt : std::optional(static_cast<int64_t>(value));
    }
    default: return std::nullopt;
  }
}

std::optional<uint64_t> GgufValue::as_u64() const {
  if (type_ == GgufType::U64) return load<uint64_t>(payload_.data());
  const std::optional<int64_t> value = as_i64();
  return value && *value >= 0 ? std::optional(static_cast<uint64_t>(*value)) : std::nullopt;
}

std::optional<double> GgufValue::as_f64() const {
  if (type_ == GgufType::F32) return load<float>(payload_.data());
  if (type_ == GgufType::F64) return load<double>(payload_.data());
  return std::nullopt;
}

std::optional<bool> GgufValue::as_bool() const {
  return type_ == GgufType::Bool ? std::optional(payload_[0] != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (type_ != GgufType::String) return std::nullopt;
  const std::span<const uint8_t> text = payload_.subspan(sizeof(uint64_t));
  return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
}

std::vector<GgufValue> GgufValue::elements(uint64_t limit) const {
  const GgufType element = element_type();
  const uint64_t wanted = std::min(count(), limit);
  std::vector<GgufValue> out;
  size_t at = kArrayHead;
  for (uint64_t i = 0; i < wanted; ++i) {
    const size_t bytes = value_bytes(element, payload_.data() + at);
    out.emplace_back(element, payload_.subspan(at, bytes));
    at += bytes;
  }
  return out;
}

std::string GgufValue::type_text() const {
  if (type_ != GgufType::Array) return name_of(type_);
  return fmt::format("Array of {} {}", count(), name_of(element_type()));
}

std::string GgufValue::text(size_t limit) const {
  if (const auto s = as_string()) return fmt::format("'{}'", printable(*s, limit));
  if (const auto u = as_u64()) return fmt::format("{}", *u);
  if (const auto i = as_i64()) return fmt::format("{}", *i);
  if (const auto b = as_bool()) return *b ? "true" : "false";
  if (type_ == GgufType::F32) return fmt::format("{}", load<float>(payload_.data()));
  if (type_ == GgufType::F64) return fmt::format("{}", load<double>(payload_.data()));
  std::string out = "[";
  uint64_t shown = 0;
  for (const GgufValue& element : elements(limit)) {  // each takes a character at least
    if (out.size() >= limit) break;
    out += shown++ ? ", " : "";
    out += element.text(limit - out.size());
  }
  return out + (shown < count() ? fmt::format(", ... {} in all]", count()) : "]");
}

}  // namespace pop
