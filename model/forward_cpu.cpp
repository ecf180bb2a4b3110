// The network, one straight function: what every layer does to the rows of a pass, in order.
#include <algorithm>

#include "base/error.h"
#include "kernels/pack.h"
#include "kernels/select.h"
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
  return {
      1, {&pass.model.layers[size_t(layer)].o}, {f32(pass.scratch.delta)}, {size_t(pass.model.spec.d)}, Finish::AddToX};
}
SiteTargets gate_up_targets(const Pass& pass, int layer, int row) {
  return {1,
          {&pass.rows[size_t(row)].sequence->gate_up(pass.model, layer)},
          {f32(pass.scratch.gate_up)},
          {2 * size_t(pass.model.spec.f)},
          Finish::SiluMul};
}
SiteTargets down_targets(const Pass& pass, int layer, int row) {
  return {1,
          {&pass.rows[size_t(row)].sequence->down(pass.model, layer)},
          {f32(pass.scratch.delta)},
          {size_t(pass.model.spec.d)},
          Finish::AddToX};
}

// Calls visit(first, count) for every run of rows that belong to one sequence.
template <class Visit>
void for_each_sequence(const Pass& pass, Visit&& visit) {
  for (int begin = 0, end = 0; begin < pass.count(); begin = end) {
    for (end = begin + 1; end < pass.count() && pass.rows[size_t(end)].sequence == pass.rows[size_t(begin)].sequence;
         ++end) {
    }
    visit(begin, end - begin);
  }
}

void observe(const Pass& pass, Site site, int layer, const float* x, int width) {
  for_each_sequence(pass, [&](int first, int count) {
    if (PolicyState* policy = pass.rows[size_t(first)].sequence->policy.get())
      policy->observe(site, layer, x + size_t(first) * size_t(width), count, size_t(width), pass.positions[first]);
  });
}

// One site in either phase. Under --prefill pruned a pass holds one sequence, whose policy names the units.
void project(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of) {
  if (pass.phase == Phase::Decode) return project_decode(pass, site, layer, x, width, targets_of);
  observe(pass, site, layer, x, width);
  pass.run.watch.mark(Part::Observe);
  IndexList units;
  if (site == Site::GateUp && pass.rows[0].sequence->policy != nullptr) {
    const Selection selection = pass.rows[0].sequence->policy->select_prefill(site, layer);
    if (selection.kind == Selection::Kind::Rows) units = selection.list;
  }
  project_prefill(pass, targets_of(pass, layer, 0), x, width, units);
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

// Rotates queries and keys, appends keys and values to the caches, and lets every token look at its past.
void attend(const Pass& pass, int layer) {
  const ModelSpec& s = pass.model.spec;
  const KernelTable& k = *pass.run.kernels;
  const size_t ld = size_t(s.q_dim() + 2 * s.kv_dim());
  const auto head_dim = size_t(s.head_dim);
  float* const qkv = f32(pass.scratch.qkv);
  parallel_ranges(*pass.run.pool, pass.count(), 1, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r) {
      const float* angles = f32(pass.scratch.cos_sin) + size_t(r) * size_t(s.rope.dim);
      float* q = qkv + size_t(r) * ld;
      const KvCache& kv = pass.rows[size_t(r)].sequence->kv;
      for (int h = 0; h < s.heads + s.kv_heads; ++h)
        k.rope(q + size_t(h) * head_dim, s.rope.dim, s.rope.interleaved, angles);
      const float* keys = q + s.q_dim();
      for (int h = 0; h < s.kv_heads; ++h) {
        k.store_kv(keys + size_t(h) * head_dim, s.head_dim, kv.type(), kv.key(layer, h, pass.positions[r]));
        k.store_kv(keys + s.kv_dim() + size_t(h) * head_dim, s.head_dim, kv.type(),
                   kv.value(layer, h, pass.positions[r]));
      }
    }
  });
  const int group = s.heads / s.kv_heads;
  pass.run.pool->run(pass.count() * s.kv_heads, [&](int piece, int thread) {
    const int r = piece / s.kv_heads, head = piece % s.kv_heads;
    const KvCache& kv = pass.rows[size_t(r)].sequence->kv;
    const size_t query = size_t(head * group) * head_dim;
    k.attention({.q = qkv + size_t(r) * ld + query,
                 .k = kv.key_head(layer, head),
                 .v = kv.value_head(layer, head),
                 .type = kv.type(),
                 .group = group,
                 .head_dim = s.head_dim,
                 .first = 0,
                 .keys = pass.positions[r] + 1,
                 .scale = pass.model.attention_scale,
                 .out = f32(pass.scratch.attended) + size_t(r) * size_t(s.q_dim()) + query,
                 .scratch = f32(pass.scratch.attention) + size_t(thread) * pass.scratch.attention_stride});
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
             pass.model.file.path(), pass.positions[row]);
      if (pass.phase == Phase::Decode) {
        const uint64_t bytes = bytes_read(w, {nullptr, s.vocab});
        pass.rows[size_t(row)].sequence->reads.head_bytes += bytes;
        pass.run.watch.profile.bytes[size_t(Part::Head)] += bytes;
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
    model.rope.angles(scratch.positions[r], f32(scratch.cos_sin) + r * size_t(model.spec.rope.dim));
    model.embed(rows[r].token, f32(scratch.x) + r * size_t(model.spec.d));
    if (rows[r].wants_logits) scratch.wanted.push_back(int(r));
  }
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
  const Pass pass{model, run, scratch, phase, rows, scratch.positions.data()};
  float *const x = f32(scratch.x), *const normed = f32(scratch.normed);
  watch.mark(Part::Embed);

  for (int layer = 0; layer < s.layers; ++layer) {
    const LayerNorms& norms = model.norms[size_t(layer)];
    norm_rows(pass, x, norms.attention, normed);
    watch.mark(Part::Norm);
    project(pass, Site::Qkv, layer, normed, s.d, qkv_targets);
    watch.mark(Part::Qkv);
    attend(pass, layer);
    watch.mark(Part::Attention);
    project(pass, Site::O, layer, f32(scratch.attended), s.q_dim(), o_targets);  // adds to x
    watch.mark(Part::O);

    norm_rows(pass, x, norms.ffn, normed);
    watch.mark(Part::Norm);
    project(pass, Site::GateUp, layer, normed, s.d, gate_up_targets);  // leaves h
    watch.mark(Part::GateUp);
    project(pass, Site::Down, layer, f32(scratch.h), s.f, down_targets);  // adds to x
    watch.mark(Part::Down);
  }
  head(pass, sink);
  watch.mark(Part::Head);

  for (const ForwardRow& row : rows) {
    ++row.sequence->length;
    if (phase == Phase::Decode) ++row.sequence->reads.tokens;
  }
}

}  // namespace pop
