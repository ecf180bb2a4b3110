// How far one model's distribution lies from another's: Kullback-Leibler divergence and what is reported with it.
//
// Conventions (docs/results.md names them too): direction base || other, natural logarithm, over the whole vocabulary;
// logits float32, everything after them float64. Equal logits give exactly 0.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace pop::app {

struct TokenDivergence {
  double kl = 0;                       // nats
  bool same_top = false;               // both rank the same token first (of equals the lowest id)
  double nll_base = 0, nll_other = 0;  // -ln p(target)
};

// Of one position: base and other : [vocab], target in [0, vocab).
TokenDivergence diverge(std::span<const float> base, std::span<const float> other, int32_t target);

struct Interval {
  double low = 0, high = 0;
};

// 95 % interval of the mean by the bootstrap: whole windows are drawn, since tokens of a window are not independent.
// The same seed gives the same interval. values: one mean per window, at least one.
Interval bootstrap_mean(std::span<const double> values, uint64_t seed, int draws = 2000);

// Linear interpolation at share * (n - 1) of the sorted values; values: at least one.
double percentile(std::vector<double> values, double share);

double mean(std::span<const double> values);

}  // namespace pop::app
