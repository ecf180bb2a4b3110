#include "model/project.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "base/sanitizer.h"
#include "kernels/pack.h"
#include "model/lists.h"
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

// What of matrix i of its site a row reads.
IndexList read_list(const Matrix& w, const Selection& selection) {
  const bool rows = w.layout == Layout::Rows;
  const bool skips = selection.kind == (rows ? Selection::Kind::Rows : Selection::Kind::Columns);
  return skips ? selection.list : everything(rows ? w.rows / w.unit : w.cols);
}

// The rows of a pass at one site: their selections and matrices.
struct SiteRows {
  const Pass& pass;
  Site site;
  int layer;
  TargetsOf targets_of;
  SiteTargets targets(int row) const { return targets_of(pass, layer, row); }
  int place(int row) const { return pass.place(site, layer, row); }
  const Selection& selection(int row) const { return pass.scratch.selections[size_t(row)]; }
  // Calls visit(matrix, what rows [begin, end) read of it) for the i-th matrix of the site, for each copy of it once.
  template <class Visit>
  void for_each_matrix(int i, int begin, int end, Visit&& visit) const {
    for (int r = begin; r < end; ++r) {
      const Matrix& w = *targets(r).w[i];
      bool known = false;
      for (int before = begin; before < r && !known; ++before) known = targets(before).w[i] == &w;
      if (known) continue;
      Union all;
      all.begin(w.layout == Layout::Rows ? w.rows / w.unit : w.cols);
      for (int other = r; other < end; ++other)
        if (targets(other).w[i] == &w) all.add(read_list(w, selection(other)));
      visit(w, all.list());
    }
  }
};

// In AddressSanitizer builds: while they live, reading what no row of [begin, end) counts as read is reported as an error.
class ReadGuards {
 public:
  ReadGuards(const SiteRows& rows, int i, int begin, int end) {
    if constexpr (kAddressSanitizer)
      rows.for_each_matrix(i, begin, end, [&](const Matrix& w, IndexList list) { guards_.emplace_back(w, list); });
  }

 private:
  std::deque<ReadGuard> guards_;
};

// Outputs of the units list[begin .. end) of one row of the pass are there.
void finish(const Pass& pass, const SiteTargets& targets, int row, IndexList list, int begin, int end) {
  const float* y = targets.y[0] + size_t(row) * targets.ldy[0];
  const auto d = size_t(pass.model.spec.d);
  switch (targets.finish) {
    case Finish::None: return;
    case Finish::AddToX:  // every output, in units of one
      return pass.run.kernels->add(y + begin, end - begin, f32(pass.scratch.x) + size_t(row) * d + begin);
    case Finish::GateMul:
      return gate_mul(pass)(y, list, begin, end, f32(pass.scratch.h) + size_t(row) * size_t(targets.w[0]->rows / 2));
  }
}

// How the work of one matrix in columns is cut: slices of its inputs, whose sums are added in order, by tiles of its outputs.
struct ColumnCut {
  int width = 0, slices = 0, tile = 0, tiles = 0;
  int rows = 1;   // pieces for as many rows of the pass; 1: a piece serves all of them
  int first = 0;  // piece of the region
  size_t at = 0;  // of [slices, rows] among a row's partial sums
};

// Columns of a slice of the input, and outputs of a tile: small enough that what one row has read of them is still in the
// second-level cache when the next row of the batch wants it.
constexpr size_t kTileBytes = size_t(1) << 20;

// apart: the rows have matrices of their own, as experts do. Then a piece is a slice of one row's, in whole columns; rows that do
// share a matrix come one after another.
ColumnCut cut_columns(const Matrix& w, int threads, int rows, bool apart) {
  // Tiles are whole cache lines of every type, and a multiple of what a kernel takes at once; slices alone are preferred, for
  // a tile's runs of bytes are shorter than a column.
  constexpr int kLongest = 8192, kPieces = 3;  // kPieces: per thread
  ColumnCut cut{.width = column_slice(w.rows, w.cols), .slices = column_slices(w.rows, w.cols)};
  if (apart && rows * cut.slices >= threads * kPieces && w.rows <= kLongest) {
    cut.rows = rows, cut.tile = w.rows, cut.tiles = 1;
    return cut;
  }
  const int most = std::max(1, w.rows / 256);
  int least = (w.rows + kLongest - 1) / kLongest;
  if (rows > 1) {
    const size_t slice_bytes = bytes_read(w, everything(w.cols)) / size_t(cut.slices);
    least = std::max(least, int(std::min<size_t>((slice_bytes + kTileBytes - 1) / kTileBytes, size_t(most))));
  }
  cut.tiles = std::clamp((threads * kPieces + cut.slices - 1) / cut.slices, std::min(least, most), most);
  cut.tile = ((w.rows + cut.tiles - 1) / cut.tiles + 127) / 128 * 128;
  cut.tiles = (w.rows + cut.tile - 1) / cut.tile;
  return cut;
}

// Adds the slices of matrix i of rows [begin, end) in order.
void add_slices(const SiteRows& rows, const ColumnCut& cut, size_t per_row, int i, int begin, int end) {
  const Pass& pass = rows.pass;
  const SiteTargets targets = rows.targets(begin);
  const Matrix& w = *targets.w[i];
  const int unit = targets.finish == Finish::GateMul ? w.unit : 1, units = w.rows / unit;
  const auto add = [&](int row, int from, int to) {  // units
    float* const y = targets.y[i] + size_t(row) * targets.ldy[i];
    const float* const partial = f32(pass.scratch.partial) + size_t(row - begin) * per_row + cut.at;
    const auto at = size_t(from) * size_t(unit), n = size_t(to - from) * size_t(unit);
    std::memcpy(y + at, partial + at, n * sizeof(float));
    for (int s = 1; s < cut.slices; ++s)
      pass.run.kernels->add(partial + size_t(s) * size_t(w.rows) + at, int(n), y + at);
    finish(pass, targets, row, everything(units), from, to);
  };
  // A small sum is done before a second thread has heard of it.
  constexpr int kShared = 32768;
  if ((end - begin) * cut.slices * w.rows < kShared) {
    for (int r = begin; r < end; ++r) add(r, 0, units);
  } else if (end - begin == 1) {
    parallel_ranges(*pass.run.pool, units, 256, [&](int from, int to, int) { add(begin, from, to); });
  } else {
    pass.run.pool->run(end - begin, [&](int r, int) { add(begin + r, 0, units); });
  }
}

// Rows [begin, end) of the pass, all matrices of the site that lie in columns: partial sums per slice of the input, added in
// slice order. A piece serves one row after the other, so that a column that several want comes from memory once. (Unpacking it
// once for all of them as well was slower, 0.87 to 0.96 of this with 8 rows and lists of their own: docs/kernels.md.)
void decode_columns(const SiteRows& rows, const int* packing, const SiteInputs& inputs, int begin, int end) {
  const Pass& pass = rows.pass;
  const SiteTargets first = rows.targets(begin);
  ColumnCut cuts[3];
  std::optional<ReadGuards> guards[3];
  int pieces = 0;
  size_t per_row = 0;
  for (int i = 0; i < first.count; ++i) {
    const Matrix& w = *first.w[i];
    if (w.layout == Layout::Columns) {
      if constexpr (kAddressSanitizer) guards[i].emplace(rows, i, begin, end);
      cuts[i] = cut_columns(w, pass.run.pool->threads(), end - begin, rows.place(begin) != rows.place(end - 1));
    }
    cuts[i].first = pieces;
    cuts[i].at = per_row;
    pieces += cuts[i].slices * cuts[i].tiles * cuts[i].rows;
    per_row += size_t(cuts[i].slices) * size_t(w.rows);
  }
  if (pieces == 0) return;
  pass.run.pool->run(pieces, [&](int piece, int) {
    int i = first.count - 1;
    while (piece < cuts[i].first || cuts[i].slices == 0) --i;
    const ColumnCut& cut = cuts[i];
    const int own = (piece - cut.first) % cut.rows, at = (piece - cut.first) / cut.rows;
    const int slice = at / cut.tiles, row0 = at % cut.tiles * cut.tile;
    for (int r = begin + own; r < (cut.rows > 1 ? begin + own + 1 : end); ++r) {
      const Matrix& w = *rows.targets(r).w[i];
      const IndexList list = read_list(w, rows.selection(r));
      const auto [from, to] = between(list, slice * cut.width, (slice + 1) * cut.width);
      pass.run.kernels->axpy_columns(
          w, inputs.rows(packing[i], 0, pass.count()), r, list, from, to, row0, std::min(w.rows, row0 + cut.tile),
          f32(pass.scratch.partial) + size_t(r - begin) * per_row + cut.at + size_t(slice) * size_t(w.rows));
    }
  });
  for (int i = 0; i < first.count; ++i)
    if (cuts[i].slices > 0) add_slices(rows, cuts[i], per_row, i, begin, end);
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
void count_reads(const Pass& pass, Site site, int place, const SiteTargets& targets, const Selection& selection,
                 Sequence& sequence) {
  for (int i = 0; i < targets.count; ++i) {
    const Matrix& w = *targets.w[i];
    const bool by_rows = selection.kind == Selection::Kind::Rows,
               by_columns = selection.kind == Selection::Kind::Columns;
    const IndexList list = read_list(w, selection);
    const uint64_t bytes = sequence.cached_bytes(site, place, i, w, list, list.index == nullptr || selection.lasting);
    sequence.reads.block_bytes += bytes;
    if (of_ffn(site)) sequence.reads.of(pass.model, place).bytes += bytes;
    pass.run.watch.profile.bytes[size_t(part_of(site))] += bytes;
    sequence.reads.elements_used += by_rows      ? uint64_t(selection.list.count) * uint64_t(w.unit) * uint64_t(w.cols)
                                    : by_columns ? uint64_t(selection.list.count) * uint64_t(w.rows)
                                                 : uint64_t(w.rows) * uint64_t(w.cols);
  }
  sequence.reads.count_choice(pass.model, site, place, selection);
}

}  // namespace

// Rows of W that a product of many rows of x takes at once: pieces of work are multiples of it.
constexpr int kGemmRows = 32;

void project_prefill(const Pass& pass, const SiteTargets& targets, const float* x, int width, const IndexList* list) {
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
      const IndexList units = list != nullptr ? *list : everything(w.rows / w.unit);
      parallel_ranges(pool, units.count, std::max(1, kGemmRows / w.unit), [&](int begin, int end, int) {
        pass.run.kernels->gemm_units(w, acts, units, begin, end, targets.y[i], targets.ldy[i]);
      });
    }
  }
  if (targets.finish == Finish::None) return;
  const int f = targets.w[0]->rows / 2;  // with GateMul
  const IndexList all = everything(targets.finish == Finish::GateMul ? f : targets.w[0]->rows);
  parallel_ranges(pool, pass.count(), 1, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r) {
      const IndexList units = list != nullptr ? *list : all;
      if (units.count < all.count)
        std::memset(f32(pass.scratch.h) + size_t(r) * size_t(f), 0, size_t(f) * sizeof(float));
      finish(pass, targets, r, units, 0, units.count);
    }
  });
}

namespace {

// A row's list stays as it is until its state is asked again in this layer: for a later row of the same text it is copied.
void keep_list(const SiteRows& rows, int row, Selection& selection) {
  const Pass& pass = rows.pass;
  const bool asked_again =
      rows.place(0) != rows.place(pass.count() - 1) ||
      (row + 1 < pass.count() && pass.rows[size_t(row) + 1].sequence == pass.rows[size_t(row)].sequence);
  if (!asked_again || selection.lasting || selection.list.index == nullptr) return;
  int32_t* const kept = pass.scratch.kept(row);
  std::copy_n(selection.list.index, selection.list.count, kept);
  selection.list.index = kept;
}

// What rows with one policy between them (--partition shared) are asked about: the root of the mean square of each input.
const float* mean_input(const Pass& pass, const float* x, int count, int width) {
  double* const sums = reinterpret_cast<double*>(pass.scratch.sums.data());
  std::fill(sums, sums + width, 0.0);
  pass.run.kernels->add_squares(x, count, size_t(width), width, sums);
  float* const mean = f32(pass.scratch.masked);
  for (int i = 0; i < width; ++i) mean[i] = float(std::sqrt(sums[i] / count));
  return mean;
}

// Asks the policies of all rows, each about its row, or the one they share about all that are at the same place.
void select(const SiteRows& rows, const float* x, int width) {
  const Pass& pass = rows.pass;
  const bool shared = pass.rows[0].sequence->shares_policy;
  int first = 0, together = 0;  // rows at this place
  for (int r = 0; r < pass.count(); ++r) {
    Sequence& sequence = *pass.rows[size_t(r)].sequence;
    Selection& selection = pass.scratch.selections[size_t(r)];
    if (shared && r < first + together) {
      selection = pass.scratch.selections[size_t(first)];
      continue;
    }
    first = r, together = 1;
    while (shared && r + together < pass.count() && rows.place(r + together) == rows.place(r)) ++together;
    selection = {};
    if (sequence.policy == nullptr) continue;
    pass.run.watch.begin_select(part_of(rows.site));
    const float* about = x + size_t(r) * size_t(width);
    if (together > 1) about = mean_input(pass, about, together, width);
    selection = sequence.policy->select(rows.site, rows.place(r), {about, size_t(width)}, pass.positions[r]);
    keep_list(rows, r, selection);
    if (selection.kind != Selection::Kind::Full && pass.run.listener != nullptr)
      pass.run.listener->chosen(sequence, pass.positions[r], rows.place(r), rows.site, selection);
    pass.run.watch.end_select();
  }
}

// A row's input, prepared for the site's matrices.
void pack(const SiteRows& rows, const float* x, int width, int r, const SiteInputs& inputs) {
  const Pass& pass = rows.pass;
  const Selection& selection = rows.selection(r);
  const bool by_columns = selection.kind == Selection::Kind::Columns;
  if (by_columns && selection.zero_rest) {
    float* masked = f32(pass.scratch.masked);
    std::memset(masked, 0, size_t(width) * sizeof(float));
    for (int j = 0; j < selection.list.count; ++j) masked[selection.list[j]] = x[selection.list[j]];
    x = masked;
  }
  inputs.pack_row(r, x);
  if (by_columns) inputs.mask_row(r, selection.list);
}

// A piece of decode's rows is not shorter: it would not be a stream (measured: docs/kernels.md).
constexpr size_t kPieceBytes = size_t(16) << 10;

// Consecutive rows of the pass that share matrices and selected units.
struct RowGroup {
  int begin, end;
  SiteTargets targets;
  IndexList lists[3];
};

// All matrices of the site that lie in rows, in one parallel region; a piece is a range of units. If all groups share
// a matrix they are multiplied together, by what any of them wants: a unit comes from memory once and is unpacked once, which
// costs less than what a row does not use of it.
void decode_groups(const SiteRows& rows, std::span<const RowGroup> groups, const int* packing,
                   const SiteInputs& inputs) {
  const Pass& pass = rows.pass;
  const SiteTargets& first = groups[0].targets;
  int pieces[4] = {0, 0, 0, 0}, size[3] = {1, 1, 1};
  bool shared[3] = {};
  IndexList lists[3];
  std::optional<ReadGuards> guards[3];
  for (int i = 0; i < first.count; ++i) {
    const Matrix& w = *first.w[i];
    pieces[i + 1] = pieces[i];
    if (w.layout != Layout::Rows) continue;
    if constexpr (kAddressSanitizer) guards[i].emplace(rows, i, groups.front().begin, groups.back().end);
    shared[i] = std::all_of(groups.begin(), groups.end(), [&](const RowGroup& g) { return g.targets.w[i] == &w; });
    if (groups.size() == 1) {
      lists[i] = groups[0].lists[i];
    } else if (!shared[i]) {
      lists[i] = everything(w.rows / w.unit);
    } else {
      Union& wanted = pass.scratch.unions[i];
      wanted.begin(w.rows / w.unit);
      for (const RowGroup& g : groups) wanted.add(g.lists[i]);
      lists[i] = wanted.list();
    }
    const int least = std::max(4, int(kPieceBytes / std::max<size_t>(1, unit_bytes(w))));
    const int most = pass.run.pool->threads() * kPiecesPerThread;
    size[i] = std::max(least, (lists[i].count + most - 1) / most);
    pieces[i + 1] += (lists[i].count + size[i] - 1) / size[i];
  }
  for (int i = first.count; i < 3; ++i) pieces[i + 1] = pieces[i];
  if (pieces[3] == 0) return;
  pass.run.pool->run(pieces[3], [&](int piece, int) {
    int i = 0;
    while (piece >= pieces[i + 1]) ++i;
    const int begin = (piece - pieces[i]) * size[i], end = std::min(lists[i].count, begin + size[i]);
    const auto multiply = [&](const RowGroup& g, int last_row, IndexList list, int from, int to) {
      pass.run.kernels->dot_units(*g.targets.w[i], inputs.rows(packing[i], g.begin, last_row - g.begin), list, from, to,
                                  g.targets.y[i] + size_t(g.begin) * g.targets.ldy[i], g.targets.ldy[i]);
    };
    if (shared[i]) multiply(groups[0], groups.back().end, lists[i], begin, end);
    for (const RowGroup& g : groups) {
      const auto [from, to] = between(g.lists[i], lists[i][begin], lists[i][end - 1] + 1);
      if (from == to) continue;
      if (!shared[i]) multiply(g, g.end, g.lists[i], from, to);
      for (int r = g.begin; r < g.end; ++r) finish(pass, g.targets, r, g.lists[i], from, to);
    }
  });
}

void decode_rows(const SiteRows& rows, const int* packing, const SiteInputs& inputs) {
  const int n = rows.pass.count();
  RowGroup groups[Activations::kRowsTogether];
  size_t count = 0;
  for (int begin = 0, end = 0; begin < n; begin = end) {
    RowGroup& g = groups[count++];
    g = {begin, begin, rows.targets(begin), {}};
    for (end = begin + 1; end < n; ++end)
      if (!same_units(rows.selection(begin), rows.selection(end)) || rows.targets(end).w[0] != g.targets.w[0]) break;
    g.end = end;
    for (int i = 0; i < g.targets.count; ++i) g.lists[i] = read_list(*g.targets.w[i], rows.selection(begin));
    if (count < std::size(groups) && end < n) continue;
    decode_groups(rows, {groups, count}, packing, inputs);
    count = 0;
  }
}

// Weights that a pass reads at this site: what several rows want, once.
void count_forward(const SiteRows& rows) {
  const Pass& pass = rows.pass;
  const SiteTargets first = rows.targets(0);
  for (int i = 0; i < first.count; ++i)
    rows.for_each_matrix(i, 0, pass.count(),
                         [&](const Matrix& w, IndexList list) { pass.run.forward_bytes += bytes_read(w, list); });
}

}  // namespace

void project_decode(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of) {
  const SiteRows rows{pass, site, layer, targets_of};
  const int n = pass.count();
  SiteInputs inputs(pass, width);
  const SiteTargets first = rows.targets(0);  // types and layouts are the same for every row
  int packing[3] = {};
  for (int i = 0; i < first.count; ++i) packing[i] = inputs.add(*first.w[i]);
  select(rows, x, width);
  for (int r = 0; r < n; ++r) {
    count_reads(pass, site, rows.place(r), rows.targets(r), rows.selection(r), *pass.rows[size_t(r)].sequence);
    pack(rows, x + size_t(r) * size_t(width), width, r, inputs);
  }
  if (pass.run.counts_forward) count_forward(rows);
  for (int begin = 0; begin < n; begin += Activations::kRowsTogether)
    decode_columns(rows, packing, inputs, begin, std::min(n, begin + Activations::kRowsTogether));
  decode_rows(rows, packing, inputs);
}

}  // namespace pop
