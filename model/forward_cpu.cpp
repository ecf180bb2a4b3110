// The network, one straight function: what every layer does to the rows of a pass, in order.
#include <algorithm>

#include "base/error.h"
#include "kernels/pack.h"
#include "kernels/select.h"
#include "model/ffn.h"
#include "model/forward.h"
#include "model/project.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// The matrices of each site, and where their outputs go.
SiteTargets qkv_targets(const Pass& pass, int layer, int) {
  const ModelSpec& s = pass.model.spec;
  const LayerWeights& w = pass.model.layers[size_t(layer)];
  float* y = f32(pass.scratch.qkv);
  const auto ldy = size_t(s.q_dim() + 2 * s.kv_dim());
  return {3, {&w.q, &w.k, &w.v}, {y, y + s.q_dim(), y + s.q_dim() + s.kv_dim()}, {ldy, ldy, ldy}};
}
SiteTargets o_targets(const Pass& pass, int layer, int) {
  return {1,
          {&pass.model.layers[size_t(layer)].o},
          {f32(pass.scratch.delta)},
          {size_t(pass.model.spec.d)},
          pass.model.spec.post_norms ? Finish::None : Finish::AddToX};
}

void observe_residual(const Pass& pass, int layer) {
  const auto d = size_t(pass.model.spec.d);
  for_each_sequence(pass, [&](int first, int count) {
    if (PolicyState* policy = pass.rows[size_t(first)].sequence->policy.get())
      policy->observe_residual(layer, f32(pass.scratch.x) + size_t(first) * d, count, d, pass.positions[first]);
  });
}

// Rows of what is so little work that fewer are not worth a second thread.
constexpr int kSmallRows = 16;

void norm_rows(const Pass& pass, const float* x, const std::vector<float>& weight, float* out) {
  const int d = pass.model.spec.d;
  parallel_ranges(*pass.run.pool, pass.count(), kSmallRows, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r)
      pass.run.kernels->rms_norm(x + size_t(r) * size_t(d), weight.data(), d, pass.model.spec.norm_eps,
                                 out + size_t(r) * size_t(d));
  });
}

// x += norm of what a site left beside it.
void add_normed(const Pass& pass, const std::vector<float>& weight) {
  norm_rows(pass, f32(pass.scratch.delta), weight, f32(pass.scratch.delta));
  const auto d = size_t(pass.model.spec.d);
  parallel_ranges(*pass.run.pool, pass.count(), kSmallRows, [&](int begin, int end, int) {
    pass.run.kernels->add(f32(pass.scratch.delta) + size_t(begin) * d, (end - begin) * int(d),
                          f32(pass.scratch.x) + size_t(begin) * d);
  });
}

// Logits of the rows that want them, a few rows at once: never tokens x vocabulary floats.
void head(const Pass& pass, const LogitsSink& sink) {
  const ModelSpec& s = pass.model.spec;
  const KernelTable& k = *pass.run.kernels;
  const auto d = size_t(s.d), vocab = size_t(s.vocab);
  const Matrix& w = pass.model.head;
  const ActType type = pass.run.act_type(w, pass.phase);
  float* const logits = f32(pass.scratch.logits);
  float* const normed = f32(pass.scratch.normed);
  const std::vector<int>& wanted = pass.scratch.wanted;
  for (size_t first = 0; first < wanted.size(); first += Activations::kLogitRows) {
    const int n = int(std::min(wanted.size() - first, size_t(Activations::kLogitRows)));
    const Acts acts{type, Layout::Rows, n, s.d, k.acts_bytes(type, Layout::Rows, s.d), pass.scratch.packed[0].data()};
    for (int i = 0; i < n; ++i)
      k.rms_norm(f32(pass.scratch.x) + size_t(wanted[first + size_t(i)]) * d, pass.model.output_norm.data(), s.d,
                 s.norm_eps, normed + size_t(i) * d);
    pack_rows(k, type, Layout::Rows, normed, d, 0, n, s.d, pass.scratch.packed[0].data());
    const auto product = pass.phase == Phase::Decode ? k.dot_units : k.gemm_units;
    parallel_ranges(*pass.run.pool, s.vocab, 64, [&](int begin, int end, int) {
      product(w, acts, {nullptr, s.vocab}, begin, end, logits, vocab);
    });
    for (int i = 0; i < n; ++i) {
      const int row = wanted[first + size_t(i)];
      const std::span<const float> of_row(logits + size_t(i) * vocab, vocab);
      if (!k.all_finite(of_row.data(), s.vocab))
        fail("{}: logits at position {} are not finite: damaged weights, or activations beyond the range of --kv",
             pass.model.file().path(), pass.positions[row]);
      if (s.logit_cap != 0) k.soft_cap(logits + size_t(i) * vocab, s.vocab, s.logit_cap);
      if (pass.phase == Phase::Decode) {
        const uint64_t bytes = bytes_read(w, {nullptr, s.vocab});
        pass.rows[size_t(row)].sequence->reads.head_bytes += bytes;
        pass.run.watch.profile.bytes[size_t(Part::Head)] += bytes;
        if (i == 0 && pass.run.counts_forward) pass.run.forward_bytes += bytes;
      }
      pass.run.watch.mark(Part::Head);
      if (sink) sink(row, of_row);
      pass.run.watch.mark(Part::Other);
    }
  }
}

// Positions, rotary angles, which rows want logits; room in every cache.
void prepare(Activations& scratch, const Model& model, std::span<const ForwardRow> rows) {
  scratch.wanted.clear();
  for (size_t r = 0; r < rows.size(); ++r) {
    const Sequence& sequence = *rows[r].sequence;
    const bool continues = r > 0 && rows[r - 1].sequence == rows[r].sequence;
    scratch.positions[r] = continues ? scratch.positions[r - 1] + 1 : sequence.length;
    if (scratch.positions[r] >= sequence.kv.capacity())
      fail("context: expected at most {} tokens, found one more", sequence.kv.capacity());
    if (rows[r].token < 0 || rows[r].token >= model.spec.vocab)
      fail("token id: expected 0 to {}, found {}", model.spec.vocab - 1, rows[r].token);
    const size_t angles = r * size_t(model.spec.rope.dim);
    model.rope.angles(scratch.positions[r], f32(scratch.cos_sin) + angles);
    if (model.spec.window_rope) model.window_rope.angles(scratch.positions[r], f32(scratch.window_cos_sin) + angles);
    model.embed(rows[r].token, f32(scratch.x) + r * size_t(model.spec.d));
    if (rows[r].wants_logits) scratch.wanted.push_back(int(r));
  }
  model.release_embedding();
}

// What a layer does to the rows of a pass: norm, attention, residual, norm, FFN, residual; a norm before each residual where
// the model has them.
void block(const Pass& pass, int layer) {
  const ModelSpec& s = pass.model.spec;
  const Activations& scratch = pass.scratch;
  Stopwatch& watch = pass.run.watch;
  float *const x = f32(scratch.x), *const normed = f32(scratch.normed);
  const LayerVectors& vectors = pass.model.vectors[size_t(layer)];
  norm_rows(pass, x, vectors.attention_norm, normed);
  watch.mark(Part::Norm);
  project(pass, Site::Qkv, layer, normed, s.d, qkv_targets);
  watch.mark(Part::Qkv);
  attend(pass, layer);
  watch.mark(Part::Attention);
  project(pass, Site::O, layer, f32(scratch.attended), s.q_dim(), o_targets);  // adds to x
  if (s.post_norms) add_normed(pass, vectors.post_attention_norm);
  watch.mark(Part::O);
  if (pass.phase == Phase::Prefill) observe_residual(pass, layer);

  norm_rows(pass, x, vectors.ffn_norm, normed);
  watch.mark(Part::Norm);
  ffn(pass, layer, normed);  // adds to x
  if (s.post_norms) add_normed(pass, vectors.post_ffn_norm);
}

}  // namespace

ActType RunContext::act_type(const Matrix& w, Phase phase) const {
  const ActType asked = activations.value_or(default_activations(*kernels, w.type, phase == Phase::Prefill));
  return (phase == Phase::Prefill ? kernels->effective_prefill : kernels->effective)(asked, w.type, w.layout);
}

void forward(const Model& model, RunContext& run, Activations& scratch, Phase phase, std::span<const ForwardRow> rows,
             const LogitsSink& sink) {
  const ModelSpec& s = model.spec;
  Stopwatch& watch = run.watch;
  watch.enter(phase);
  prepare(scratch, model, rows);
  run.counts_forward = phase == Phase::Decode && run.decode_passes++ % 8 == 0;
  run.counted_passes += run.counts_forward ? 1 : 0;
  const Pass pass{model, run, scratch, phase, rows, scratch.positions.data()};
  scratch.attention.cut(pass);
  watch.mark(Part::Embed);

  for (int layer = 0; layer < s.layers; ++layer) block(pass, layer);
  head(pass, sink);
  watch.mark(Part::Head);

  for (const ForwardRow& row : rows) {
    ++row.sequence->length;
    if (phase == Phase::Decode) ++row.sequence->reads.tokens;
  }
}

void forward_block(const Model& model, RunContext& run, Activations& scratch, Phase phase,
                   std::span<const ForwardRow> rows, int layer, std::span<const float> x, std::span<float> out) {
  prepare(scratch, model, rows);
  std::copy(x.begin(), x.end(), f32(scratch.x));
  run.watch.enter(phase);
  const Pass pass{model, run, scratch, phase, rows, scratch.positions.data()};
  scratch.attention.cut(pass);
  block(pass, layer);
  std::copy_n(f32(scratch.x), out.size(), out.begin());
}

}  // namespace pop
