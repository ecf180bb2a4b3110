#include "model/sequence.h"

namespace pop {

void ReadCounts::count_choice(const Model& model, Site site, int place, const Selection& selection) {
  const bool by_columns = selection.kind == Selection::Kind::Columns;
  const auto left = [&](const Matrix& w) {
    return by_columns ? uint64_t(w.rows) * uint64_t(w.cols - selection.list.count) : 0;
  };
  if (!of_ffn(site)) {
    const LayerWeights& w = model.layers[size_t(place)];
    attention_left_out += site == Site::O ? left(w.o) : left(w.q) + left(w.k) + left(w.v);
    return;
  }
  const FfnWeights& w = *model.ffns[size_t(place)];
  FfnCounts& counts = of(model, place);
  if (site == Site::GateUp) {
    ++counts.uses;
    counts.elements += uint64_t(w.f()) * uint64_t(w.gate_up.cols) * 3;
    counts.left_out += left(w.gate_up);
  } else {
    counts.left_out += left(w.down) * (selection.zero_rest ? 3 : 1);  // a channel's gate and up rows go with its column
  }
}

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
  // Of each FFN gate and up, then down: what is copied of it (nothing where it lies in the other layout), and where to.
  struct Copy {
    const Matrix& from;
    bool packs;
    IndexList list;
    size_t at;
  };
  std::vector<Copy> copies;
  size_t bytes = 0;
  const auto plan = [&](const Matrix& w, Layout layout, Site site, int ffn) {
    const bool packs = w.layout == layout;
    copies.push_back({w, packs, packs ? sequence.policy->reachable(site, ffn).list : IndexList{}, bytes});
    bytes += pack_bytes(w, copies.back().list);
  };
  for (int i = 0; i < ffns; ++i) {
    plan(model.ffns[size_t(i)]->gate_up, Layout::Rows, Site::GateUp, i);
    plan(sequence.down(model, i, true), Layout::Columns, Site::Down, i);
  }
  if (sequence.packed_memory.size() < bytes) sequence.packed_memory = AlignedBuffer(bytes);
  sequence.packed.resize(size_t(ffns));
  pool.run(ffns, [&](int i, int) {
    const auto copied = [&](const Copy& c, PackedTables& tables) {
      return c.packs ? pack(c.from, c.list, sequence.packed_memory.data() + c.at, tables) : c.from;
    };
    PackedFfn& p = sequence.packed[size_t(i)];
    p.gate_up = copied(copies[size_t(i) * 2], p.gate_up_tables);
    p.down = copied(copies[size_t(i) * 2 + 1], p.down_tables);
  });
  sequence.use_packed = true;
}

}  // namespace pop
