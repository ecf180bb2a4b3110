// Multiple choice: how an item becomes texts to score, and what the scores decide, as lm-eval does both.
#pragma once
#include <string>
#include <vector>

#include "apps/eval/items.h"

namespace pop::app {

struct ChoicePair {
  std::string context, continuation;  // the continuation is scored
};

struct ChoiceItem {
  std::vector<ChoicePair> pairs;  // at least two
  std::vector<size_t> lengths;    // of the choices in characters, for acc_norm; empty: it has none
  size_t gold = 0;                // the right one
  std::string target, cluster;    // as lm-eval's samples have it; what items share ("": nothing)
};

// An item in the shape of docs/data.md, with what the header says for all. Throws Error naming file, line and field.
ChoiceItem choice_item(const Items& items, const Item& item);

// Where a context ends and its continuation begins, in tokens; lm-eval's rule (TemplateLM._encode_pair): blanks at the context's
// end go over to the continuation, both together and the context alone are encoded, the continuation is what the former has
// beyond the latter's length. An empty context is `prefix`, unless the continuation begins with it.
struct TokenPair {
  std::vector<int32_t> context, continuation;  // both at least one token
};
TokenPair split_pair(const Engine& engine, const ChoicePair& pair, int32_t prefix, const std::string& where);

struct Decision {
  size_t choice = 0, choice_norm = 0;  // of the largest score; of equals the first
};
// scores: sums of ln p of every choice. Decision::choice_norm divides by the lengths.
Decision decide(const std::vector<double>& scores, const std::vector<size_t>& lengths);

}  // namespace pop::app
