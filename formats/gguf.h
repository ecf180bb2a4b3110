// GGUF model files, versions 2 and 3, little-endian: metadata and tensors, checked before anything is used.
//
// The file is mapped, not read: metadata values and tensors are views into the mapping and live as long as the GgufFile.
// Everything a file says (counts, lengths, offsets, sizes) is compared with the bytes it has before use, so memory stays a
// small multiple of the header's size whatever the file claims. All errors are pop::Error and name the file.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_source.h"

namespace pop {

// Numbers as in the file.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
inline constexpr uint32_t kGgufTypeCount = 13;
const char* name_of(GgufType type);

// One metadata value, already validated: a view into the file.
class GgufValue {
 public:
  GgufValue(GgufType type, std::span<const uint8_t> payload) : type_(type), payload_(payload) {}

  GgufType type() const { return type_; }
  GgufType element_type() const;  // of an array
  uint64_t count() const;         // elements of an array

  // Empty if the value is of another type (or, for integers, does not fit). u64 and i64 take every integer type.
  std::optional<uint64_t> as_u64() const;
  std::optional<int64_t> as_i64() const;
  std::optional<double> as_f64() const;  // F32 and F64
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;
  // The first `limit` elements of an array, of any type, nested arrays included. One GgufValue each: for long arrays use
  // the typed getters of GgufFile.
  std::vector<GgufValue> elements(uint64_t limit = UINT64_MAX) const;
  std::span<const uint8_t> bytes() const { return payload_; }  // as in the file, after the type

  std::string type_text() const;              // "U32", "String", "Array of 3 String"
  std::string text(size_t limit = 80) const;  // safe to print; arrays show their first elements and their count

 private:
  GgufType type_;
  std::span<const uint8_t> payload_;  // a string with its length, an array with its element type and count
};

struct GgufKey {
  std::string name;
  GgufValue value;
};

// Whether a file of this name is taken for one of several parts (NAME-00002-of-00003.gguf).
bool is_split_part_name(const std::string& path);

class GgufFile : public TensorSource {
 public:
  // A split model (NAME-00001-of-0000N.gguf) is opened by its first part, which opens all. Throws Error: no GGUF, another
  // version, big-endian, damaged or cut, a part that is not the first, parts missing.
  explicit GgufFile(const std::string& path);
  // The same from memory the caller keeps alive (tests, fuzzing); `name` is used in messages. No split files.
  static GgufFile from_bytes(std::span<const uint8_t> bytes, const std::string& name);
  ~GgufFile() override;
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const override;  // of the first part
  uint32_t version() const;
  int parts() const;
  std::span<const MappedFile> files() const override;  // the parts
  std::span<const TensorInfo> tensors() const override;
  const TensorInfo* find(std::string_view name) const override;

  // Metadata. Of a split model: the first part's. A value of another type is an error that names file, key, expected, found.
  std::span<const GgufKey> keys() const;  // in the file's order
  const GgufValue* find_key(std::string_view key) const;
  bool has(std::string_view key) const { return find_key(key) != nullptr; }
  // get_X(key): a missing key is an error. find_X(key): empty if missing. get_X(key, fallback): fallback if missing.
  uint64_t get_u64(std::string_view key) const;  // any integer type, value in range
  int64_t get_i64(std::string_view key) const;   // any integer type, value in range
  double get_f64(std::string_view key) const;    // F32 or F64
  bool get_bool(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::optional<uint64_t> find_u64(std::string_view key) const;
  std::optional<int64_t> find_i64(std::string_view key) const;
  std::optional<double> find_f64(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  uint64_t get_u64(std::string_view key, uint64_t fallback) const { return find_u64(key).value_or(fallback); }
  int64_t get_i64(std::string_view key, int64_t fallback) const { return find_i64(key).value_or(fallback); }
  double get_f64(std::string_view key, double fallback) const { return find_f64(key).value_or(fallback); }
  bool get_bool(std::string_view key, bool fallback) const { return find_bool(key).value_or(fallback); }
  std::string get_string(std::string_view key, const std::string& fallback) const {
    return find_string(key).value_or(fallback);
  }
  // Arrays, required (test with has() first if not). With `count`, another length is an error.
  std::vector<std::string> get_strings(std::string_view key, std::optional<uint64_t> count = {}) const;
  std::vector<int32_t> get_i32s(std::string_view key, std::optional<uint64_t> count = {}) const;  // elements I32 only
  std::vector<int64_t> get_ints(std::string_view key, std::optional<uint64_t> count = {}) const;  // any integer type
  std::vector<float> get_floats(std::string_view key, std::optional<uint64_t> count = {}) const;  // elements F32 only
  std::vector<bool> get_bools(std::string_view key, std::optional<uint64_t> count = {}) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pop
