// Scratch memory of forward passes: allocated once for a largest row count, nothing is allocated between tokens.
#pragma once
#include <algorithm>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "model/attention.h"
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

class Activations {
 public:
  Activations(const ModelSpec& spec, const KernelTable& kernels, int max_rows, int context, int threads)
      : attention(spec, max_rows, context, threads), max_rows_(max_rows) {
    const auto rows = size_t(max_rows);
    const int widest = std::max({spec.d, spec.f, spec.q_dim()});
    x = floats(rows * size_t(spec.d));
    normed = floats(rows * size_t(spec.d));
    qkv = floats(rows * size_t(spec.q_dim() + 2 * spec.kv_dim()));
    attended = floats(rows * size_t(spec.q_dim()));
    gate_up = floats(rows * size_t(2 * spec.f));
    h = floats(rows * size_t(spec.f));
    masked = floats(rows * size_t(widest));
    delta = floats(rows * size_t(spec.d));
    cos_sin = floats(rows * size_t(spec.rope.dim));
    logits = floats(std::min(rows, size_t(kLogitRows)) * size_t(spec.vocab));
    size_t act = 0;
    for (const ActType type : {ActType::F32, ActType::BF16, ActType::I16, ActType::I8})
      for (const Layout layout : {Layout::Rows, Layout::Columns})
        act = std::max(act, kernels.acts_bytes(type, layout, widest));
    const size_t groups = (rows + kActsGroup - 1) / kActsGroup;
    for (AlignedBuffer& buffer : packed) buffer = AlignedBuffer(act * groups * kActsGroup);
    const auto column_sums = [](int out, int in) { return size_t(column_slices(out, in)) * size_t(out); };
    partial = floats(
        std::max({column_sums(spec.q_dim(), spec.d) + 2 * column_sums(spec.kv_dim(), spec.d),
                  column_sums(spec.d, spec.q_dim()), column_sums(2 * spec.f, spec.d), column_sums(spec.d, spec.f)}) *
        std::min(rows, size_t(kRowsTogether)));
    sums = AlignedBuffer(size_t(widest) * sizeof(double));
    kept_lists_ = AlignedBuffer(rows * size_t(widest) * sizeof(int32_t), AlignedBuffer::Pages::Small);
    widest_ = size_t(widest);
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
  AlignedBuffer packed[3];  // x of a site prepared for up to three (arithmetic, layout) pairs
  AttentionPlan attention;
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
