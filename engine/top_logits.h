// What Týr's search (arXiv 2503.09657) judges by: the divergence over the largest logits of the dense model alone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace pop {

// The largest logits at one position, as log-probabilities among themselves.
struct TopLogits {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
};
TopLogits top_logits(std::span<const float> logits, int count);

// KL(dense, other) in nats over those tokens, both made to sum to 1 there. Blind to what `other` gives all the rest.
double top_divergence(const TopLogits& dense, std::span<const float> logits);

}  // namespace pop
