// From logits to a token: repetition penalty, top-k, top-p, min-p, temperature, draw - in this order.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/pop.h"
#include "kernels/kernels.h"

namespace pop {

class Sampler {
 public:
  // Throws Error naming the option: temp < 0 or not finite, top_p or min_p outside [0, 1], repeat_penalty <= 0.
  Sampler(const SamplingOptions& options, const KernelTable& kernels);

  // seen: prompt and answer so far (for the penalty). Greedy (temp 0, or so small that it comes to the same): the largest
  // logit, ties to the lowest id. top_k <= 0 switches that filter off; top_p 0 keeps one token.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> seen);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void penalise(std::span<const int32_t> seen);
  int32_t draw_from_all(float best);
  void filter(float best);  // best: the largest of logits_
  double uniform();         // [0, 1)

  SamplingOptions options_;
  const KernelTable& kernels_;
  uint64_t state_;
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace pop
