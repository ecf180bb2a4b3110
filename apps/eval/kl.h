// How far one model's distribution lies from another's: Kullback-Leibler divergence and what is reported with it.
//
// Conventions (docs/results.md names them too): direction base || other, natural logarithm, over the whole vocabulary;
// logits float32, everything after them float64. Equal logits give exactly 0.
#pragma once
#include <cstdint>
#include <span>

namespace pop::app {

// A row of logits as a distribution: ln p(v) = logits[v] - log_sum.
struct Distribution {
  int32_t top = 0;     // the likeliest token, of equals the lowest id
  double log_sum = 0;  // ln of the sum of exp(logit)
};

Distribution distribution(std::span<const float> logits);

struct TokenDivergence {
  double kl = 0;                       // nats
  bool same_top = false;               // both rank the same token first (of equals the lowest id)
  double nll_base = 0, nll_other = 0;  // -ln p(target)
};

// Of one position: base and other : [vocab], target in [0, vocab).
TokenDivergence diverge(std::span<const float> base, std::span<const float> other, int32_t target);

}  // namespace pop::app
