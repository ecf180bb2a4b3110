#include "model/project.h"

#include <algorithm>
#include <cstring>

#include "base/sanitizer.h"
#include "kernels/pack.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// The inputs of a site prepared for its matrices: one packing per distinct (arithmetic, layout) among them.
class SiteInputs {
 public:
  explicit SiteInputs(const Pass& pass, int width) : pass_(pass), width_(width) {}

  // Makes sure that inputs for w exist; returns which of the (at most three) packings they are.
  int add(const Matrix& w) {
    const ActType type = pass_.run.act_type(w, pass_.phase);
    for (int i = 0; i < count_; ++i)
      if (acts_[i].type == type && acts_[i].layout == w.layout) return i;
    Acts& acts = acts_[count_];
    acts.type = type;
    acts.layout = w.layout;
    acts.n = pass_.count();
    acts.cols = width_;
    acts.stride = pass_.run.kernels->acts_bytes(type, w.layout, width_);
    acts.data = pass_.scratch.packed[count_].data();
    return count_++;
  }
  void pack_row(int row, const float* x) const {
    for (int i = 0; i < count_; ++i)
      pass_.run.kernels->pack_acts(acts_[i].type, acts_[i].layout, x, width_, memory(i, row));
  }
  // Prefill: rows [begin, end), begin a multiple of kActsGroup.
  void pack_range(const float* x, int begin, int end) const {
    for (int i = 0; i < count_; ++i)
      pack_rows(*pass_.run.kernels, acts_[i].type, acts_[i].layout, x, size_t(width_), begin, end, width_,
                pass_.scratch.packed[i].data());
  }
  // Zeros what `keep` leaves out where the matrices lie in rows; those in columns are given the list itself.
  void mask_row(int row, IndexList keep) const {
    for (int i = 0; i < count_; ++i)
      if (acts_[i].layout == Layout::Rows)
        pass_.run.kernels->mask_acts(acts_[i].type, acts_[i].layout, width_, keep, memory(i, row));
  }
  Acts rows(int i, int first, int n) const {
    Acts part = acts_[i];
    part.data += size_t(first) * part.stride;
    part.n = n;
    return part;
  }

 private:
  uint8_t* memory(int i, int row) const { return pass_.scratch.packed[i].data() + size_t(row) * acts_[i].stride; }
  const Pass& pass_;
  int width_;
  int count_ = 0;
  Acts acts_[3];
};

// In AddressSanitizer builds: while it lives, reading what the list does not count as read is reported as an error.
class ReadGuard {
 public:
  ReadGuard(const Matrix& w, IndexList list) : w_(w) {
    if constexpr (kAddressSanitizer) {
      unread_ = unread_ranges(w, list);
      for (const auto& [begin, end] : unread_) poison_memory(w.data + begin, end - begin);
    }
  }
  ~ReadGuard() {
    for (const auto& [begin, end] : unread_) unpoison_memory(w_.data + begin, end - begin);
  }
  ReadGuard(const ReadGuard&) = delete;
  ReadGuard& operator=(const ReadGuard&) = delete;

 private:
  const Matrix& w_;
  std::vector<std::pair<size_t, size_t>> unread_;
};

IndexList everything(int count) { return {nullptr, count}; }

// Outputs of the units list[begin .. end) of one row of the pass are there.
void finish(const Pass& pass, const SiteTargets& targets, int row, IndexList list, int begin, int end) {
  const float* y = targets.y[0] + size_t(row) * targets.ldy[0];
  const auto d = size_t(pass.model.spec.d), f = size_t(pass.model.spec.f);
  switch (targets.finish) {
    case Finish::None: return;
    case Finish::AddToX:  // every output, in units of one
      return pass.run.kernels->add(y + begin, end - begin, f32(pass.scratch.x) + size_t(row) * d + begin);
    case Finish::SiluMul: return pass.run.kernels->silu_mul(y, list, begin, end, f32(pass.scratch.h) + size_t(row) * f);
  }
}

// How the work of one matrix in columns is cut: slices of its inputs, whose sums are added in order, by tiles of its outputs.
struct ColumnCut {
  int width, slices, tile, tiles, first;  // first: piece of the region
  float* partial;                         // [slices, rows]
};

ColumnCut cut_columns(const Matrix& w, int threads, int first, float* partial) {
  // Tiles are whole cache lines of every type, and a multiple of what a kernel takes at once; slices alone are preferred, for
  // a tile's runs of bytes are shorter than a column.
  constexpr int kLongest = 8192, kPieces = 3;  // kPieces: per thread
  ColumnCut cut{column_slice(w.rows, w.cols), column_slices(w.rows, w.cols), 0, 0, first, partial};
  const int least = (w.rows + kLongest - 1) / kLongest, most = std::max(1, w.rows / 256);
  cut.tiles = std::clamp((threads * kPieces + cut.slices - 1) / cut.slices, std::min(least, most), most);
  cut.tile = ((w.rows + cut.tiles - 1) / cut.tiles + 127) / 128 * 128;
  cut.tiles = (w.rows + cut.tile - 1) / cut.tile;
  return cut;
}

// One row, all matrices of the site that lie in columns: partial sums per slice of the input, added in slice order.
void decode_columns(const Pass& pass, const SiteTargets& targets, const int* packing, const SiteInputs& inputs, int row,
                    IndexList list) {
  ThreadPool& pool = *pass.run.pool;
  ColumnCut cuts[3];
  std::optional<ReadGuard> guards[3];
  int pieces = 0;
  float* partial = f32(pass.scratch.partial);
  for (int i = 0; i < targets.count; ++i) {
    const Matrix& w = *targets.w[i];
    cuts[i] = {0, 0, 0, 0, pieces, partial};
    if (w.layout != Layout::Columns) continue;
    if constexpr (kAddressSanitizer) guards[i].emplace(w, list);
    cuts[i] = cut_columns(w, pool.threads(), pieces, partial);
    pieces += cuts[i].slices * cuts[i].tiles;
    partial += size_t(cuts[i].slices) * size_t(w.rows);
  }
  if (pieces == 0) return;
  const auto begin_of = [&](int column) {  // first place in the list at or after a column
    if (list.index == nullptr) return std::min(column, list.count);
    return int(std::lower_bound(list.index, list.index + list.count, column) - list.index);
  };
  pool.run(pieces, [&](int piece, int) {
    int i = targets.count - 1;
    while (piece < cuts[i].first || cuts[i].slices == 0) --i;
    const Matrix& w = *targets.w[i];
    const ColumnCut& cut = cuts[i];
    const int slice = (piece - cut.first) / cut.tiles, row0 = (piece - cut.first) % cut.tiles * cut.tile;
    pass.run.kernels->axpy_columns(w, inputs.rows(packing[i], 0, pass.count()), row, list, begin_of(slice * cut.width),
                                   begin_of((slice + 1) * cut.width), row0, std::min(w.rows, row0 + cut.tile),
                                   cut.partial + size_t(slice) * size_t(w.rows));
  });
  for (int i = 0; i < targets.count; ++i) {
    if (cuts[i].slices == 0) continue;
    const Matrix& w = *targets.w[i];
    float* const y = targets.y[i] + size_t(row) * targets.ldy[i];
    const int unit = targets.finish == Finish::SiluMul ? w.unit : 1;
    const auto add_slices = [&](int begin, int end, int) {  // units
      const auto first = size_t(begin) * size_t(unit), n = size_t(end - begin) * size_t(unit);
      std::memcpy(y + first, cuts[i].partial + first, n * sizeof(float));
      for (int s = 1; s < cuts[i].slices; ++s)
        pass.run.kernels->add(cuts[i].partial + size_t(s) * size_t(w.rows) + first, int(n), y + first);
      finish(pass, targets, row, everything(w.rows / unit), begin, end);
    };
    // A small sum is done before a second thread has heard of it.
    constexpr int kShared = 32768;
    if (cuts[i].slices * w.rows >= kShared)
      parallel_ranges(pool, w.rows / unit, 256, add_slices);
    else
      add_slices(0, w.rows / unit, 0);
  }
}

bool same_units(const Selection& a, const Selection& b) {
  const bool a_rows = a.kind == Selection::Kind::Rows, b_rows = b.kind == Selection::Kind::Rows;
  return a_rows == b_rows && (!a_rows || (a.list.index == b.list.index && a.list.count == b.list.count));
}

Part part_of(Site site) {
  switch (site) {
    case Site::Qkv: return Part::Qkv;
    case Site::O: return Part::O;
    case Site::GateUp: return Part::GateUp;
    case Site::Down: return Part::Down;
  }
  return Part::Down;
}

// What a lone decode of this row reads of its matrices, and how many of their weights it uses.
void count_reads(const Pass& pass, Site site, int layer, const SiteTargets& targets, const Selection& selection,
                 Sequence& sequence) {
  for (int i = 0; i < targets.count; ++i) {
    const Matrix& w = *targets.w[i];
    const bool by_rows = selection.kind == Selection::Kind::Rows,
               by_columns = selection.kind == Selection::Kind::Columns;
    const bool skips = (by_rows && w.layout == Layout::Rows) || (by_columns && w.layout == Layout::Columns);
    const int all = w.layout == Layout::Rows ? w.rows / w.unit : w.cols;
    const uint64_t bytes =
        sequence.cached_bytes(site, layer, i, w, skips ? selection.list : everything(all), !skips || selection.lasting);
    sequence.reads.block_bytes += bytes;
    pass.run.watch.profile.bytes[size_t(part_of(site))] += bytes;
    sequence.reads.elements_used += by_rows      ? uint64_t(selection.list.count) * uint64_t(w.unit) * uint64_t(w.cols)
                                    : by_columns ? uint64_t(selection.list.count) * uint64_t(w.rows)
                                                 : uint64_t(w.rows) * uint64_t(w.cols);
  }
}

}  // namespace

// Rows of W that a product of many rows of x takes at once: pieces of work are multiples of it.
constexpr int kGemmRows = 32;

void project_prefill(const Pass& pass, const SiteTargets& targets, const float* x, int width, IndexList list) {
  SiteInputs inputs(pass, width);
  int packing[3] = {};
  for (int i = 0; i < targets.count; ++i) packing[i] = inputs.add(*targets.w[i]);
  ThreadPool& pool = *pass.run.pool;
  parallel_ranges(pool, pass.count(), kActsGroup, [&](int begin, int end, int) { inputs.pack_range(x, begin, end); });
  for (int i = 0; i < targets.count; ++i) {
    const Matrix& w = *targets.w[i];
    const Acts acts = inputs.rows(packing[i], 0, pass.count());
    if (w.layout == Layout::Columns) {
      parallel_ranges(pool, w.rows, 64, [&](int begin, int end, int) {
        pass.run.kernels->gemm_columns(w, acts, begin, end, targets.y[i], targets.ldy[i]);
      });
    } else {
      const IndexList units = list.count > 0 ? list : everything(w.rows / w.unit);
      parallel_ranges(pool, units.count, std::max(1, kGemmRows / w.unit), [&](int begin, int end, int) {
        pass.run.kernels->gemm_units(w, acts, units, begin, end, targets.y[i], targets.ldy[i]);
      });
    }
  }
  if (targets.finish == Finish::None) return;
  const int f = pass.model.spec.f;
  const IndexList all = everything(targets.finish == Finish::SiluMul ? f : targets.w[0]->rows);
  parallel_ranges(pool, pass.count(), 1, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r) {
      const IndexList units = list.count > 0 && targets.finish == Finish::SiluMul ? list : all;
      if (units.count < all.count)
        std::memset(f32(pass.scratch.h) + size_t(r) * size_t(f), 0, size_t(f) * sizeof(float));
      finish(pass, targets, r, units, 0, units.count);
    }
  });
}

namespace {

// Asks the row's policy, prepares its input, and computes what lies in columns.
void select_and_pack(const Pass& pass, Site site, int layer, const float* x, int width, int r,
                     const SiteTargets& targets, const int* packing, const SiteInputs& inputs) {
  Sequence& sequence = *pass.rows[size_t(r)].sequence;
  Selection& selection = pass.scratch.selections[size_t(r)];
  selection = {};
  if (sequence.policy != nullptr) {
    pass.run.watch.begin_select(part_of(site));
    const int position = pass.positions[r];
    selection = sequence.policy->select(site, layer, {x, size_t(width)}, position);
    if (selection.kind != Selection::Kind::Full && pass.run.listener != nullptr)
      pass.run.listener->chosen(sequence, position, layer, site, selection);
    pass.run.watch.end_select();
  }
  count_reads(pass, site, layer, targets, selection, sequence);
  const bool by_columns = selection.kind == Selection::Kind::Columns;
  if (by_columns && selection.zero_rest) {
    float* masked = f32(pass.scratch.masked);
    std::memset(masked, 0, size_t(width) * sizeof(float));
    for (int j = 0; j < selection.list.count; ++j) masked[selection.list[j]] = x[selection.list[j]];
    x = masked;
  }
  inputs.pack_row(r, x);
  if (by_columns) inputs.mask_row(r, selection.list);
  decode_columns(pass, targets, packing, inputs, r, by_columns ? selection.list : everything(width));
}

// A piece of decode's rows is not shorter: it would not be a stream (measured: docs/kernels.md).
constexpr size_t kPieceBytes = size_t(16) << 10;

// Rows [begin, end) of the pass, which share matrices and selected units: all matrices of the site in one parallel region.
void decode_rows(const Pass& pass, const SiteTargets& targets, const Selection& selection, const int* packing,
                 const SiteInputs& inputs, int begin, int end) {
  int pieces[4] = {0, 0, 0, 0}, size[3] = {1, 1, 1};
  IndexList lists[3];
  std::optional<ReadGuard> guards[3];
  for (int i = 0; i < targets.count; ++i) {
    const Matrix& w = *targets.w[i];
    pieces[i + 1] = pieces[i];
    if (w.layout != Layout::Rows) continue;
    lists[i] = selection.kind == Selection::Kind::Rows ? selection.list : everything(w.rows / w.unit);
    if constexpr (kAddressSanitizer) guards[i].emplace(w, lists[i]);
    const int least = std::max(4, int(kPieceBytes / std::max<size_t>(1, unit_bytes(w))));
    const int most = pass.run.pool->threads() * kPiecesPerThread;
    size[i] = std::max(least, (lists[i].count + most - 1) / most);
    pieces[i + 1] += (lists[i].count + size[i] - 1) / size[i];
  }
  for (int i = targets.count; i < 3; ++i) pieces[i + 1] = pieces[i];
  pass.run.pool->run(pieces[3], [&](int piece, int) {
    int i = 0;
    while (piece >= pieces[i + 1]) ++i;
    const int from = (piece - pieces[i]) * size[i], to = std::min(lists[i].count, from + size[i]);
    pass.run.kernels->dot_units(*targets.w[i], inputs.rows(packing[i], begin, end - begin), lists[i], from, to,
                                targets.y[i] + size_t(begin) * targets.ldy[i], targets.ldy[i]);
    for (int r = begin; r < end; ++r) finish(pass, targets, r, lists[i], from, to);
  });
}

}  // namespace

void project_decode(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of) {
  const int n = pass.count();
  SiteInputs inputs(pass, width);
  const SiteTargets first = targets_of(pass, layer, 0);  // types and layouts are the same for every row
  int packing[3] = {};
  for (int i = 0; i < first.count; ++i) packing[i] = inputs.add(*first.w[i]);
  // A column list lives until the same state's next select() at this site, so it is used up row by row; units of matrices
  // in rows, whose list is one for the whole sequence, wait to be computed together.
  for (int r = 0; r < n; ++r)
    select_and_pack(pass, site, layer, x + size_t(r) * size_t(width), width, r, targets_of(pass, layer, r), packing,
                    inputs);
  const std::vector<Selection>& selections = pass.scratch.selections;
  for (int begin = 0, end = 0; begin < n; begin = end) {
    const SiteTargets shared = targets_of(pass, layer, begin);
    const Selection& selection = selections[size_t(begin)];
    for (end = begin + 1; end < n; ++end)
      if (!same_units(selection, selections[size_t(end)]) || targets_of(pass, layer, end).w[0] != shared.w[0]) break;
    decode_rows(pass, shared, selection, packing, inputs, begin, end);
  }
}

}  // namespace pop
