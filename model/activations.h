// Scratch memory of forward passes: allocated once for a largest row count, nothing is allocated between tokens.
#pragma once
#include <algorithm>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "model/attention.h"
#include "model/forward.h"
#include "model/lists.h"
#include "model/spec.h"
#include "prune/policy.h"

namespace pop {

// Column sums are made over slices of the input that the shape alone fixes ("Bits"): of about equal width, at least 256 columns
// so that a small layer is not cut into slivers, at most 8 and of tall matrices, whose outputs can be cut as well, 2; what
// shares a header stays together where it can.
inline int column_slice(int rows, int cols) {
  const int slices = std::clamp((cols + 255) / 256, 1, rows < 8192 ? 8 : 2), step = cols % 256 == 0 ? 256 : 32;
  return ((cols + slices - 1) / slices + step - 1) / step * step;
}
inline int column_slices(int rows, int cols) {
  return (cols + column_slice(rows, cols) - 1) / column_slice(rows, cols);
}

// A row of the pass on its way through one expert, whose output counts by `weight`.
struct Routed {
  int row, expert;
  float weight;
};

// Of one layer's FFNs: which rows go through which, and rows as they stand together for it.
struct RoutingScratch {
  RoutingScratch() = default;
  RoutingScratch(const ModelSpec& spec, size_t most) : ffns(most) {
    if (spec.moe.experts == 0) return;
    rows.resize(most);
    positions.resize(most);
    by_row.resize(most * size_t(spec.moe.used));
    by_expert = by_row;
    begins.resize(size_t(spec.moe.experts) + 1);
    scores = AlignedBuffer(most * size_t(spec.moe.experts) * sizeof(float));
    x = AlignedBuffer(most * size_t(spec.d) * sizeof(float));
    mixed = AlignedBuffer(most * size_t(spec.d) * sizeof(float));
  }
  std::vector<int> ffns;  // [rows] as Pass::ffns
  std::vector<ForwardRow> rows;
  std::vector<int> positions;
  std::vector<Routed> by_row, by_expert;  // [rows * used]
  std::vector<int> begins;                // [experts + 1] counts, then places in by_expert
  AlignedBuffer scores, x, mixed;         // [rows, experts], [rows, d], [rows, d]
};

class Activations {
 public:
  Activations(const ModelSpec& spec, const KernelTable& kernels, int max_rows, int context, int threads)
      : attention(spec, max_rows, context, threads), max_rows_(max_rows) {
    const auto rows = size_t(max_rows);
    const int f = spec.widest_ffn(), widest = std::max({spec.d, f, spec.q_dim()});
    x = floats(rows * size_t(spec.d));
    normed = floats(rows * size_t(spec.d));
    qkv = floats(rows * size_t(spec.q_dim() + 2 * spec.kv_dim()));
    attended = floats(rows * size_t(spec.q_dim()));
    gate_up = floats(rows * size_t(2 * f));
    h = floats(rows * size_t(f));
    masked = floats(rows * size_t(widest));
    delta = floats(rows * size_t(spec.d));
    cos_sin = floats(rows * size_t(spec.rope.dim));
    if (spec.window_rope) window_cos_sin = floats(rows * size_t(spec.rope.dim));
    logits = floats(std::min(rows, size_t(kLogitRows)) * size_t(spec.vocab));
    size_t act = 0;
    for (const ActType type : {ActType::F32, ActType::BF16, ActType::I16, ActType::I8})
      for (const Layout layout : {Layout::Rows, Layout::Columns})
        act = std::max(act, kernels.acts_bytes(type, layout, widest));
    const size_t groups = (rows + kActsGroup - 1) / kActsGroup;
    for (AlignedBuffer& buffer : packed) buffer = AlignedBuffer(act * groups * kActsGroup);
    const auto column_sums = [](int out, int in) { return size_t(column_slices(out, in)) * size_t(out); };
    size_t most = std::max(column_sums(spec.q_dim(), spec.d) + 2 * column_sums(spec.kv_dim(), spec.d),
                           column_sums(spec.d, spec.q_dim()));
    for (const int width : spec.ffn_widths())
      most = std::max({most, column_sums(2 * width, spec.d), column_sums(spec.d, width)});
    partial = floats(most * std::min(rows, size_t(kRowsTogether)));
    sums = AlignedBuffer(size_t(widest) * sizeof(double));
    kept_lists_ = AlignedBuffer(rows * size_t(widest) * sizeof(int32_t), AlignedBuffer::Pages::Small);
    widest_ = size_t(widest);
    routing = RoutingScratch(spec, rows);
    selections.resize(rows);
    positions.resize(rows);
    wanted.reserve(rows);
  }

  int max_rows() const { return max_rows_; }
  // The head runs for at most so many rows at once, whatever the prompt's length.
  static constexpr int kLogitRows = 64;

  // Rows that decode serves with one reading of matrices in columns, or of differing lists of units.
  static constexpr int kRowsTogether = 16;
  // Room for a list of a row's columns.
  int32_t* kept(int row) { return reinterpret_cast<int32_t*>(kept_lists_.data()) + size_t(row) * widest_; }

  AlignedBuffer x, normed, qkv, attended, gate_up, h, masked, delta, cos_sin, logits, partial, sums;
  AlignedBuffer window_cos_sin;  // as cos_sin, of layers with positions of their own
  AlignedBuffer packed[3];       // x of a site prepared for up to three (arithmetic, layout) pairs
  AttentionPlan attention;
  RoutingScratch routing;
  Union unions[3];                    // per matrix of a site: what any row of a batch wants
  std::vector<Selection> selections;  // [rows] of the site at hand
  std::vector<int> positions;         // [rows]
  std::vector<int> wanted;            // rows of the pass that want logits

 private:
  static AlignedBuffer floats(size_t count) { return AlignedBuffer(count * sizeof(float)); }
  int max_rows_;
  size_t widest_ = 0;
  AlignedBuffer kept_lists_;
};

inline float* f32(const AlignedBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

}  // namespace pop
