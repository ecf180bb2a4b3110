#include "prune/budget.h"

#include <cmath>

#include "base/error.h"

namespace pop {
namespace {

double checked_share(const char* option, double value) {
  if (!(value >= 0 && value <= 1)) fail("--{}: expected a number from 0 to 1, found {}", option, value);
  return value;
}

double ratio_of(const PruneOptions& options) { return checked_share("ratio", options.ratio.value_or(kDefaultRatio)); }

// The FFN weights that the ratio's base holds.
double prunable(const PruneOptions& options, const BlockWeights& weights) {
  return options.ratio_of == RatioOf::Active ? weights.active_ffn : weights.ffn;
}

[[noreturn]] void fail_out_of_reach(const PruneOptions& options, double ratio, double largest) {
  // Rounded down, so that what the message names works.
  fail("--ratio: {} is out of reach of method {} on this model; the largest possible is {:.4f}", ratio, options.method,
       std::floor(largest * 1e4) / 1e4);
}

}  // namespace

double elements(const Matrix& w) { return static_cast<double>(w.rows) * static_cast<double>(w.cols); }

BlockWeights count_weights(std::span<const LayerWeights> layers) {
  BlockWeights weights;
  for (const LayerWeights& layer : layers) {
    weights.attention += elements(layer.q) + elements(layer.k) + elements(layer.v) + elements(layer.o);
    for (const FfnWeights& ffn : layer.ffns) {
      const double all = elements(ffn.gate_up) + elements(ffn.down);
      weights.ffn += all;
      weights.active_ffn += all * ffn.use;
      const auto kind = static_cast<size_t>(kind_of(layer, ffn));
      weights.kinds[kind] += all;
      weights.active_kinds[kind] += all * ffn.use;
    }
  }
  return weights;
}

double ratio_base(const PruneOptions& options, const BlockWeights& weights) {
  if (options.ratio_of == RatioOf::Active) return weights.active();
  if (options.ratio_of == RatioOf::Blocks) return weights.all();
  const auto total = static_cast<double>(options.total_weights);
  if (total < weights.all()) fail("--ratio-of total: the number of the model's weights is not known");
  return total;
}

double ffn_sparsity(const PruneOptions& options, const BlockWeights& weights) {
  if (options.ffn_sparsity) {
    if (options.ratio) fail("--ratio and --ffn-sparsity: expected one of them, found both");
    return checked_share("ffn-sparsity", *options.ffn_sparsity);
  }
  const double ratio = ratio_of(options), base = ratio_base(options, weights);
  const double ffn = prunable(options, weights), p = ratio * base / ffn;
  if (p > 1 + 1e-12) fail_out_of_reach(options, ratio, ffn / base);
  return p > 1 ? 1 : p;  // the largest possible ratio itself may come out a rounding above 1
}

double ratio_of_sparsity(const PruneOptions& options, const BlockWeights& weights, double p) {
  if (!options.ffn_sparsity) return options.ratio.value_or(kDefaultRatio);
  return p * prunable(options, weights) / ratio_base(options, weights);
}

Ratios realised_ratios(const BlockWeights& weights, const LeftOut& left_out, double total_weights) {
  double all = weights.attention * left_out.attention, active = all;
  for (size_t kind = 0; kind < kFfnKinds; ++kind) {
    all += weights.kinds[kind] * left_out.ffns[kind];
    active += weights.active_kinds[kind] * left_out.ffns[kind];
  }
  return {.blocks = all / weights.all(), .active = active / weights.active(), .total = all / total_weights};
}

double column_level(const PruneOptions& options, const BlockWeights& weights) {
  const double ratio = ratio_of(options), base = ratio_base(options, weights);
  const double all = options.ratio_of == RatioOf::Active ? weights.active() : weights.all(), level = ratio * base / all;
  if (level > kMaxLevel + 1e-12) fail_out_of_reach(options, ratio, kMaxLevel * all / base);
  return level > kMaxLevel ? kMaxLevel : level;
}

}  // namespace pop
