#include "apps/eval/forced.h"

#include <algorithm>
#include <cmath>

#include "apps/eval/kl.h"
#include "base/error.h"

namespace pop::app {
namespace {

// The place of the first query of every text that is not answered yet.
class Answers {
 public:
  Answers(std::span<const ForcedText> texts, std::vector<ForcedResult>& results)
      : texts_(texts), results_(results), next_(texts.size()) {}

  void take(int text, int position, std::span<const float> logits) {
    const std::vector<Query>& queries = texts_[size_t(text)].queries;
    size_t& next = next_[size_t(text)];
    if (next == queries.size() || queries[next].position != position) return;
    const Distribution d = distribution(logits);
    if (!std::isfinite(d.log_sum)) fail("text {}: position {}: the logits are not finite", text, position);
    const int split = texts_[size_t(text)].split;
    for (; next < queries.size() && queries[next].position == position; ++next) {
      const int32_t target = queries[next].target;
      results_[size_t(text)].predictions.push_back({double(logits[size_t(target)]) - d.log_sum, d.top == target});
      if (split >= 0 && position >= split) ++results_[size_t(text)].decoded;
    }
  }

  bool complete() const {
    for (size_t i = 0; i < texts_.size(); ++i)
      if (next_[i] != texts_[i].queries.size()) return false;
    return true;
  }

 private:
  std::span<const ForcedText> texts_;
  std::vector<ForcedResult>& results_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<ForcedResult> predict(Session& session, std::span<const ForcedText> texts, int batch,
                                  const std::function<bool()>& interrupted) {
  std::vector<ScoreRequest> requests;
  for (const ForcedText& text : texts)
    requests.push_back({text.ids, text.split, text.queries.empty() ? 1 : text.queries.front().position + 1});
  std::vector<ForcedResult> results(texts.size());
  Answers answers(texts, results);
  RunHooks hooks;
  hooks.interrupted = interrupted;
  hooks.on_logits = [&](int text, int position, std::span<const float> logits) {
    answers.take(text, position, logits);
  };
  const std::vector<ScoreResult> scores = session.score(requests, batch, hooks);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].finish_reason != "complete") return {};
    results[i].reads = scores[i].reads;
  }
  if (!answers.complete()) fail("expected logits of every position asked for, some are missing");
  return results;
}

}  // namespace pop::app
