// The products of one site: several matrices over the same input, dense or selected, split over the threads.
#pragma once
#include <chrono>
#include <span>

#include "model/activations.h"
#include "model/forward.h"

namespace pop {

// Adds up the time between its marks, so that the parts sum to the whole.
class Stopwatch {
 public:
  explicit Stopwatch(Profile& profile) : profile_(profile) {}
  void mark(Part part) {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    profile_.seconds[size_t(part)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  Profile& profile_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// What a pass over some rows needs everywhere.
struct Pass {
  const Model& model;
  RunContext& run;
  Activations& scratch;
  Stopwatch& watch;
  Phase phase;
  std::span<const ForwardRow> rows;
  const int* positions;  // [rows] of each in its sequence
  int count() const { return int(rows.size()); }
};

// The matrices of a site for one row of the pass: the model's, or its sequence's packed copies.
struct SiteTargets {
  int count = 0;
  const Matrix* w[3] = {};
  float* y[3] = {};  // row r of the pass at y + r * ldy
  size_t ldy[3] = {};
};
using TargetsOf = SiteTargets (*)(const Pass& pass, int layer, int row);

// Prefill: y = W x for all rows of the pass. list: the units to compute, everything if its count is 0.
void project_prefill(const Pass& pass, const SiteTargets& targets, const float* x, int width, IndexList list);

// Decode at one site, x : [rows, width]: asks each row's policy, computes what it selects, counts what that reads.
void project_decode(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of);

// Runs body(begin, end) over [0, count) in pieces of a multiple of `step`, several per thread.
template <class Body>
void parallel_ranges(ThreadPool& pool, int count, int step, Body&& body) {
  int size = std::max(step, (count + pool.threads() * 4 - 1) / (pool.threads() * 4));
  size = (size + step - 1) / step * step;
  if (pool.threads() == 1) size = count;
  pool.run((count + size - 1) / size,
           [&](int piece, int thread) { body(piece * size, std::min(count, (piece + 1) * size), thread); });
}

}  // namespace pop
