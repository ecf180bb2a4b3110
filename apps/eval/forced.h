// Teacher-forced predictions: how likely given tokens are at given positions of given texts.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/pop.h"

namespace pop::app {

struct Query {
  int position;    // the prediction made there is asked for
  int32_t target;  // of this token
};

struct ForcedText {
  std::vector<int32_t> ids;    // what the model is given
  int split = -1;              // the first `split` are prefill, the rest decode; -1: all prefill
  std::vector<Query> queries;  // positions ascending; several of one position may stand there
};

struct Prediction {
  double logprob = 0;   // ln p(target), natural logarithm, float64 over float32 logits
  bool greedy = false;  // no token is likelier (of equals the lowest id counts)
};

struct ForcedResult {
  std::vector<Prediction> predictions;  // one per query
  ReadStats reads;
  uint64_t decoded = 0;  // queries that decode answered; the others were answered by the prefill
};

// Up to `batch` texts in one forward. Empty if interrupted. Throws Error if logits are not finite.
std::vector<ForcedResult> predict(Session& session, std::span<const ForcedText> texts, int batch,
                                  const std::function<bool()>& interrupted);

}  // namespace pop::app
