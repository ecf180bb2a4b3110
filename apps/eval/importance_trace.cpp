#include "apps/eval/importance_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/select.h"
#include "model/activations.h"
#include "model/forward.h"
#include "prune/importance.h"

namespace pop::app {
namespace {

constexpr int kChunk = 256;  // rows of a pass

// Notes h of every token of a prefill: the sum of squares over the context, the tokens after it one by one.
class Recorder final : public PolicyState {
 public:
  Recorder(size_t layers, size_t f, int context)
      : f_(f), context_(context), sums_(layers, std::vector<double>(f)), after_(layers) {}

  void observe(Site site, int layer, const float* x, int n, size_t ldx, int first_pos) override {
    if (site != Site::Down) return;
    const auto at = static_cast<size_t>(layer);
    for (int t = 0; t < n; ++t) {
      const float* row = x + size_t(t) * ldx;
      if (first_pos + t >= context_) {
        after_[at].insert(after_[at].end(), row, row + f_);
        continue;
      }
      for (size_t i = 0; i < f_; ++i) sums_[at][i] += double(row[i]) * double(row[i]);
    }
  }
  void partition() override {}
  Selection select(Site, int, std::span<const float>, int) override { return {}; }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<Recorder>(*this); }

  size_t tokens(size_t layer) const { return after_[layer].size() / f_; }
  std::vector<float> prefill_scores(size_t layer, const std::vector<float>& norms) const {
    std::vector<float> out(f_);
    down_scores(sums_[layer], norms, out);
    return out;
  }
  std::vector<float> token_scores(size_t layer, size_t token, const std::vector<float>& norms) const {
    std::vector<float> out(f_);
    for (size_t i = 0; i < f_; ++i) out[i] = std::fabs(after_[layer][token * f_ + i]) * norms[i];
    return out;
  }

 private:
  size_t f_;
  int context_;
  std::vector<std::vector<double>> sums_;  // [layers][f]
  std::vector<std::vector<float>> after_;  // [layers][tokens, f]
};

}  // namespace

std::vector<int32_t> ranks_of(std::span<const float> scores) {
  std::vector<int32_t> order(scores.size()), ranks(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[size_t(a)] > scores[size_t(b)]; });
  for (size_t place = 0; place < order.size(); ++place) ranks[size_t(order[place])] = static_cast<int32_t>(place);
  return ranks;
}

double rank_change(std::span<const int32_t> a, std::span<const int32_t> b) {
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(int64_t(a[i]) - int64_t(b[i]));
  return double(sum) / double(a.size()) / double(a.size());
}

double top_half_overlap(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto half = static_cast<int32_t>(a.size() / 2);
  int64_t both = 0;
  for (size_t i = 0; i < a.size(); ++i) both += a[i] < half && b[i] < half;
  return double(both) / double(half);
}

struct ImportanceTrace::Impl {
  Impl(const EngineOptions& options, int window)
      : kernels(select_kernels(options.isa)),
        pool(options.threads > 0 ? options.threads : usable_cpus()),
        model(Model::load(options.model, {}, pool)),
        scratch(model->spec, kernels, kChunk, window, pool.threads()) {
    sequence.kv = KvCache(model->spec, KvType::F16, window);
    if (model->spec.moe.experts > 0)
      fail("{}: eval sparsity: expected a model without experts, found one with {}", options.model,
           model->spec.moe.experts);
    std::vector<std::vector<Matrix>> stacks;
    for (const LayerWeights& layer : model->layers) stacks.push_back({layer.ffns[0].down});
    norms = column_norm_tables(stacks, Norm::Two, pool);
  }

  const KernelTable& kernels;
  ThreadPool pool;
  std::unique_ptr<Model> model;
  Activations scratch;
  Sequence sequence;
  std::vector<std::vector<float>> norms;  // [layers][f]
};

ImportanceTrace::ImportanceTrace(const EngineOptions& options, int window)
    : impl_(std::make_unique<Impl>(options, window)) {}
ImportanceTrace::~ImportanceTrace() = default;

std::string ImportanceTrace::isa() const { return impl_->kernels.name; }
int ImportanceTrace::threads() const { return impl_->pool.threads(); }

ImportanceMoves ImportanceTrace::run(std::span<const int32_t> ids, int context,
                                     const std::function<bool()>& interrupted) {
  const auto layers = size_t(impl_->model->spec.layers);
  const auto recorder = std::make_shared<Recorder>(layers, size_t(impl_->model->spec.f), context);
  Sequence& sequence = impl_->sequence;
  sequence.length = sequence.prefilled = 0;
  sequence.policy = recorder;
  RunContext run{
      .kernels = &impl_->kernels, .pool = &impl_->pool, .activations = ActType::F32, .interrupted = &interrupted};
  try {
    for (size_t first = 0; first < ids.size(); first += kChunk) {
      std::vector<ForwardRow> rows;
      for (size_t i = first; i < std::min(ids.size(), first + kChunk); ++i) rows.push_back({&sequence, ids[i], false});
      forward(*impl_->model, run, impl_->scratch, Phase::Prefill, rows, nullptr);
    }
  } catch (const PassInterrupted&) {
    return {};
  }
  ImportanceMoves out;
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::vector<int32_t> prefill = ranks_of(recorder->prefill_scores(layer, impl_->norms[layer]));
    std::vector<double> change, next, against;
    std::vector<int32_t> before;
    for (size_t token = 0; token < recorder->tokens(layer); ++token) {
      std::vector<int32_t> ranks = ranks_of(recorder->token_scores(layer, token, impl_->norms[layer]));
      change.push_back(before.empty() ? none : rank_change(before, ranks));
      next.push_back(before.empty() ? none : top_half_overlap(before, ranks));
      against.push_back(top_half_overlap(prefill, ranks));
      before = std::move(ranks);
    }
    out.rank_change.push_back(std::move(change));
    out.overlap_next.push_back(std::move(next));
    out.overlap_prefill.push_back(std::move(against));
  }
  return out;
}

}  // namespace pop::app
