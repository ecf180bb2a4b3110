// flap: FLAP (arXiv 2312.11983), the FFN half of its default (metric WIFV, mode AL-AM), after its code. A channel's score is the
// fluctuation of its activation times the squared norm of its column, F_k * sum_i W_down[i,k]^2; scores are standardised in
// each layer and ranked over all layers together; what the removed channels gave on average is added as a bias. Here a layer is an
// FFN: of a mixture of experts each stands for itself, by the tokens that went through it.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "prune/calibration.h"
#include "prune/importance.h"
#include "prune/methods/mask.h"
#include "prune/methods/methods.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// (s - mean) / deviation over an FFN's channels, divisor n - 1; where nothing varies all are 0.
std::vector<double> standardised(std::vector<double> scores, int layer) {
  const auto n = static_cast<double>(scores.size());
  const double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / n;
  double squares = 0;
  for (const double s : scores) squares += (s - mean) * (s - mean);
  const double deviation = std::sqrt(squares / std::max(1.0, n - 1));
  if (!std::isfinite(deviation)) fail("--calibration: layer {}: the fluctuations are too large to be compared", layer);
  for (double& s : scores) s = deviation > 0 ? (s - mean) / deviation : 0;
  return scores;
}

// 1 for each channel that goes, of all FFNs: the `removed` lowest z; of equals the lower FFN and channel stay.
std::vector<uint8_t> removed_channels(const std::vector<double>& z, size_t removed) {
  std::vector<size_t> order(z.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto goes_first = [&](size_t a, size_t b) { return z[a] < z[b] || (z[a] == z[b] && a > b); };
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(removed), order.end(), goes_first);
  std::vector<uint8_t> goes(z.size());
  for (size_t i = 0; i < removed; ++i) goes[order[i]] = 1;
  return goes;
}

// sum over the removed channels k, ascending, of m_k * W_down[:,k]: [d].
std::vector<float> bias_of(const Matrix& down, std::span<const double> mean, std::span<const int32_t> removed) {
  std::vector<float> row(static_cast<size_t>(down.cols)), bias;
  if (removed.empty()) return bias;
  for (int j = 0; j < down.rows; ++j) {
    read_row(down, j, row.data());
    double sum = 0;
    for (const int32_t k : removed)
      sum += mean[static_cast<size_t>(k)] * static_cast<double>(row[static_cast<size_t>(k)]);
    bias.push_back(static_cast<float>(sum));
  }
  return bias;
}

}  // namespace

std::unique_ptr<Policy> create_flap(const PruneOptions& options, const PolicyContext& context) {
  StaticMask mask{.plan = mask_plan(options, context), .masks = {}, .bias = {}};
  if (options.calibration->sequences < 2)  // the first adds nothing to F: every channel would be as good as any other
    fail("--calibration: flap expects the statistics of 2 sequences or more, found {}", options.calibration->sequences);
  std::vector<std::vector<Matrix>> stacks;
  for (const FfnWeights* ffn : context.ffns) stacks.push_back({ffn->down});
  const std::vector<std::vector<float>> norms = column_norm_tables(stacks, Norm::Two, *context.pool);
  std::vector<double> z;
  for (size_t i = 0; i < norms.size(); ++i) {
    std::vector<double> scores = options.calibration->ffns[i].fluctuation;
    for (size_t k = 0; k < scores.size(); ++k)
      scores[k] *= static_cast<double>(norms[i][k]) * static_cast<double>(norms[i][k]);
    const std::vector<double> of_ffn = standardised(std::move(scores), context.ffns[i]->layer);
    z.insert(z.end(), of_ffn.begin(), of_ffn.end());
  }
  // Exactly the target goes; the reference's "strictly greater than the threshold" takes one more.
  const std::vector<uint8_t> goes =
      removed_channels(z, static_cast<size_t>(std::round(mask.plan.ffn_sparsity * static_cast<double>(z.size()))));
  size_t at = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    Partition& p = mask.masks.emplace_back();
    for (size_t k = 0; k < norms[i].size(); ++k, ++at) {
      (goes[at] != 0 ? p.pruned : p.retained).push_back(static_cast<int32_t>(k));
      p.scores.push_back(static_cast<float>(z[at]));
    }
    mask.bias.push_back(bias_of(context.ffns[i]->down, options.calibration->ffns[i].mean, p.pruned));
  }
  return static_mask(std::move(mask));
}

}  // namespace pop
