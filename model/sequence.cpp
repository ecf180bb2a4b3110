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
  // What is copied of a matrix: nothing where it lies in the other layout.
  const auto list_of = [&](const Matrix& w, Layout packs, Site site, int ffn) {
    return w.layout == packs ? sequence.policy->reachable(site, ffn).list : IndexList{};
  };
  std::vector<size_t> begin{0};  // of each FFN's gate and up, then of its down; the last is the end
  for (int i = 0; i < ffns; ++i) {
    const FfnWeights& w = *model.ffns[size_t(i)];
    begin.push_back(begin.back() + pack_bytes(w.gate_up, list_of(w.gate_up, Layout::Rows, Site::GateUp, i)));
    begin.push_back(begin.back() + pack_bytes(w.down, list_of(w.down, Layout::Columns, Site::Down, i)));
  }
  if (sequence.packed_memory.size() < begin.back()) sequence.packed_memory = AlignedBuffer(begin.back());
  sequence.packed.resize(size_t(ffns));
  pool.run(ffns, [&](int i, int) {
    const FfnWeights& w = *model.ffns[size_t(i)];
    PackedFfn& p = sequence.packed[size_t(i)];
    uint8_t* const memory = sequence.packed_memory.data();
    p.gate_up = w.gate_up.layout == Layout::Rows ? pack(w.gate_up, list_of(w.gate_up, Layout::Rows, Site::GateUp, i),
                                                        memory + begin[size_t(i) * 2], p.gate_up_tables)
                                                 : w.gate_up;
    p.down = w.down.layout == Layout::Columns ? pack(w.down, list_of(w.down, Layout::Columns, Site::Down, i),
                                                     memory + begin[size_t(i) * 2 + 1], p.down_tables)
                                              : w.down;
  });
  sequence.use_packed = true;
}

}  // namespace pop
