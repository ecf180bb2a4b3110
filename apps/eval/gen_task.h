// A task of `pop eval gen`: what its header and items say (docs/data.md).
#pragma once
#include <string>
#include <vector>

#include "apps/eval/answers.h"
#include "apps/eval/items.h"

namespace pop::app {

enum class GenMetric { exact_match, squad, code, greedy };

struct GenTask {
  std::string name, preamble;
  std::vector<std::string> until;
  int max_tokens = 256;
  GenMetric metric = GenMetric::exact_match;
  std::vector<AnswerFilter> filters;  // at least one
  ExactMatch exact;
  bool program_has_prompt = false;  // code: the prompt belongs to the program

  // Names of the scores of every filter, the one that is quoted first.
  std::vector<std::string> metrics() const;
};

struct GenItem {
  std::string prompt;  // preamble included
  std::vector<std::string> targets;
  std::string program_head, tests, cluster;  // code: what stands before the answer and behind it
};

// Throws Error naming file, line and field.
GenTask gen_task(const Items& items);
GenItem gen_item(const GenTask& task, const Item& item);

}  // namespace pop::app
