// Rows of `pop bench` as JSON (docs/cli.md), as a table for people, as CSV.
#pragma once
#include <string>
#include <vector>

#include "apps/bench/rows.h"
#include "apps/pop/results.h"

namespace pop::app {

struct Report {
  const ModelInfo& info;
  const std::vector<Row>& rows;
  std::vector<RoofPoint> roofs;  // one per number of threads, ascending
  std::string weights;           // of random weights: what they are; else ""
};

Json machine_json(const std::string& isa, const std::vector<RoofPoint>& roofs);
Json report_json(const Report& report);
std::string report_table(const Json& json);
void write_rows_csv(const std::string& path, const Json& json);

}  // namespace pop::app
