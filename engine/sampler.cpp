#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace pop {
namespace {

void check(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) fail("{}: expected {} to {}, found {}", name, low, high, value);
}

// Below it a softmax at this temperature is a one-hot vector in float64 for logits a millionth apart.
constexpr double kGreedyBelow = 1e-7;

constexpr size_t kBlock = 1024;  // tokens whose weights are summed before one of them is drawn

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

  const float best = logits_[size_t(kernels_.argmax(logits_.data(), int(logits_.size())))];
  if (options_.top_k <= 0 && options_.top_p >= 1 && options_.min_p <= 0) return draw_from_all(best);
  filter(best);
  weights_.resize(candidates_.size());
  double total = 0;
  for (size_t i = 0; i < candidates_.size(); ++i)
    total += weights_[i] = std::exp((double(candidates_[i].logit) - double(best)) / options_.temp);
  double left = uniform() * total;
  for (size_t i = 0; i < candidates_.size(); ++i)
    if ((left -= weights_[i]) < 0) return candidates_[i].id;
  return candidates_.back().id;
}

// Without a filter nothing needs an order: a block of the vocabulary is drawn by the sum of its weights, then a token of the block.
int32_t Sampler::draw_from_all(float best) {
  for (float& logit : logits_) logit = float((double(logit) - double(best)) / options_.temp);
  weights_.clear();
  double total = 0;
  for (size_t begin = 0; begin < logits_.size(); begin += kBlock) {
    const double weight =
        std::exp(kernels_.log_sum_exp(logits_.data() + begin, int(std::min(kBlock, logits_.size() - begin))));
    weights_.push_back(weight > 0 ? weight : 0);  // a block of nothing but -inf has no logarithm
    total += weights_.back();
  }
  double left = uniform() * total;
  size_t block = 0;
  while (block + 1 < weights_.size() && left >= weights_[block]) left -= weights_[block++];
  // The block's sum is rounded otherwise than these: what may be left over goes to its last token that can come at all.
  const size_t end = std::min(logits_.size(), (block + 1) * kBlock);
  size_t chosen = block * kBlock;
  for (size_t i = chosen; i < end; ++i) {
    const double weight = std::exp(double(logits_[i]));
    if (!(weight > 0)) continue;
    chosen = i;
    if ((left -= weight) < 0) break;
  }
  return int32_t(chosen);
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
void Sampler::filter(float best) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  const auto weight = [&](const Candidate& c) { return std::exp(double(c.logit) - double(best)); };
  // The share of all weights that top-p keeps; with top-k it is a share of what that keeps.
  const bool of_all = options_.top_k <= 0 && options_.top_p < 1;
  double total = of_all ? std::exp(kernels_.log_sum_exp(logits_.data(), int(logits_.size())) - double(best)) : 0;
  // Only what lies near the best logit is looked at and sorted; further down only where the filters ask for more.
  for (const double reach : {10.0, 20.0, std::numeric_limits<double>::infinity()}) {
    candidates_.clear();
    for (size_t i = 0; i < logits_.size(); ++i)
      if (double(logits_[i]) >= double(best) - reach) candidates_.push_back({logits_[i], int32_t(i)});
    double sum = 0;
    for (const Candidate& c : candidates_) sum += weight(c);
    total = !of_all || candidates_.size() == logits_.size() ? sum : std::max(sum, total);
    if (options_.top_k > 0 && candidates_.size() >= size_t(options_.top_k)) break;
    // What top-p keeps is a share of all that top-k keeps, also of what min-p then cuts: only without it does min-p alone decide.
    if (std::exp(-reach) < options_.min_p && (of_all || options_.top_p >= 1)) break;
    if (of_all && sum >= options_.top_p * total) break;
  }
  if (candidates_.empty())
    candidates_.push_back({best, kernels_.argmax(logits_.data(), int(logits_.size()))});  // best: +inf
  size_t keep = candidates_.size();
  if (options_.top_k > 0) keep = std::min(keep, size_t(options_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + std::ptrdiff_t(keep), candidates_.end(), before);
  candidates_.resize(keep);
  if (options_.top_p < 1) {
    if (!of_all) {
      total = 0;
      for (const Candidate& c : candidates_) total += weight(c);
    }
    double sum = 0;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || sum < options_.top_p * total))
      sum += weight(candidates_[count++]);
    candidates_.resize(count);
  }
  if (options_.min_p > 0) {
    size_t count = 1;
    while (count < candidates_.size() && weight(candidates_[count]) >= options_.min_p) ++count;
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
