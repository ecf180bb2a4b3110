#include "model/attention.h"

#include <algorithm>

#include "kernels/kv.h"
#include "model/project.h"

namespace pop {
namespace {

// Ranges are so long that merging them is little, and so short that the 3 key-value heads of a small model give two threads more
// than 3 pieces from position 128 on.
constexpr int kRange = 2 * kKeyBlock;
static_assert(kKvRange % kRange == 0);
// Tokens that share one pass over the keys and values. In prefill many, so that widening a block of them costs little.
constexpr int kPrefillTokens = 32, kDecodeTokens = 4;
// So many pieces per thread, or ranges become pieces of their own.
constexpr int kWholePerThread = 4;

int ranges_of(int position) { return position / kRange + 1; }
// The first position that a token sees, and the range that has it.
int first_seen(int position, int window) { return window == 0 ? 0 : std::max(0, position + 1 - window); }
int first_range(int position, int window) { return first_seen(position, window) / kRange; }

}  // namespace

AttentionPlan::AttentionPlan(const ModelSpec& spec, int max_rows, int context, int threads)
    : group_(spec.heads / spec.kv_heads), head_dim_(spec.head_dim), kv_heads_(spec.kv_heads) {
  const auto floats = [&](int ranges, int tokens) {
    return size_t(ranges) * size_t(tokens) * size_t(group_) * size_t(head_dim_ + 2);
  };
  const auto whole_lines = [](size_t count) { return (count + 15) / 16 * 16; };
  part_floats_ = whole_lines(std::max(floats(1, kPrefillTokens), floats(ranges_of(context), kDecodeTokens)));
  scratch_floats_ = whole_lines(attention_scratch(kPrefillTokens, group_, head_dim_));
  shared_ = kWholePerThread * threads;
  const size_t all = size_t(threads) * (scratch_floats_ + part_floats_) + size_t(shared_) * part_floats_;
  memory_ = AlignedBuffer(all * sizeof(float), AlignedBuffer::Pages::Small);  // most of it for contexts that never come
  missing_ = std::make_unique<std::atomic<int>[]>(size_t(shared_));
  blocks_.reserve(size_t(max_rows));
}

void AttentionPlan::cut(const Pass& pass) {
  const bool prefill = pass.phase == Phase::Prefill;
  const int most = prefill ? kPrefillTokens : kDecodeTokens;
  blocks_.clear();
  int ranges = 0;
  for_each_sequence(pass, [&](int first, int count) {
    for (int row = first; row < first + count; row += most) {
      const int tokens = std::min(most, first + count - row), position = pass.positions[row];
      const int of_last = prefill ? 1 : ranges_of(position + tokens - 1);
      blocks_.push_back({row, tokens, position, of_last, ranges * kv_heads_});
      ranges += of_last;
    }
  });
  const int whole = int(blocks_.size()) * kv_heads_;
  by_range_ = whole < shared_ && ranges > int(blocks_.size());
  pieces_ = by_range_ ? ranges * kv_heads_ : whole;
}

AttentionPlan::Parts AttentionPlan::parts_at(float* memory, const AttentionBlock& block) const {
  const size_t rows = size_t(block.ranges) * size_t(block.tokens) * size_t(group_);
  float* const tops = memory + rows * size_t(head_dim_);
  return {memory, tops, tops + rows};
}

void AttentionPlan::compute(const Pass& pass, int layer, const AttentionBlock& block, int head, int range,
                            const Parts& parts, float* scratch) const {
  const ModelSpec& s = pass.model.spec;
  const KvCache& kv = pass.rows[size_t(block.row)].sequence->kv;
  const bool prefill = pass.phase == Phase::Prefill;
  const int window = s.window(layer);
  const int first = prefill ? first_seen(block.position, window) / kKeyBlock * kKeyBlock : range * kRange;
  const int blind = std::max(0, first - block.position);  // tokens before the range
  const size_t ld = size_t(s.q_dim() + 2 * s.kv_dim()), at = size_t(range * block.tokens + blind) * size_t(group_);
  pass.run.kernels->attention(
      {.q = f32(pass.scratch.qkv) + size_t(block.row + blind) * ld + size_t(head) * size_t(group_) * size_t(head_dim_),
       .q_stride = ld,
       .tokens = block.tokens - blind,
       .group = group_,
       .head_dim = head_dim_,
       .keys = kv.keys(layer, head, 0),
       .values = kv.values(layer, head, 0),
       .range_stride = kv.range_stride(),
       .type = kv.type(),
       .position = block.position + blind,
       .window = window,
       .first = first,
       .last = prefill ? block.position + block.tokens : first + kRange,
       .scale = s.attention_scale,
       .cap = s.attention_cap,
       .out = parts.out + at * size_t(head_dim_),
       .tops = parts.tops + at,
       .totals = parts.totals + at,
       .scratch = scratch});
}

void AttentionPlan::merge(const Pass& pass, int layer, const AttentionBlock& block, int head,
                          const Parts& parts) const {
  const size_t rows = size_t(block.tokens) * size_t(group_), dim = size_t(head_dim_);
  float* const attended = f32(pass.scratch.attended) + size_t(block.row) * size_t(pass.model.spec.q_dim()) +
                          size_t(head) * size_t(group_) * dim;
  for (int t = 0; t < block.tokens; ++t) {
    const bool prefill = pass.phase == Phase::Prefill;
    const int first = prefill ? 0 : first_range(block.position + t, pass.model.spec.window(layer));
    const int ranges = prefill ? 1 : ranges_of(block.position + t) - first;
    for (int g = 0; g < group_; ++g) {
      const auto row = size_t(first) * rows + size_t(t * group_ + g);
      pass.run.kernels->attention_merge(parts.out + row * dim, rows * dim, parts.tops + row, parts.totals + row, rows,
                                        ranges, head_dim_,
                                        attended + size_t(t) * size_t(pass.model.spec.q_dim()) + size_t(g) * dim);
    }
  }
}

// Every range of every block a piece of its own; whoever computes the last one of a block and head merges them.
void AttentionPlan::run_ranges(const Pass& pass, int layer) {
  for (size_t b = 0; b < blocks_.size(); ++b)
    for (int head = 0; head < kv_heads_; ++head)
      missing_[b * size_t(kv_heads_) + size_t(head)].store(blocks_[b].ranges, std::memory_order_relaxed);
  float* const own = f32(memory_);
  float* const shared = own + size_t(pass.run.pool->threads()) * (scratch_floats_ + part_floats_);
  const int window = pass.model.spec.window(layer);
  pass.run.pool->run(pieces_, [&](int piece, int thread) {
    size_t b = 0;
    while (b + 1 < blocks_.size() && piece >= blocks_[b + 1].first_piece) ++b;
    const AttentionBlock& block = blocks_[b];
    const int head = (piece - block.first_piece) / block.ranges, range = (piece - block.first_piece) % block.ranges;
    const size_t unit = b * size_t(kv_heads_) + size_t(head);
    const Parts parts = parts_at(shared + unit * part_floats_, block);
    if (range >= first_range(block.position, window))
      compute(pass, layer, block, head, range, parts, own + size_t(thread) * (scratch_floats_ + part_floats_));
    if (missing_[unit].fetch_sub(1, std::memory_order_acq_rel) == 1) merge(pass, layer, block, head, parts);
  });
}

void AttentionPlan::run(const Pass& pass, int layer) {
  if (by_range_) return run_ranges(pass, layer);
  pass.run.pool->run(pieces_, [&](int piece, int thread) {
    // The last blocks of a prompt have most to do and go first.
    const AttentionBlock& block = blocks_[size_t((pieces_ - 1 - piece) / kv_heads_)];
    const int head = (pieces_ - 1 - piece) % kv_heads_;
    float* const scratch = f32(memory_) + size_t(thread) * (scratch_floats_ + part_floats_);
    const Parts parts = parts_at(scratch + scratch_floats_, block);
    const int first = pass.phase == Phase::Prefill ? 0 : first_range(block.position, pass.model.spec.window(layer));
    for (int range = first; range < block.ranges; ++range) compute(pass, layer, block, head, range, parts, scratch);
    merge(pass, layer, block, head, parts);
  });
}

namespace {

// Row r of q, k and v as they came from the matrices: bias, norms of q and k, clip, rotation.
void finish_qkv(const Pass& pass, int layer, int r) {
  const ModelSpec& s = pass.model.spec;
  const KernelTable& k = *pass.run.kernels;
  const int width = s.q_dim() + 2 * s.kv_dim();
  const LayerVectors& vectors = pass.model.vectors[size_t(layer)];
  const bool own = s.window_rope && s.window(layer) != 0;
  const AlignedBuffer& cos_sin = own ? pass.scratch.window_cos_sin : pass.scratch.cos_sin;
  const float* angles = f32(cos_sin) + size_t(r) * size_t(s.rope.dim);
  float* const q = f32(pass.scratch.qkv) + size_t(r) * size_t(width);
  if (s.qkv_bias) k.add(vectors.qkv_bias.data(), width, q);
  const auto norm = [&](float* x, const std::vector<float>& weight, int width) {
    k.rms_norm(x, weight.data(), width, s.norm_eps, x);
  };
  const auto head = [&](int h) { return q + size_t(h) * size_t(s.head_dim); };
  if (s.qk_norm == QkNorm::Whole) {
    norm(q, vectors.q_norm, s.q_dim());
    norm(head(s.heads), vectors.k_norm, s.kv_dim());
  } else if (s.qk_norm == QkNorm::Heads) {
    for (int h = 0; h < s.heads + s.kv_heads; ++h)
      norm(head(h), h < s.heads ? vectors.q_norm : vectors.k_norm, s.head_dim);
  }
  if (s.qkv_clip != 0)
    for (int i = 0; i < width; ++i) q[i] = std::clamp(q[i], -s.qkv_clip, s.qkv_clip);
  for (int h = 0; h < s.heads + s.kv_heads; ++h) k.rope(head(h), s.rope.dim, s.rope.interleaved, angles);
}

}  // namespace

void attend(const Pass& pass, int layer) {
  const ModelSpec& s = pass.model.spec;
  const KernelTable& k = *pass.run.kernels;
  const size_t ld = size_t(s.q_dim() + 2 * s.kv_dim());
  const auto head_dim = size_t(s.head_dim);
  // Positions whose keys lie together are one thread's, as far as the prompt begins at one of their borders.
  const int step = pass.phase == Phase::Prefill ? kKeyBlock : 4;
  parallel_ranges(*pass.run.pool, pass.count(), step, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r) finish_qkv(pass, layer, r);
    for (int h = 0; h < s.kv_heads; ++h)  // head by head: positions whose keys share cache lines follow each other
      for (int r = begin; r < end; ++r) {
        const KvCache& kv = pass.rows[size_t(r)].sequence->kv;
        const float* key = f32(pass.scratch.qkv) + size_t(r) * ld + size_t(s.q_dim()) + size_t(h) * head_dim;
        const int position = pass.positions[r];
        k.store_key(key, s.head_dim, kv.type(), position % kKvRange, kv.keys(layer, h, position));
        k.store_value(key + s.kv_dim(), s.head_dim, kv.type(), position % kKvRange, kv.values(layer, h, position));
      }
  });
  pass.scratch.attention.run(pass, layer);
}

}  // namespace pop
