// GateUp for a policy that looks at the gates: all gate rows, then its choice, then the up rows of what it chose.
#include <algorithm>

#include "model/project.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// Both halves of every channel from a matrix in columns, which cannot read them apart: slices of the input, added in order, as
// any decode of such a matrix does.
void all_units(const Pass& pass, const Matrix& w, const Acts& acts, float* y) {
  const int width = column_slice(w.rows, w.cols);
  float* const partial = f32(pass.scratch.partial);
  parallel_ranges(*pass.run.pool, w.rows, 64, [&](int begin, int end, int) {
    for (int column = 0; column < w.cols; column += width) {
      float* const out = column == 0 ? y : partial;
      pass.run.kernels->axpy_columns(w, acts, 0, {nullptr, w.cols}, column, std::min(w.cols, column + width), begin,
                                     end, out);
      if (column > 0) pass.run.kernels->add(partial + begin, end - begin, y + begin);
    }
  });
}

void rows(const Pass& pass, const Matrix& w, const Acts& acts, IndexList list, float* y) {
  parallel_ranges(*pass.run.pool, list.count, 4,
                  [&](int begin, int end, int) { pass.run.kernels->dot_units(w, acts, list, begin, end, y, 0); });
}

}  // namespace

std::span<const float> activated_gates(const Pass& pass, const float* gate_up) {
  const auto f = size_t(pass.model.spec.f);
  float* const gates = f32(pass.scratch.masked);
  float* const pairs = f32(pass.scratch.partial);  // (gate, 1): the product leaves the activation alone
  for (size_t i = 0; i < f; ++i) pairs[2 * i] = gate_up[2 * i], pairs[2 * i + 1] = 1;
  gate_mul(pass)(pairs, {nullptr, int(f)}, 0, int(f), gates);
  return {gates, f};
}

void project_gate_first(const Pass& pass, int layer, const float* x, TargetsOf targets_of) {
  const KernelTable& k = *pass.run.kernels;
  const auto d = size_t(pass.model.spec.d), f = size_t(pass.model.spec.f);
  for (int r = 0; r < pass.count(); ++r) {
    Sequence& sequence = *pass.rows[size_t(r)].sequence;
    const SiteTargets targets = targets_of(pass, layer, r);
    const Matrix& w = *targets.w[0];
    Matrix single = w;  // the same rows one by one: 2i is channel i's gate, 2i + 1 its up
    single.unit = 1;
    const ActType type = pass.run.act_type(w, Phase::Decode);
    const Acts acts{type, w.layout, 1, w.cols, k.acts_bytes(type, w.layout, w.cols), pass.scratch.packed[0].data()};
    k.pack_acts(type, w.layout, x + size_t(r) * d, w.cols, pass.scratch.packed[0].data());
    float* const y = targets.y[0] + size_t(r) * targets.ldy[0];
    float* const h = f32(pass.scratch.h) + size_t(r) * f;
    int32_t* const list = pass.scratch.kept(r);
    const bool apart = w.layout == Layout::Rows;

    for (size_t i = 0; i < f; ++i) list[i] = int32_t(2 * i);
    if (apart)
      rows(pass, single, acts, {list, int(f)}, y);
    else
      all_units(pass, w, acts, y);
    uint64_t bytes = bytes_read(single, apart ? IndexList{list, int(f)} : IndexList{nullptr, w.cols});

    Selection& selection = pass.scratch.selections[size_t(r)];
    pass.run.watch.begin_select(Part::GateUp);
    selection = sequence.policy->select(Site::GateUp, pass.ffns[r], activated_gates(pass, y), pass.positions[r]);
    if (pass.run.listener != nullptr)
      pass.run.listener->chosen(sequence, pass.positions[r], pass.ffns[r], Site::GateUp, selection);
    pass.run.watch.end_select();

    if (apart) {
      for (int i = 0; i < selection.list.count; ++i) list[i] = 2 * selection.list[i] + 1;
      rows(pass, single, acts, {list, selection.list.count}, y);
      bytes += bytes_read(single, {list, selection.list.count});
    }
    gate_mul(pass)(y, selection.list, 0, selection.list.count, h);
    sequence.reads.block_bytes += bytes;
    sequence.reads.of(pass.model, pass.ffns[r]).bytes += bytes;
    sequence.reads.count_choice(pass.model, Site::GateUp, pass.ffns[r], selection);
    sequence.reads.elements_used += (f + uint64_t(selection.list.count)) * uint64_t(w.cols);
    pass.run.watch.profile.bytes[size_t(Part::GateUp)] += bytes;
    if (pass.run.counts_forward) pass.run.forward_bytes += bytes;
  }
}

}  // namespace pop
