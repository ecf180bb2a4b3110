// The products of one site: several matrices over the same input, dense or selected, split over the threads.
#pragma once
#include <span>

#include "model/activations.h"
#include "model/forward.h"

namespace pop {

// What a pass over some rows needs everywhere.
struct Pass {
  const Model& model;
  RunContext& run;
  Activations& scratch;
  Phase phase;
  std::span<const ForwardRow> rows;
  const int* positions;  // [rows] of each in its sequence
  // [rows] the FFN that each goes through, ascending, at GateUp and Down. In prefill it is one and the same.
  const int* ffns = nullptr;
  int count() const { return int(rows.size()); }
  // What a policy calls row r's place at a site: the layer, or the FFN.
  int place(Site site, int layer, int r) const { return of_ffn(site) ? ffns[r] : layer; }
};

// Calls visit(first, count) for every run of rows that belong to one sequence.
template <class Visit>
void for_each_sequence(const Pass& pass, Visit&& visit) {
  for (int begin = 0, end = 0; begin < pass.count(); begin = end) {
    for (end = begin + 1; end < pass.count() && pass.rows[size_t(end)].sequence == pass.rows[size_t(begin)].sequence;
         ++end) {
    }
    visit(begin, end - begin);
  }
}

// What becomes of a site's outputs, in the region that makes them. Of sites with one matrix.
enum class Finish : uint8_t {
  None,
  AddToX,   // o, down: x += y
  GateMul,  // gate_up: h = act(gate) * up, of the channels that were computed
};

// The matrices of a site for one row of the pass: the model's, or its sequence's packed copies.
struct SiteTargets {
  int count = 0;
  const Matrix* w[3] = {};
  float* y[3] = {};  // row r of the pass at y + r * ldy
  size_t ldy[3] = {};
  Finish finish = Finish::None;
};
using TargetsOf = SiteTargets (*)(const Pass& pass, int layer, int row);

// One site, x : [rows, width]: in prefill the policies observe, in decode they select. Under --prefill pruned a pass holds one
// sequence, whose policy names the units. Throws PassInterrupted.
void project(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of);

// Prefill: y = W x for all rows of the pass, and what becomes of y. list: with GateMul the units to compute, the h of others
// is 0; null: all of them.
void project_prefill(const Pass& pass, const SiteTargets& targets, const float* x, int width, const IndexList* list);

// Decode at one site, x : [rows, width]: asks each row's policy, computes what it selects and what becomes of it, counts
// what that reads. With GateMul the h of channels that were not selected is left as it was: nobody reads it.
void project_decode(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of);

// Decode at GateUp for policies with gate_first(): all gate rows, then the policy's choice, then the up rows of what it chose.
void project_gate_first(const Pass& pass, int layer, const float* x, TargetsOf targets_of);

// act(gate) : [f] of a row's gate_up : [2f], in scratch memory until the next call.
std::span<const float> activated_gates(const Pass& pass, const float* gate_up);

// The kernel of the model's activation.
inline auto gate_mul(const Pass& pass) {
  return pass.model.spec.gate == Gate::Silu ? pass.run.kernels->silu_mul : pass.run.kernels->gelu_mul;
}

// Threads end together though one was held up if there are many pieces for each.
constexpr int kPiecesPerThread = 16;

// Runs body(begin, end) over [0, count) in pieces of a multiple of `step`.
template <class Body>
void parallel_ranges(ThreadPool& pool, int count, int step, Body&& body) {
  if (count == 0) return;  // a mask may leave nothing
  int size = std::max(step, (count + pool.threads() * kPiecesPerThread - 1) / (pool.threads() * kPiecesPerThread));
  size = (size + step - 1) / step * step;
  if (pool.threads() == 1) size = count;
  pool.run((count + size - 1) / size,
           [&](int piece, int thread) { body(piece * size, std::min(count, (piece + 1) * size), thread); });
}

}  // namespace pop
