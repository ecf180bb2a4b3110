#include "model/sequence.h"

namespace pop {

uint64_t Sequence::cached_bytes(Site site, int place, int matrix, const Matrix& w, IndexList list, bool lasting) {
  const size_t at = (size_t(place) * kSites + size_t(site)) * 3 + size_t(matrix);
  if (counted_.size() <= at) counted_.resize((size_t(place) + 1) * kSites * 3);
  Counted& c = counted_[at];
  if (!lasting || c.w != &w || c.index != list.index || c.count != list.count)
    c = {&w, list.index, list.count, bytes_read(w, list)};
  return c.bytes;
}

void pack_ffn(const Model& model, Sequence& sequence, ThreadPool& pool) {
  if (model.spec.moe.experts > 0) return;
  const int ffns = int(model.ffns.size());
  for (int i = 0; i < ffns; ++i)
    if (sequence.policy->reachable(Site::GateUp, i).kind != Selection::Kind::Rows) return;
  sequence.packed.resize(size_t(ffns));
  pool.run(ffns, [&](int i, int) {
    const FfnWeights& w = *model.ffns[size_t(i)];
    PackedFfn& p = sequence.packed[size_t(i)];
    const auto pack_if = [&](const Matrix& from, Layout layout, Site site, AlignedBuffer& memory,
                             PackedTables& tables) {
      return from.layout == layout ? pack(from, sequence.policy->reachable(site, i).list, memory, tables) : from;
    };
    p.gate_up = pack_if(w.gate_up, Layout::Rows, Site::GateUp, p.gate_up_memory, p.gate_up_tables);
    p.down = pack_if(w.down, Layout::Columns, Site::Down, p.down_memory, p.down_tables);
  });
  sequence.use_packed = true;
}

}  // namespace pop
