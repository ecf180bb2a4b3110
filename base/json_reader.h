// Strict reading of JSON that came with a model: every wrong type is an error that names the file and the member.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace pop {

// Parses `bytes`. Throws Error "file: ..." for text that is not JSON, with the byte, and for values nested deeper than 64.
nlohmann::json parse_json(std::string_view bytes, const std::string& file);

// A value and how a message names it: "tokenizer.json: model.vocab".
class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string name) : value_(value), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  const nlohmann::json& value() const { return value_; }
  bool is_null() const { return value_.is_null(); }

  // A member of an object; a null value if there is none.
  JsonReader at(const char* key) const;
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_[key].is_null(); }
  JsonReader element(size_t index) const;  // of an array
  size_t size() const;                     // of an array; an error for anything else

  const std::string& text() const;
  bool flag() const;
  bool flag(bool otherwise) const { return is_null() ? otherwise : flag(); }
  double number() const;
  int32_t id() const;  // a token id: an integer from 0 to below 2^22

  // Throws Error "NAME: expected EXPECTED, found FOUND".
  [[noreturn]] void expected(const std::string& what) const;

 private:
  const nlohmann::json& value_;
  std::string name_;
};

}  // namespace pop
