#include "apps/pop/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/pop/dump.h"

namespace pop::app {
namespace {

// An option that does not apply to the method is null, not an empty string.
Json word(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

void add_common(Json& json, const ModelInfo& info, const PrunePlanInfo& plan, const ReadStats& reads) {
  json["method"] = plan.method;
  json["ratio"] = plan.ratio;
  json["ratio_of"] = word(plan.ratio_of);
  json["ffn_sparsity"] = plan.ffn_sparsity;
  json["gamma"] = plan.gamma;
  json["metric"] = word(plan.metric);
  json["decode_metric"] = word(plan.decode_metric);
  json["norm"] = word(plan.norm);
  json["prefill"] = word(plan.prefill);
  json["plus_rule"] = word(plan.plus_rule);
  json["repaired"] = word(plan.repaired);
  json["few_tokens"] = word(plan.few_tokens);
  json["min_tokens"] = plan.few_tokens.empty() ? Json() : Json(plan.min_tokens);
  json["refresh"] = plan.refresh > 0 ? Json(plan.refresh) : Json(nullptr);
  json["refresh_last"] = plan.refresh > 0 ? Json(plan.refresh_last) : Json(nullptr);
  json["level"] = plan.level;
  json["calibration"] = word(plan.calibration);
  json["isa"] = info.isa;
  json["threads"] = info.threads;
  json["activations"] = info.activations_decode;
  json["activations_prefill"] = info.activations_prefill;
  json["kv"] = info.kv;
  json["bos"] = info.bos;
  json["model_sha256"] = info.model_sha256;
  if (!info.load_as.empty()) json["load_as"] = info.load_as;
  json["version"] = build_info().version;
  const bool measured = reads.tokens > 0;  // with no token decoded there is no mean
  json["weight_bytes_per_token"] = measured ? Json(reads.weight_bytes_per_token) : Json(nullptr);
  json["weights_read_share"] = measured ? Json(reads.weights_read_share) : Json(nullptr);
  json["block_weights_read_share"] = measured ? Json(reads.block_weights_read_share) : Json(nullptr);
  json["selected_share"] = measured ? Json(reads.selected_share) : Json(nullptr);
  json["realised_ratio"] = measured ? to_json(reads.realised) : Json(nullptr);
  json["ffn_reads"] = measured ? to_json(reads.ffns) : Json(nullptr);
  json["layout"] = info.layout;
}

Json to_json(const RealisedRatio& realised) {
  return {{"blocks", realised.blocks}, {"active", realised.active}, {"total", realised.total}};
}

Json to_json(const std::vector<FfnReads>& ffns) {
  Json json = Json::object();
  for (const FfnReads& reads : ffns)
    json[reads.kind] = {{"per_token", reads.per_token},
                        {"weight_bytes_per_token", reads.weight_bytes_per_token},
                        {"left_out", reads.left_out}};
  return json;
}

Json run_json(const ModelInfo& info, const PrunePlanInfo& plan, const GenerateResult& result) {
  const Timing& t = result.timing;
  Json json;
  json["text"] = result.text;
  json["ids"] = result.ids;
  json["prompt_tokens"] = result.prompt_tokens;
  json["generated_tokens"] = result.generated_tokens;
  json["finish_reason"] = result.finish_reason;
  json["timing"] = {{"load_s", info.load_s},
                    {"prefill_s", t.prefill_s},
                    {"partition_s", t.partition_s},
                    {"decode_s", t.decode_s},
                    {"refresh_s", t.refresh_s},
                    {"prefill_tokens_per_s", rate(t.prefill_tokens, t.prefill_s)},
                    {"decode_tokens_per_s", rate(t.decode_tokens, t.decode_s)}};
  json["logits_hash"] = result.logits_hash;
  if (!result.profile.empty()) json["profile"] = profile_json(result.profile);
  add_common(json, info, plan, result.reads);
  return json;
}

Json score_json(const Engine& engine, const PrunePlanInfo& plan, const ScoreRequest& request,
                const ScoreResult& result) {
  Json json;
  json["ids"] = request.ids;
  json["split"] = request.split < 0 ? static_cast<int>(request.ids.size()) : request.split;
  json["logprobs"] = result.logprobs;
  json["nll_sum"] = result.nll_sum;
  json["scored"] = result.scored;
  json["nll_decode_sum"] = result.nll_decode_sum;
  json["scored_decode"] = result.scored_decode;
  json["top"] = Json::array();
  for (const TopToken& top : result.top)
    json["top"].push_back({{"id", top.id}, {"text", engine.token_text(top.id)}, {"logit", top.logit}});
  json["partition"] = Json::array();
  for (const PartitionSummary& part : result.partition)
    json["partition"].push_back({{"layer", part.layer},
                                 {"expert", part.expert},
                                 {"retained", part.retained},
                                 {"candidate", part.candidate},
                                 {"pruned", part.pruned},
                                 {"retained_first", part.retained_first}});
  json["finish_reason"] = result.finish_reason;
  json["logits_hash"] = result.logits_hash;
  if (!result.profile.empty()) json["profile"] = profile_json(result.profile);
  add_common(json, engine.info(), plan, result.reads);
  return json;
}

Json profile_json(const std::vector<ProfilePart>& profile) {
  Json json = Json::array();
  for (const ProfilePart& part : profile)
    json.push_back(
        {{"part", part.name}, {"prefill_s", part.prefill_s}, {"decode_s", part.decode_s}, {"bytes", part.bytes}});
  return json;
}

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void print_json(const Json& json) { fmt::print("{}\n", to_text(json)); }

std::string describe(const PrunePlanInfo& plan) {
  std::string out = plan.method;
  if (plan.method == "dense") return out;
  out += fmt::format(", ratio {:.4g}", plan.ratio);
  if (plan.ffn_sparsity > 0) out += fmt::format(" (FFN {:.4g})", plan.ffn_sparsity);
  if (plan.gamma > 0) out += fmt::format(", gamma {:.4g}", plan.gamma);
  if (plan.level > 0) out += fmt::format(", level {:.4g}", plan.level);
  if (plan.prefill == "pruned") out += ", prompt pruned too";
  return out;
}

std::string describe(const GenerateResult& result) {
  const Timing& t = result.timing;
  std::string out = fmt::format("{} prompt tokens", result.prompt_tokens);
  if (result.cached_tokens > 0) out += fmt::format(" ({} kept)", result.cached_tokens);
  if (t.prefill_s > 0) out += fmt::format(" at {:.0f}/s", rate(t.prefill_tokens, t.prefill_s));
  out += fmt::format(", {} tokens", result.generated_tokens);
  if (t.decode_tokens > 0) out += fmt::format(" at {:.1f}/s", rate(t.decode_tokens, t.decode_s));
  if (result.reads.tokens > 0)
    out += fmt::format(", {:.1f} MB of weights per token ({:.3f} of dense)", result.reads.weight_bytes_per_token / 1e6,
                       result.reads.weights_read_share);
  if (const std::string realised = describe_realised(result.reads); !realised.empty()) out += ", " + realised;
  return out;
}

std::string describe_realised(const ReadStats& reads) {
  const bool experts =
      std::any_of(reads.ffns.begin(), reads.ffns.end(), [](const auto& f) { return f.kind == "routed"; });
  if (!experts || reads.realised.active == 0) return "";
  return fmt::format("left out {:.3f} of a token's blocks, {:.3f} of all blocks", reads.realised.active,
                     reads.realised.blocks);
}

std::string profile_table(const std::vector<ProfilePart>& profile) {
  ProfilePart total{.name = "total"};
  for (const ProfilePart& part : profile) {
    total.prefill_s += part.prefill_s;
    total.decode_s += part.decode_s;
    total.bytes += part.bytes;
  }
  const auto share = [](double seconds, double of) {
    return fmt::format("{:.1f}%", of > 0 ? 100 * seconds / of : 0.0);
  };
  std::vector<std::vector<std::string>> rows = {{"part", "prefill ms", "share", "decode ms", "share", "MB", "GB/s"}};
  const auto add = [&](const ProfilePart& part) {
    rows.push_back({part.name, fmt::format("{:.2f}", part.prefill_s * 1e3), share(part.prefill_s, total.prefill_s),
                    fmt::format("{:.2f}", part.decode_s * 1e3), share(part.decode_s, total.decode_s),
                    fmt::format("{:.1f}", double(part.bytes) / 1e6),
                    part.bytes ? fmt::format("{:.1f}", rate(double(part.bytes), part.decode_s) / 1e9) : "-"});
  };
  for (const ProfilePart& part : profile)
    if (part.prefill_s > 0 || part.decode_s > 0) add(part);
  add(total);
  return table(rows);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width_of(row[i]), ' ');
      if (i > 0) line += "  ";
      line += i == 0 ? row[i] + pad : pad + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void write_csv(const std::string& path, const std::vector<std::vector<std::string>>& rows) {
  OutputFile file(path);
  for (const auto& row : rows) {
    std::string line;
    for (const auto& cell : row) line += csv_field(cell) + ",";
    if (!line.empty()) line.pop_back();
    file.write(line + "\n");
  }
  file.close();
}

}  // namespace pop::app
