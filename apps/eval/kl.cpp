#include "apps/eval/kl.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pop::app {
namespace {

struct Distribution {
  int32_t top = 0;
  double log_sum = 0;  // ln of the sum of exp(logit)
};

Distribution distribution(std::span<const float> logits) {
  Distribution out;
  out.top = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const double top = logits[out.top];
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - top);
  out.log_sum = top + std::log(sum);
  return out;
}

// SplitMix64: a few lines that give the same numbers everywhere, which the distributions of <random> do not promise.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

TokenDivergence diverge(std::span<const float> base, std::span<const float> other, int32_t target) {
  const Distribution b = distribution(base), o = distribution(other);
  double kl = 0;
  for (size_t v = 0; v < base.size(); ++v) {
    const double log_base = double(base[v]) - b.log_sum, log_other = double(other[v]) - o.log_sum;
    const double p = std::exp(log_base);
    if (p > 0) kl += p * (log_base - log_other);  // 0 ln 0 = 0, also where a logit is -inf
  }
  return {kl, b.top == o.top, b.log_sum - base[target], o.log_sum - other[target]};
}

Interval bootstrap_mean(std::span<const double> values, uint64_t seed, int draws) {
  std::vector<double> means;
  for (int draw = 0; draw < draws; ++draw) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[next_random(seed) % values.size()];
    means.push_back(sum / double(values.size()));
  }
  return {percentile(means, 0.025), percentile(means, 0.975)};
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * double(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - double(below)) * (values[above] - values[below]);
}

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

}  // namespace pop::app
