#include "apps/eval/samples.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/eval/reads.h"
#include "apps/pop/args.h"
#include "base/error.h"

namespace pop::app {
namespace {

// lm-eval writes every value of its lists as Python's text of it; so do we, so that one reader serves both.
Json as_texts(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_array()) return value.is_string() ? value : Json(to_text(value));
  Json out = Json::array();
  for (const Json& entry : value) out.push_back(as_texts(entry));
  return out;
}

Json argument_names(const Json& arguments) {
  Json out = Json::object();
  for (size_t i = 0; i < arguments.size(); ++i) {
    Json& one = out[fmt::format("gen_args_{}", i)] = Json::object();
    for (size_t j = 0; j < arguments[i].size(); ++j) one[fmt::format("arg_{}", j)] = arguments[i][j];
  }
  return out;
}

// The first field in which two identities differ, as "NAME: expected A, found B".
std::string difference(const Json& wanted, const Json& found) {
  for (const auto& [key, value] : wanted.items())
    if (!found.contains(key) || found[key] != value)
      return fmt::format("{}: expected {}, found {}", key, printable(to_text(value)),
                         found.contains(key) ? printable(to_text(found[key])) : "nothing");
  for (const auto& [key, value] : found.items())
    if (!wanted.contains(key)) return fmt::format("{}: expected nothing, found {}", key, printable(to_text(value)));
  return "";
}

}  // namespace

Json to_json(const Sample& s, const Json& run) {
  Json json;
  json["doc_id"] = s.doc_id;
  json["target"] = s.target;
  json["arguments"] = argument_names(s.arguments);
  json["resps"] = as_texts(s.resps);
  json["filtered_resps"] = as_texts(s.filtered_resps);
  json["filter"] = s.filter;
  json["metrics"] = Json::array();
  for (const auto& [name, value] : s.metrics.items()) json["metrics"].push_back(name);
  json["doc_hash"] = s.doc_hash;
  json["prompt_hash"] = sha256_text(s.prompt);
  json["target_hash"] = sha256_text(s.target);
  for (const auto& [name, value] : s.metrics.items()) json[name] = value;
  if (!s.cluster.empty()) json["cluster"] = s.cluster;
  for (const auto& [name, value] : s.more.items()) json[name] = value;
  json["reads"] = to_json(s.reads);
  json["run"] = run;
  return json;
}

Json run_identity(const ModelInfo& info, const PrunePlanInfo& plan, const PruneSettings& settings) {
  Json run;
  add_common(run, info, plan, {});
  for (const char* name : {"threads", "weight_bytes_per_token", "weights_read_share", "block_weights_read_share",
                           "selected_share", "realised_ratio", "ffn_reads"})
    run.erase(name);
  if (settings.seed) run["seed"] = *settings.seed;
  if (!settings.partition.empty()) run["partition"] = settings.partition;
  return run;
}

SampleFile::SampleFile(std::string path, Json run, size_t filters)
    : path_(std::move(path)), run_(std::move(run)), filters_(filters) {
  if (path_.empty()) return;
  std::error_code missing;
  if (std::filesystem::exists(path_, missing)) load();
  file_ = std::fopen(path_.c_str(), "ab");
  if (!file_) fail("{}: cannot be opened: {}", printable(path_, 400), std::strerror(errno));
}

SampleFile::~SampleFile() {
  if (file_) std::fclose(file_);
}

void SampleFile::load() {
  const std::string bytes = read_file(path_);
  std::vector<size_t> ends;  // of the lines, in bytes
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = bytes.find('\n', at);
    if (end == std::string::npos) break;  // the program was ended while it wrote
    add_line(bytes.substr(at, end - at), ends.size() + 1);
    at = end + 1;
    ends.push_back(at);
  }
  drop_incomplete_item(ends);
}

void SampleFile::add_line(const std::string& text, size_t number) {
  const std::string where = fmt::format("{}:{}", printable(path_, 400), number);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("doc_id") || !json["doc_id"].is_number_integer())
    fail("{}: expected a line of per-item results, found '{}'", where, printable(text));
  const std::string differs = difference(run_, json.contains("run") ? json["run"] : Json::object());
  if (!differs.empty())
    fail("{}: the results there are of another run: {}; remove the file or name another", where, differs);
  last_ = json["doc_id"].get<int64_t>();
  auto& lines = lines_[last_];
  if (lines.size() == filters_) fail("{}: item {} stands there twice", where, last_);
  lines.push_back(std::move(json));
}

void SampleFile::drop_incomplete_item(const std::vector<size_t>& ends) {
  size_t kept = ends.size();
  if (last_ >= 0 && lines_[last_].size() < filters_) {
    kept -= lines_[last_].size();
    lines_.erase(last_);
  }
  for (const auto& [id, lines] : lines_)
    if (lines.size() != filters_)
      fail("{}: item {}: expected {} lines, found {}", printable(path_, 400), id, filters_, lines.size());
  std::filesystem::resize_file(path_, kept == 0 ? 0 : ends[kept - 1]);
}

void SampleFile::add(const std::vector<Sample>& samples) {
  std::string text;
  auto& lines = lines_[samples.at(0).doc_id];
  for (const Sample& sample : samples) {
    lines.push_back(to_json(sample, run_));
    text += to_text(lines.back()) + "\n";
  }
  if (file_ && (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0))
    fail("{}: could not be written: {}", printable(path_, 400), std::strerror(errno));
}

ReadStats SampleFile::reads(std::span<const int64_t> ids) const {
  ReadStats total;
  for (const int64_t id : ids)
    if (const auto found = lines_.find(id); found != lines_.end())
      add_reads(total, reads_from(line_field(found->second[0], "reads")));
  return total;
}

const Json& line_field(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end())
    fail("per-item results: item {}: expected \"{}\", found none", to_text(line.at("doc_id")), name);
  return *found;
}

std::vector<double> metric_values(const SampleFile& file, std::span<const int64_t> ids, const std::string& metric,
                                  const std::string& filter) {
  std::vector<double> out;
  for (const int64_t id : ids) {
    const auto found = file.lines().find(id);
    if (found == file.lines().end()) continue;
    for (const Json& line : found->second)
      if (line_field(line, "filter") == filter) out.push_back(line_field(line, metric.c_str()).get<double>());
  }
  return out;
}

std::vector<std::string> cluster_names(const SampleFile& file, std::span<const int64_t> ids) {
  std::vector<std::string> out;
  for (const int64_t id : ids)
    if (const auto found = file.lines().find(id); found != file.lines().end())
      out.push_back(found->second[0].value("cluster", ""));
  return out;
}

}  // namespace pop::app
