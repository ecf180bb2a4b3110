// Per-item results: JSON Lines in the shape of lm-eval's samples, which can be continued after an interruption.
//
// A line has lm-eval's fields doc_id, target, arguments, resps, filtered_resps, filter, metrics, doc_hash, prompt_hash,
// target_hash and the metrics by name; of ours are "cluster" (items that share something, for intervals), "reads" (weights
// that decode read) and "run" (everything that decides the line's values, so that a file says what it is).
#pragma once
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/eval/items.h"
#include "apps/pop/results.h"

namespace pop::app {

struct Sample {
  int64_t doc_id = 0;
  std::string doc_hash, prompt, target, filter = "none", cluster;
  Json arguments = Json::array();       // [[context, continuation], ...] or [[context, {"until": ...}]]
  Json resps = Json::array();           // multiple choice: [[[log-likelihood, greedy]], ...]; generation: [[text]]
  Json filtered_resps = Json::array();  // [[log-likelihood, greedy], ...] or [text]
  Json metrics = Json::object();        // name -> number; also written by name beside
  Json more = Json::object();           // further fields
  ReadStats reads;
};

Json to_json(const Sample& sample, const Json& run);

// What decides a line's values beside the item itself: the options as they came out, the model, the instruction set, the build;
// add to it the task, the mode, the items' sha256. Threads and batch are not in it: they change no bit.
Json run_identity(const ModelInfo& info, const PrunePlanInfo& plan, const PruneSettings& settings);

// The lines there are, and the file they are kept in.
class SampleFile {
 public:
  // path "": kept in memory only. A file that is there is continued: its lines must be of the same `run` (else Error naming
  // the first field that differs), and what an interruption left of the last item is cut off. An item has `filters` lines.
  SampleFile(std::string path, Json run, size_t filters = 1);
  ~SampleFile();
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  bool has(int64_t doc_id) const { return lines_.contains(doc_id); }
  // All lines of one item, written at once.
  void add(const std::vector<Sample>& lines);
  // By item, ascending; each has `filters` lines.
  const std::map<int64_t, std::vector<Json>>& lines() const { return lines_; }
  // Weights read, over the decoded tokens of those of these items that are done.
  ReadStats reads(std::span<const int64_t> ids) const;

 private:
  void load();
  void add_line(const std::string& text, size_t number);
  void drop_incomplete_item(const std::vector<size_t>& ends);

  std::string path_;
  Json run_;
  size_t filters_;
  std::FILE* file_ = nullptr;
  std::map<int64_t, std::vector<Json>> lines_;
  int64_t last_ = -1;  // the item of the last line
};

// A field of a line. Throws Error naming the item and the field.
const Json& line_field(const Json& line, const char* name);

// A metric of the lines of one filter, in the order of `ids`, of the items that are done. The names of their clusters.
std::vector<double> metric_values(const SampleFile& file, std::span<const int64_t> ids, const std::string& metric,
                                  const std::string& filter = "none");
std::vector<std::string> cluster_names(const SampleFile& file, std::span<const int64_t> ids);

}  // namespace pop::app
