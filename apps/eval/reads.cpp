#include "apps/eval/reads.h"

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
}

Json to_json(const ReadStats& reads) {
  return {{"tokens", reads.tokens},
          {"weight_bytes_per_token", reads.weight_bytes_per_token},
          {"weights_read_share", reads.weights_read_share},
          {"block_weights_read_share", reads.block_weights_read_share},
          {"selected_share", reads.selected_share}};
}

ReadStats reads_from(const Json& json) {
  ReadStats reads;
  if (!json.is_object()) return reads;
  const auto number = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  reads.tokens = static_cast<uint64_t>(std::max(0.0, number("tokens")));
  reads.weight_bytes_per_token = number("weight_bytes_per_token");
  reads.weights_read_share = number("weights_read_share");
  reads.block_weights_read_share = number("block_weights_read_share");
  reads.selected_share = number("selected_share");
  return reads;
}

}  // namespace pop::app
