#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pop {
namespace {

void check(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) fail("{}: expected {} to {}, found {}", name, low, high, value);
}

// Below it a softmax at this temperature is a one-hot vector in float64 for logits a millionth apart.
constexpr double kGreedyBelow = 1e-7;

}  // namespace

Sampler::Sampler(const SamplingOptions& options, const KernelTable& kernels)
    : options_(options), kernels_(kernels), state_(options.seed) {
  check("temp", options.temp, 0, 1e9);
  check("top_p", options.top_p, 0, 1);
  check("min_p", options.min_p, 0, 1);
  check("repeat_penalty", options.repeat_penalty, 1e-6, 1e6);
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> seen) {
  const bool greedy = options_.temp < kGreedyBelow;
  if (greedy && options_.repeat_penalty == 1) return kernels_.argmax(logits.data(), int(logits.size()));
  logits_.assign(logits.begin(), logits.end());
  if (options_.repeat_penalty != 1) penalise(seen);
  if (greedy) return kernels_.argmax(logits_.data(), int(logits_.size()));

  candidates_.resize(logits_.size());
  for (size_t i = 0; i < logits_.size(); ++i) candidates_[i] = {logits_[i], int32_t(i)};
  filter();
  const double best = candidates_[0].logit;
  weights_.resize(candidates_.size());
  double total = 0;
  for (size_t i = 0; i < candidates_.size(); ++i)
    total += weights_[i] = std::exp((double(candidates_[i].logit) - best) / options_.temp);
  double left = uniform() * total;
  for (size_t i = 0; i < candidates_.size(); ++i)
    if ((left -= weights_[i]) < 0) return candidates_[i].id;
  return candidates_.back().id;
}

// As in CTRL (arXiv 1909.05858) and Hugging Face transformers: a seen token's logit is divided if positive, multiplied if negative.
void Sampler::penalise(std::span<const int32_t> seen) {
  const auto penalty = float(options_.repeat_penalty);
  std::vector<int32_t> once(seen.begin(), seen.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const int32_t id : once) {
    float& logit = logits_[size_t(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Leaves the candidates sorted by falling logit (ties: lower id first) and cut by top-k, top-p and min-p.
void Sampler::filter() {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  size_t keep = candidates_.size();
  if (options_.top_k > 0) keep = std::min(keep, size_t(options_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + std::ptrdiff_t(keep), candidates_.end(), before);
  candidates_.resize(keep);
  const double best = candidates_[0].logit;
  if (options_.top_p < 1) {
    double total = 0;
    for (const Candidate& c : candidates_) total += std::exp(double(c.logit) - best);
    double sum = 0;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || sum < options_.top_p * total))
      sum += std::exp(double(candidates_[count++].logit) - best);
    candidates_.resize(count);
  }
  if (options_.min_p > 0) {
    size_t count = 1;
    while (count < candidates_.size() && std::exp(double(candidates_[count].logit) - best) >= options_.min_p) ++count;
    candidates_.resize(count);
  }
}

// SplitMix64: small, seedable with any number, the same on every machine.
double Sampler::uniform() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace pop
