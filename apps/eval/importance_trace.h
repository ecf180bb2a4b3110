// How the importance of FFN channels moves from token to token, in the dense model.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/pop.h"

namespace pop::app {

// rank[i] of channel i: 0 is the most important, of equals the lower channel.
std::vector<int32_t> ranks_of(std::span<const float> scores);

// Mean over the channels of |a[i] - b[i]| / f. Of independent orders (f - 1/f) / (3 f) is expected, about 1/3.
double rank_change(std::span<const int32_t> a, std::span<const int32_t> b);

// Share of a's upper half (the f / 2 best) that stands in b's, too. Of independent orders 1/2 is expected.
double top_half_overlap(std::span<const int32_t> a, std::span<const int32_t> b);

struct ImportanceMoves {                             // of one window, [layers][tokens after the context]
  std::vector<std::vector<double>> rank_change;      // from the token before; the first has none (NaN)
  std::vector<std::vector<double>> overlap_next;     // with the token before; the first has none (NaN)
  std::vector<std::vector<double>> overlap_prefill;  // with the context's own importance
};

// Runs the dense model over windows. Importance is pop's `down` metric with norm 2: |h_i| ||W_down[:, i]|| of a token,
// sqrt(sum h_i^2) ||W_down[:, i]|| of the context (pop-method section 3). Arithmetic f32, cache f16.
class ImportanceTrace {
 public:
  // options: model, threads, isa. Throws Error.
  ImportanceTrace(const EngineOptions& options, int window);
  ~ImportanceTrace();
  // ids: at most `window`, of them the first `context` the prompt. Throws Error; `interrupted` gives an empty result.
  ImportanceMoves run(std::span<const int32_t> ids, int context, const std::function<bool()>& interrupted);
  std::string isa() const;
  int threads() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pop::app
