// What `pop bench decode` and `prefill` measure: rows, in interleaved rounds, each beside the roof of its moment.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/roof.h"
#include "apps/bench/steady.h"
#include "apps/pop/args.h"

namespace pop::app {

struct RowSpec {
  PruneSettings prune;
  int threads = 1, batch = 1;
  int n_prompt = 0;  // tokens really prefilled
  int context = 0;   // positions in the cache when decode begins, at least n_prompt
  int n_gen = 0;     // 0: a row of prefill
};

// One round of one row.
struct RowSample {
  Timing timing;
  Steadiness steadiness;
};

struct Row {
  RowSpec spec;
  PrunePlanInfo plan;
  ReadStats reads;
  double kv_bytes_per_token = 0;  // keys and values read by a decoded token of one sequence, mean over the answer
  double forward_bytes = 0;       // weights a pass over the batch reads: the union of what its rows read
  uint64_t rss_bytes = 0;
  std::vector<RowSample> samples;
};

// What a row comes to: medians over its rounds.
struct RowResult {
  double prefill_tokens_per_s = 0, decode_tokens_per_s = 0;  // decode: of all sequences together
  double prefill_s = 0, partition_s = 0, pack_s = 0, select_s = 0, decode_s = 0, total_s = 0;
  double bytes_per_token = 0;  // weights and cache, per pass
  double read_bytes_per_s = 0, roof = 0, share_of_roof = 0;
  double spread = 0;      // of the row's tokens per second
  int repeats = 0;        // rounds measured again because the roof moved
  bool unsteady = false;  // a round was kept although the roof moved
  bool invalid = false;   // faster than the roof: the roof was not the limit it is taken for
};
RowResult result_of(const Row& row);

// Runs `rounds` rounds after one to warm up. progress(done, total). False if interrupted.
bool measure_rows(Engine& engine, std::vector<Row>& rows, int rounds, Roof& roof, const std::vector<int32_t>& prompt,
                  const std::function<void(int64_t, int64_t)>& progress);

}  // namespace pop::app
