#include "apps/eval/kl.h"

#include <algorithm>
#include <cmath>

namespace pop::app {
Distribution distribution(std::span<const float> logits) {
  Distribution out;
  out.top = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const double top = logits[out.top];
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - top);
  out.log_sum = top + std::log(sum);
  return out;
}

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

}  // namespace pop::app
