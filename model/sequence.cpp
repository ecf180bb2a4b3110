#include "model/sequence.h"

namespace pop {

uint64_t Sequence::cached_bytes(Site site, int layer, int matrix, const Matrix& w, IndexList list) {
  const size_t at = (size_t(layer) * kSites + size_t(site)) * 3 + size_t(matrix);
  if (counted_.size() <= at) counted_.resize((size_t(layer) + 1) * kSites * 3);
  Counted& c = counted_[at];
  // What Down and columns select changes from token to token behind the same pointer.
  const bool lasting = list.index == nullptr || (site == Site::GateUp && w.layout == Layout::Rows);
  if (!lasting || c.w != &w || c.index != list.index || c.count != list.count) c = {&w, list.index, list.count, bytes_read(w, list)};
  return c.bytes;
}

void pack_ffn(const Model& model, Sequence& sequence, ThreadPool& pool) {
  const auto layers = size_t(model.spec.layers);
  std::vector<PackedFfn> packed = std::move(sequence.packed);
  packed.resize(layers);
  sequence.packed.clear();
  for (size_t l = 0; l < layers; ++l) {
    const Selection units = sequence.policy->reachable(Site::GateUp, int(l));
    const Selection columns = sequence.policy->reachable(Site::Down, int(l));
    if (units.kind != Selection::Kind::Rows || columns.kind != Selection::Kind::Columns) return;
  }
  pool.run(int(layers), [&](int l, int) {
    const LayerWeights& w = model.layers[size_t(l)];
    PackedFfn& p = packed[size_t(l)];
    p.gate_up = w.gate_up.layout == Layout::Rows
                    ? pack(w.gate_up, sequence.policy->reachable(Site::GateUp, l).list, p.gate_up_memory, p.gate_up_tables)
                    : w.gate_up;
    p.down = w.down.layout == Layout::Columns
                 ? pack(w.down, sequence.policy->reachable(Site::Down, l).list, p.down_memory, p.down_tables)
                 : w.down;
  });
  sequence.packed = std::move(packed);
}

}  // namespace pop
