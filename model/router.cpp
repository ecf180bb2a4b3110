#include "model/router.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/pack.h"

namespace pop {
namespace {

// scores : [rows, experts]
void score(const Pass& pass, const Matrix& router, const float* x, float* scores) {
  const KernelTable& k = *pass.run.kernels;
  const int d = router.cols;
  AlignedBuffer& packed = pass.scratch.packed[0];
  pack_rows(k, ActType::F32, router.layout, x, size_t(d), 0, pass.count(), d, packed.data());
  const Acts acts{ActType::F32, router.layout, pass.count(), d, k.acts_bytes(ActType::F32, router.layout, d),
                  packed.data()};
  parallel_ranges(*pass.run.pool, router.rows, 8, [&](int begin, int end, int) {
    k.dot_units(router, acts, {nullptr, router.rows}, begin, end, scores, size_t(router.rows));
  });
}

// Scores to probabilities, in place.
void softmax(std::span<float> scores) {
  const float top = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& s : scores) sum += s = std::exp(s - top);
  for (float& s : scores) s /= sum;
}

// The experts of one row into chosen[0 .. k), the largest probability first.
void choose(std::span<const float> probabilities, int row, bool normalised, std::span<Routed> chosen) {
  size_t count = 0;
  for (size_t e = 0; e < probabilities.size(); ++e) {
    if (count == chosen.size() && !(probabilities[e] > chosen[count - 1].weight)) continue;
    size_t at = count < chosen.size() ? count++ : count - 1;
    for (; at > 0 && chosen[at - 1].weight < probabilities[e]; --at) chosen[at] = chosen[at - 1];
    chosen[at] = {row, int(e), probabilities[e]};
  }
  if (!normalised) return;
  float sum = 0;
  for (const Routed& r : chosen) sum += r.weight;
  for (Routed& r : chosen) r.weight /= sum;
}

}  // namespace

std::span<const Routed> route(const Pass& pass, int layer, const float* x) {
  const MoeSpec& moe = pass.model.spec.moe;
  const auto rows = size_t(pass.count()), experts = size_t(moe.experts), used = size_t(moe.used);
  RoutingScratch& scratch = pass.scratch.routing;
  float* const scores = f32(scratch.scores);
  score(pass, pass.model.layers[size_t(layer)].router, x, scores);
  std::fill(scratch.begins.begin(), scratch.begins.end(), 0);
  for (size_t r = 0; r < rows; ++r) {
    const std::span<float> of_row(scores + r * experts, experts);
    if (!pass.run.kernels->all_finite(of_row.data(), int(experts)))
      fail("{}: layer {}: the router's scores at position {} are not finite: damaged weights", pass.model.file().path(),
           layer, pass.positions[r]);
    softmax(of_row);
    const std::span<Routed> chosen = std::span(scratch.by_row).subspan(r * used, used);
    choose(of_row, int(r), moe.normalised, chosen);
    for (const Routed& c : chosen) ++scratch.begins[size_t(c.expert) + 1];
  }
  for (size_t e = 0; e < experts; ++e) scratch.begins[e + 1] += scratch.begins[e];
  for (size_t i = 0; i < rows * used; ++i)
    scratch.by_expert[size_t(scratch.begins[size_t(scratch.by_row[i].expert)]++)] = scratch.by_row[i];
  return std::span(scratch.by_expert).first(rows * used);
}

}  // namespace pop
