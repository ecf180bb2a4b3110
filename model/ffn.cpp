#include "model/ffn.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/router.h"
#include "tensor/layout.h"

namespace pop {
namespace {

SiteTargets gate_up_targets(const Pass& pass, int, int row) {
  const Matrix& w = pass.rows[size_t(row)].sequence->gate_up(pass.model, pass.ffns[row]);
  return {1, {&w}, {f32(pass.scratch.gate_up)}, {size_t(w.rows)}, Finish::GateMul};
}

// Whether a row's method leaves channels of an FFN out of this pass: in prefill the prompt is dense unless asked otherwise.
bool prunes(const Pass& pass, int row) {
  PolicyState* policy = pass.rows[size_t(row)].sequence->policy.get();
  if (policy == nullptr || pass.phase == Phase::Decode) return policy != nullptr;
  return policy->select_prefill(Site::Down, pass.ffns[row]).kind != Selection::Kind::Full;
}

// Of a dense layer y is added to x; an expert's is weighted first, and there may be a norm before.
bool adds_to_x(const Pass& pass, int layer) {
  return pass.model.layers[size_t(layer)].router.rows == 0 && !pass.model.spec.post_norms;
}
SiteTargets down_targets(const Pass& pass, int layer, int row) {
  return {1,
          {&pass.rows[size_t(row)].sequence->down(pass.model, pass.ffns[row], prunes(pass, row))},
          {f32(pass.scratch.delta)},
          {size_t(pass.model.spec.d)},
          adds_to_x(pass, layer) ? Finish::AddToX : Finish::None};
}

// What a method adds to the FFN's output for the channels that it leaves out, where it leaves them out.
void add_ffn_bias(const Pass& pass, int layer) {
  float* const y = f32(adds_to_x(pass, layer) ? pass.scratch.x : pass.scratch.delta);
  for (int r = 0; r < pass.count(); ++r) {
    const PolicyState* policy = pass.rows[size_t(r)].sequence->policy.get();
    if (policy == nullptr) continue;
    const std::span<const float> bias = policy->ffn_bias(pass.ffns[r]);
    if (bias.empty() || !prunes(pass, r)) continue;
    pass.run.kernels->add(bias.data(), int(bias.size()), y + size_t(r) * bias.size());
  }
}

// Every row of the pass through its FFN, all of one width.
void through(const Pass& pass, int layer, const float* x) {
  const int f = pass.model.ffns[size_t(pass.ffns[0])]->f();
  project(pass, Site::GateUp, layer, x, pass.model.spec.d, gate_up_targets);  // leaves h
  pass.run.watch.mark(Part::GateUp);
  project(pass, Site::Down, layer, f32(pass.scratch.h), f, down_targets);
  add_ffn_bias(pass, layer);
  pass.run.watch.mark(Part::Down);
}

// The rows of a pass as they are, all of them through one FFN.
Pass through_one(const Pass& pass, int number) {
  std::vector<int>& ffns = pass.scratch.routing.ffns;
  std::fill_n(ffns.begin(), pass.count(), number);
  return {pass.model, pass.run, pass.scratch, pass.phase, pass.rows, pass.positions, ffns.data()};
}

// y += weight * x, each product rounded before it is added.
void add_weighted(const float* x, float weight, size_t n, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] += weight * x[i];
}

// Calls add(from, to) for parts of [0, d), on all threads if there are rows enough. A row's additions stay in their order.
template <class Add>
void over_width(const Pass& pass, size_t rows, Add&& add) {
  constexpr size_t kShared = 32768;  // additions; fewer are done before a second thread has heard of them
  const int d = pass.model.spec.d;
  parallel_ranges(*pass.run.pool, d, rows * size_t(d) < kShared ? d : 64,
                  [&](int from, int to, int) { add(size_t(from), size_t(to - from)); });
}

// What part of `routed` goes through the network together: in decode whole experts as long as there is room, in prefill, whose
// products take one matrix, one expert.
size_t end_of_part(std::span<const Routed> routed, size_t begin, Phase phase, size_t room) {
  size_t end = begin;
  while (end < routed.size()) {
    size_t next = end + 1;
    while (next < routed.size() && routed[next].expert == routed[end].expert) ++next;
    if (end > begin && (phase == Phase::Prefill || next - begin > room)) break;
    end = next;
  }
  return end;
}

// mixed[row] += weight * expert(x[row]) for some (row, expert).
void through_experts(const Pass& pass, int layer, const float* x, std::span<const Routed> part, float* mixed) {
  const auto d = size_t(pass.model.spec.d);
  RoutingScratch& scratch = pass.scratch.routing;
  for (size_t i = 0; i < part.size(); ++i) {
    const auto row = size_t(part[i].row);
    scratch.rows[i] = pass.rows[row];
    scratch.positions[i] = pass.positions[row];
    scratch.ffns[i] = pass.model.first_ffn[size_t(layer)] + part[i].expert;
    std::memcpy(f32(scratch.x) + i * d, x + row * d, d * sizeof(float));
  }
  const Pass rows{pass.model,
                  pass.run,
                  pass.scratch,
                  pass.phase,
                  std::span(scratch.rows).first(part.size()),
                  scratch.positions.data(),
                  scratch.ffns.data()};
  through(rows, layer, f32(scratch.x));
  over_width(pass, part.size(), [&](size_t from, size_t n) {
    for (size_t i = 0; i < part.size(); ++i)
      add_weighted(f32(pass.scratch.delta) + i * d + from, part[i].weight, n, mixed + size_t(part[i].row) * d + from);
  });
  pass.run.watch.mark(Part::Router);
}

// mixed[row] += sigmoid(shared_gate . x[row]) * shared(x[row])
void through_shared(const Pass& pass, int layer, const float* x, float* mixed) {
  const LayerWeights& w = pass.model.layers[size_t(layer)];
  const auto d = size_t(pass.model.spec.d);
  through(through_one(pass, pass.model.first_ffn[size_t(layer)] + int(w.ffns.size()) - 1), layer, x);
  const auto* gate = reinterpret_cast<const float*>(w.shared_gate.data);
  parallel_ranges(*pass.run.pool, pass.count(), 16, [&](int begin, int end, int) {
    for (auto r = size_t(begin); r < size_t(end); ++r) {
      float sum = 0;
      for (size_t i = 0; i < d; ++i) sum += gate[i] * x[r * d + i];
      add_weighted(f32(pass.scratch.delta) + r * d, 1 / (1 + std::exp(-sum)), d, mixed + r * d);
    }
  });
  pass.run.watch.mark(Part::Router);
}

void observe_router(const Pass& pass, int layer, const float* x) {
  const auto d = size_t(pass.model.spec.d);
  for_each_sequence(pass, [&](int first, int count) {
    if (PolicyState* policy = pass.rows[size_t(first)].sequence->policy.get())
      policy->observe_router(layer, x + size_t(first) * d, count, d, pass.positions[first]);
  });
}

// The router and the gate of the shared expert are read whole, once per pass.
void count_router(const Pass& pass, const LayerWeights& w) {
  uint64_t bytes = 0;
  for (const Matrix* m : {&w.router, &w.shared_gate})
    if (m->rows > 0) bytes += bytes_read(*m, {nullptr, m->rows});
  for (const ForwardRow& row : pass.rows) row.sequence->reads.block_bytes += bytes;
  pass.run.watch.profile.bytes[size_t(Part::Router)] += bytes * uint64_t(pass.count());
  if (pass.run.counts_forward) pass.run.forward_bytes += bytes;
}

}  // namespace

void ffn(const Pass& pass, int layer, const float* normed) {
  const LayerWeights& w = pass.model.layers[size_t(layer)];
  if (w.router.rows == 0) return through(through_one(pass, pass.model.first_ffn[size_t(layer)]), layer, normed);

  if (pass.phase == Phase::Prefill) observe_router(pass, layer, normed);
  if (pass.phase == Phase::Decode) count_router(pass, w);
  const std::span<const Routed> routed = route(pass, layer, normed);
  pass.run.watch.mark(Part::Router);
  const size_t rows = size_t(pass.count()), d = size_t(pass.model.spec.d);
  float* const mixed = f32(pass.scratch.routing.mixed);
  std::fill_n(mixed, rows * d, 0.f);
  for (size_t begin = 0, end = 0; begin < routed.size(); begin = end) {
    end = end_of_part(routed, begin, pass.phase, size_t(pass.scratch.max_rows()));
    through_experts(pass, layer, normed, routed.subspan(begin, end - begin), mixed);
  }
  if (w.shared_gate.rows > 0) through_shared(pass, layer, normed, mixed);
  parallel_ranges(*pass.run.pool, pass.count(), kActsGroup, [&](int from, int to, int) {
    for (size_t r = size_t(from); r < size_t(to); ++r)
      pass.run.kernels->add(mixed + r * d, int(d), f32(pass.scratch.x) + r * d);
  });
}

}  // namespace pop
