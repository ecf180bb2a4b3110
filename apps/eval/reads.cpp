#include "apps/eval/reads.h"

#include <algorithm>

namespace pop::app {

void add_reads(ReadStats& total, const ReadStats& part) {
  if (part.tokens == 0) return;
  total.tokens += part.tokens;
  total.selections += part.selections;
  const double weight = double(part.tokens) / double(total.tokens);
  const auto blend = [&](double& mean, double value) { mean += weight * (value - mean); };
  blend(total.weight_bytes_per_token, part.weight_bytes_per_token);
  blend(total.weights_read_share, part.weights_read_share);
  blend(total.block_weights_read_share, part.block_weights_read_share);
  blend(total.selected_share, part.selected_share);
  blend(total.realised.blocks, part.realised.blocks);
  blend(total.realised.active, part.realised.active);
  blend(total.realised.total, part.realised.total);
  for (const FfnReads& ffn : part.ffns) {  // of one model, so that both have the same kinds
    auto mine = std::find_if(total.ffns.begin(), total.ffns.end(), [&](const auto& f) { return f.kind == ffn.kind; });
    if (mine == total.ffns.end()) mine = total.ffns.insert(mine, {.kind = ffn.kind});
    blend(mine->per_token, ffn.per_token);
    blend(mine->weight_bytes_per_token, ffn.weight_bytes_per_token);
    blend(mine->left_out, ffn.left_out);
  }
}

Json to_json(const ReadStats& reads) {
  return {{"tokens", reads.tokens},
          {"weight_bytes_per_token", reads.weight_bytes_per_token},
          {"weights_read_share", reads.weights_read_share},
          {"block_weights_read_share", reads.block_weights_read_share},
          {"selected_share", reads.selected_share},
          {"realised_ratio", to_json(reads.realised)},
          {"ffn_reads", to_json(reads.ffns)}};
}

ReadStats reads_from(const Json& json) {
  ReadStats reads;
  if (!json.is_object()) return reads;
  const auto number_of = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  const auto number = [&](const char* name) { return number_of(json, name); };
  reads.tokens = static_cast<uint64_t>(std::max(0.0, number("tokens")));
  reads.weight_bytes_per_token = number("weight_bytes_per_token");
  reads.weights_read_share = number("weights_read_share");
  reads.block_weights_read_share = number("block_weights_read_share");
  reads.selected_share = number("selected_share");
  if (const auto found = json.find("realised_ratio"); found != json.end() && found->is_object())
    reads.realised = {number_of(*found, "blocks"), number_of(*found, "active"), number_of(*found, "total")};
  if (const auto found = json.find("ffn_reads"); found != json.end() && found->is_object())
    for (const auto& [kind, ffn] : found->items())
      if (ffn.is_object())
        reads.ffns.push_back({.kind = kind,
                              .per_token = number_of(ffn, "per_token"),
                              .weight_bytes_per_token = number_of(ffn, "weight_bytes_per_token"),
                              .left_out = number_of(ffn, "left_out")});
  return reads;
}

}  // namespace pop::app
