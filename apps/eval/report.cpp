#include "apps/eval/report.h"

namespace pop::app {
namespace {

std::string cell(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : to_text(value);
}

bool is_interval(const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number();
}

void add_columns(const std::string& name, const Json& value, std::vector<std::pair<std::string, std::string>>& out) {
  if (value.is_object()) {
    for (const auto& [part, inner] : value.items()) add_columns(name.empty() ? part : name + "_" + part, inner, out);
  } else if (is_interval(value)) {
    out.emplace_back(name + "_low", cell(value[0]));
    out.emplace_back(name + "_high", cell(value[1]));
  } else if (!value.is_array()) {
    out.emplace_back(name, cell(value));
  }
}

}  // namespace

Json to_json(const Interval& interval) { return Json::array({interval.low, interval.high}); }

std::vector<std::pair<std::string, std::string>> flatten(const Json& result) {
  std::vector<std::pair<std::string, std::string>> out;
  add_columns("", result, out);
  return out;
}

void write_result_row(const std::string& path, const Json& result) {
  std::vector<std::vector<std::string>> rows(2);
  for (auto& [column, text] : flatten(result)) {
    rows[0].push_back(column);
    rows[1].push_back(text);
  }
  write_csv(path, rows);
}

}  // namespace pop::app
