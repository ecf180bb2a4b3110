// A JSON object from outside (config.json and its like): strict getters, errors that name the file and the field.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pop {

class JsonObject {
 public:
  // Throws Error: no such file, larger than `most` bytes, no JSON, nested deeper than 64, not an object.
  static JsonObject read(const std::string& path, uint64_t most = uint64_t(16) << 20);
  // The same from memory; `name` is used in messages.
  static JsonObject parse(std::string_view text, const std::string& name);

  // A field that is null counts as absent in every getter but has().
  bool has(std::string_view key) const;

  // find_X: empty if absent. X: an absent field is an error. Of another type or out of range: an error.
  std::optional<int64_t> find_int(std::string_view key, int64_t low, int64_t high) const;
  int64_t integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> find_real(std::string_view key, double low, double high) const;
  double real(std::string_view key, double low, double high) const;
  std::optional<std::string> find_string(std::string_view key) const;
  bool flag(std::string_view key, bool fallback) const;
  std::optional<JsonObject> find_object(std::string_view key) const;
  std::optional<std::vector<std::string>> find_strings(std::string_view key) const;
  // An integer or an array of them.
  std::vector<int64_t> integers(std::string_view key, int64_t low, int64_t high) const;

  // An array of numbers; required.
  std::vector<double> reals(std::string_view key, double low, double high) const;

  const nlohmann::json& all() const { return value_; }
  // Throws Error: "FILE: FIELD: expected EXPECTED, found VALUE".
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  JsonObject(std::string file, std::string prefix, nlohmann::json value)
      : file_(std::move(file)), prefix_(std::move(prefix)), value_(std::move(value)) {}
  const nlohmann::json* find(std::string_view key) const;

  std::string file_, prefix_;  // prefix: "" or "rope_scaling."
  nlohmann::json value_;
};

}  // namespace pop
