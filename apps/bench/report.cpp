#include "apps/bench/report.h"

#include <fmt/format.h>

#include "base/cpu.h"

namespace pop::app {
namespace {

Json only(bool applies, double value) { return applies ? Json(value) : Json(nullptr); }

// The dense row that this one is compared with: everything else alike.
const Row* dense_beside(const std::vector<Row>& rows, const Row& row) {
  for (const Row& other : rows)
    if (other.spec.prune.method == "dense" && other.spec.threads == row.spec.threads &&
        other.spec.batch == row.spec.batch && other.spec.n_prompt == row.spec.n_prompt &&
        other.spec.context == row.spec.context)
      return &other;
  return nullptr;
}

// What pruning gained over dense, beside what the bytes it planned to read promise.
void add_gain(Json& json, const Report& report, const Row& row, const RowResult& result) {
  const Row* dense = dense_beside(report.rows, row);
  const PrunePlanInfo& plan = row.plan;
  const bool applies = dense != nullptr && dense != &row && row.spec.n_gen > 0;
  const RowResult base = applies ? result_of(*dense) : RowResult{};
  const double speedup = applies ? rate(result.decode_tokens_per_s, base.decode_tokens_per_s) : 0;
  // The cache is read whole by every method.
  const double kv = row.kv_bytes_per_token;
  const double ideal = (plan.dense_bytes + kv) / (plan.planned_bytes + kv);
  const double bare = (plan.dense_bytes + kv) / (plan.planned_bytes_without_candidates + kv);
  json["speedup"] = only(applies, speedup);
  json["total_speedup"] = only(applies, rate(base.total_s, result.total_s));
  json["byte_ideal"] = only(applies, ideal);
  json["share_of_ideal"] = only(applies, speedup / ideal);
  json["byte_ideal_without_candidates"] = only(applies, bare);
  json["share_of_ideal_without_candidates"] = only(applies, speedup / bare);
}

// Every round's own figure, as one text: "80.3 79.9 81.2".
std::string rounds(const Row& row, bool decode) {
  std::vector<std::string> out;
  for (const RowSample& s : row.samples)
    out.push_back(fmt::format("{:.2f}", decode ? rate(s.timing.decode_tokens, s.timing.decode_s)
                                               : rate(s.timing.prefill_tokens, s.timing.prefill_s)));
  return fmt::format("{}", fmt::join(out, " "));
}

Json row_json(const Report& report, const Row& row) {
  const RowResult r = result_of(row);
  const RowSpec& spec = row.spec;
  const bool decode = spec.n_gen > 0;
  Json json;
  json["name"] = decode ? fmt::format("tg{}", spec.n_gen) : fmt::format("pp{}", spec.n_prompt);
  json["type"] = report.info.file_type;
  json["threads"] = spec.threads;
  json["n_prompt"] = spec.n_prompt;
  json["n_gen"] = spec.n_gen;
  json["batch"] = spec.batch;
  json["context"] = decode ? std::max(spec.context, spec.n_prompt) : spec.n_prompt;
  json["method"] = row.plan.method;
  json["ratio"] = row.plan.ratio;
  json["gamma"] = row.plan.gamma;
  json["level"] = row.plan.level;
  json["layout"] = report.info.layout;
  json["activations"] = decode ? report.info.activations_decode : report.info.activations_prefill;
  json["prefill_tokens_per_s"] = r.prefill_tokens_per_s;
  json["prefill_s"] = r.prefill_s;
  json["partition_s"] = r.partition_s;
  json["select_s"] = only(decode, r.select_s);
  json["pack_s"] = r.pack_s;
  json["decode_s"] = only(decode, r.decode_s);
  json["total_s"] = r.total_s;
  json["decode_tokens_per_s"] = only(decode, r.decode_tokens_per_s);
  json["weight_bytes_per_token"] = only(decode, row.reads.weight_bytes_per_token);
  json["kv_bytes_per_token"] = only(decode, row.kv_bytes_per_token);
  json["forward_bytes"] = only(decode, row.forward_bytes);
  json["weights_read_share"] = only(decode, row.reads.weights_read_share);
  json["selected_share"] = only(decode, row.reads.selected_share);
  json["realised_ratio_blocks"] = only(decode, row.reads.realised.blocks);
  json["realised_ratio_active"] = only(decode, row.reads.realised.active);
  json["read_gbps"] = only(decode, r.read_bytes_per_s / 1e9);
  json["roof_gbps"] = r.roof / 1e9;
  json["share_of_roof"] = only(decode, r.share_of_roof);
  add_gain(json, report, row, r);
  json["rss_bytes"] = row.rss_bytes;
  json["runs"] = row.samples.size();
  json["spread"] = r.spread;
  json["rounds_tokens_per_s"] = rounds(row, decode);
  json["roof_repeats"] = r.repeats;
  json["mark"] = r.invalid ? "invalid" : r.unsteady ? "roof moved" : "";
  return json;
}

std::string number_or_dash(const Json& value, const char* format, double factor = 1) {
  return value.is_null() ? "-" : fmt::format(fmt::runtime(format), factor * value.get<double>());
}

}  // namespace

Json machine_json(const std::string& isa, const std::vector<RoofPoint>& roofs) {
  return {{"cpu", cpu_model_name()},
          {"threads", roofs.back().threads},
          {"isa", isa},
          {"roof_gbps", {{"1", roofs.front().bytes_per_s / 1e9}, {"N", roofs.back().bytes_per_s / 1e9}}}};
}

Json report_json(const Report& report) {
  Json json;
  json["machine"] = machine_json(report.info.isa, report.roofs);
  json["model"] = report.info.name;
  json["weights"] = report.weights;
  json["rows"] = Json::array();
  for (const Row& row : report.rows) json["rows"].push_back(row_json(report, row));
  return json;
}

std::string report_table(const Json& json) {
  const bool decode = !json["rows"][0]["decode_tokens_per_s"].is_null();
  std::vector<std::vector<std::string>> rows;
  if (decode)
    rows.push_back({"", "method", "ratio", "t", "batch", "ctx", "tok/s", "+-", "MB/tok", "GB/s", "of roof", "gain",
                    "ideal", "reached", "bare", ""});
  else
    rows.push_back({"", "method", "ratio", "t", "tok/s", "+-", "partition ms", ""});
  for (const Json& row : json["rows"]) {
    const std::string speed = number_or_dash(row[decode ? "decode_tokens_per_s" : "prefill_tokens_per_s"], "{:.1f}");
    std::vector<std::string> cells = {row["name"].get<std::string>(), row["method"].get<std::string>(),
                                      row["method"] == "dense" ? "-" : number_or_dash(row["ratio"], "{:.3g}"),
                                      to_text(row["threads"])};
    if (decode) {
      for (const char* key : {"batch", "context"}) cells.push_back(to_text(row[key]));
      const double bytes = row["weight_bytes_per_token"].get<double>() + row["kv_bytes_per_token"].get<double>();
      for (auto& cell :
           {speed, number_or_dash(row["spread"], "{:.0f}%", 100), fmt::format("{:.1f}", bytes / 1e6),
            number_or_dash(row["read_gbps"], "{:.1f}"), number_or_dash(row["share_of_roof"], "{:.0f}%", 100),
            number_or_dash(row["speedup"], "{:.3f}x"), number_or_dash(row["byte_ideal"], "{:.3f}x"),
            number_or_dash(row["share_of_ideal"], "{:.3f}"),
            number_or_dash(row["share_of_ideal_without_candidates"], "{:.3f}")})
        cells.push_back(cell);
    } else {
      for (auto& cell :
           {speed, number_or_dash(row["spread"], "{:.0f}%", 100), number_or_dash(row["partition_s"], "{:.2f}", 1e3)})
        cells.push_back(cell);
    }
    cells.push_back(row["mark"].get<std::string>());
    rows.push_back(std::move(cells));
  }
  const Json& machine = json["machine"];
  const int threads = machine["threads"].get<int>();
  std::string out = fmt::format("{}, {}; roof {:.1f} GB/s with 1 thread", machine["cpu"].get<std::string>(),
                                machine["isa"].get<std::string>(), machine["roof_gbps"]["1"].get<double>());
  if (threads > 1) out += fmt::format(", {:.1f} with {}", machine["roof_gbps"]["N"].get<double>(), threads);
  out += "\n";
  if (const std::string weights = json["weights"]; !weights.empty()) out += weights + "\n";
  return out + table(rows);
}

void write_rows_csv(const std::string& path, const Json& json) {
  std::vector<std::vector<std::string>> rows(1, {"cpu", "isa", "model"});
  for (const auto& [key, value] : json["rows"][0].items()) rows[0].push_back(key);
  for (const Json& row : json["rows"]) {
    std::vector<std::string> cells = {json["machine"]["cpu"].get<std::string>(),
                                      json["machine"]["isa"].get<std::string>(), json["model"].get<std::string>()};
    for (const auto& [key, value] : row.items())
      cells.push_back(value.is_string() ? value.get<std::string>() : value.is_null() ? "" : to_text(value));
    rows.push_back(std::move(cells));
  }
  write_csv(path, rows);
}

}  // namespace pop::app
