// Scratch memory of forward passes: allocated once for a largest row count, nothing is allocated between tokens.
#pragma once
#include <algorithm>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "model/spec.h"
#include "prune/policy.h"

namespace pop {

// Column sums are made over slices of the input that its width alone fixes ("Bits"): width / 16 rounded up to whole blocks,
// at least 256 columns, so that a small layer is not cut into slivers and a large one feeds many threads.
inline int column_slice(int cols) { return std::max(256, ((cols + 15) / 16 + 255) / 256 * 256); }
inline int column_slices(int cols) { return (cols + column_slice(cols) - 1) / column_slice(cols); }

class Activations {
 public:
  Activations(const ModelSpec& spec, const KernelTable& kernels, int max_rows, int context, int threads)
      : max_rows_(max_rows) {
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
    logits = floats(size_t(kLogitRows) * size_t(spec.vocab));
    size_t act = 0;
    for (const ActType type : {ActType::F32, ActType::BF16, ActType::I16, ActType::I8})
      for (const Layout layout : {Layout::Rows, Layout::Columns})
        act = std::max(act, kernels.acts_bytes(type, layout, widest));
    for (AlignedBuffer& buffer : packed) buffer = AlignedBuffer(act * rows);
    const int outputs = std::max({spec.d, 2 * spec.f, spec.q_dim() + 2 * spec.kv_dim()});
    partial = floats(size_t(std::max(column_slices(spec.d) * outputs, column_slices(widest) * spec.d)));
    attention_stride = (size_t(spec.heads / spec.kv_heads) * size_t(context) + 15) / 16 * 16;
    attention = floats(size_t(threads) * attention_stride);
    selections.resize(rows);
    positions.resize(rows);
    wanted.reserve(rows);
  }

  int max_rows() const { return max_rows_; }
  // The head runs for at most so many rows at once, whatever the prompt's length.
  static constexpr int kLogitRows = 16;

  AlignedBuffer x, normed, qkv, attended, gate_up, h, masked, delta, cos_sin, logits, partial, attention;
  AlignedBuffer packed[3];            // x of a site prepared for up to three (arithmetic, layout) pairs
  size_t attention_stride = 0;        // floats of `attention` that each thread has
  std::vector<Selection> selections;  // [rows] of the site at hand
  std::vector<int> positions;         // [rows]
  std::vector<int> wanted;            // rows of the pass that want logits

 private:
  static AlignedBuffer floats(size_t count) { return AlignedBuffer(count * sizeof(float)); }
  int max_rows_;
};

inline float* f32(const AlignedBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

}  // namespace pop
