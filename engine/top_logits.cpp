#include "engine/top_logits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pop {
namespace {

std::vector<float> log_softmax(std::vector<float> values) {
  const float most = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const float v : values) sum += std::exp(double(v) - double(most));
  const auto shift = float(double(most) + std::log(sum));
  for (float& v : values) v -= shift;
  return values;
}

}  // namespace

TopLogits top_logits(std::span<const float> logits, int count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t kept = std::min(logits.size(), size_t(count));
  std::nth_element(ids.begin(), ids.begin() + ptrdiff_t(kept) - 1, ids.end(), [&](int32_t a, int32_t b) {
    return logits[size_t(a)] > logits[size_t(b)] || (logits[size_t(a)] == logits[size_t(b)] && a < b);
  });
  // Many are kept: not with room for the whole vocabulary.
  TopLogits top{.ids = {ids.begin(), ids.begin() + ptrdiff_t(kept)}, .log_probs = {}};
  std::vector<float> values;
  values.reserve(kept);
  for (const int32_t id : top.ids) values.push_back(logits[size_t(id)]);
  top.log_probs = log_softmax(std::move(values));
  return top;
}

double top_divergence(const TopLogits& dense, std::span<const float> logits) {
  std::vector<float> values;
  for (const int32_t id : dense.ids) values.push_back(logits[size_t(id)]);
  const std::vector<float> other = log_softmax(std::move(values));
  double sum = 0;
  for (size_t i = 0; i < other.size(); ++i)
    sum += std::exp(double(dense.log_probs[i])) * (double(dense.log_probs[i]) - double(other[i]));
  return sum;
}

}  // namespace pop
