// What eval kl reports of many tokens: the statistics of llama-perplexity --kl-divergence (evaluation.md 5.3), with intervals
// from resampled windows, by decode position, and how long greedy answers stay equal.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "apps/eval/kl.h"
#include "apps/eval/samples.h"

namespace pop::app {

struct WindowDivergence {
  std::vector<TokenDivergence> tokens;  // of the scored positions, in order
  int equal_tokens = -1;                // of both greedy answers before they differ; -1: none were made
};

// A window as a line of a per-item file, and back: every figure of the report comes from the lines.
Sample divergence_sample(int64_t window, const WindowDivergence& divergence);
WindowDivergence divergence_from(const Json& line);

// "kl", "same_top", "ppl_dense", "ppl_pruned", "ln_ppl_ratio", "ppl_ratio", "ppl_difference", "nll_correlation", "delta_p",
// "by_position", "first_divergence". windows: at least one, of equally many tokens; generated: tokens of each answer.
Json divergence_json(std::span<const WindowDivergence> windows, int generated, uint64_t seed);

}  // namespace pop::app
