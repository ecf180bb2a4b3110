// Weights read by decode, of several calls together; and in per-item files.
#pragma once
#include "apps/pop/results.h"

namespace pop::app {

// Means over the decoded tokens of both.
void add_reads(ReadStats& total, const ReadStats& part);

Json to_json(const ReadStats& reads);
// Of what to_json wrote; a line from elsewhere that lacks something counts as no token.
ReadStats reads_from(const Json& json);

}  // namespace pop::app
