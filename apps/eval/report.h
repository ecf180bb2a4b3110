// Results of evaluations as rows.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "apps/eval/statistics.h"
#include "apps/pop/results.h"

namespace pop::app {

// [low, high] of a 95 % interval.
Json to_json(const Interval& interval);

// A result's numbers and words as (column, text), objects opened: {"kl":{"mean":1,"ci95":[0,2]}} is kl_mean, kl_ci95_low,
// kl_ci95_high. Other lists are left out; null is "".
std::vector<std::pair<std::string, std::string>> flatten(const Json& result);

// A header and one row, so that the rows of several runs make a table. Throws Error.
void write_result_row(const std::string& path, const Json& result);

}  // namespace pop::app
