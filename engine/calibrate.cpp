// Statistics of a text for the methods that need them: the dense model runs it, a collector sits where a policy would.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/mapped_file.h"
#include "engine/impl.h"
#include "prune/budget.h"

namespace pop {

CalibrationModel Engine::Impl::calibration_model() const {
  const ModelSpec& s = model->spec;
  CalibrationModel of{.sha256 = model_id, .layers = s.layers, .d = s.d, .q_dim = s.q_dim(), .ffns = {}};
  for (const FfnWeights* ffn : model->ffns)
    of.ffns.push_back({.layer = ffn->layer, .f = ffn->f(), .routed = ffn->expert >= 0});
  return of;
}

PruneOptions Engine::Impl::prune_options(const PruneSettings& settings) const {
  PruneOptions options = pop::prune_options(settings, info.parameters);
  if (settings.calibration.empty()) return options;
  const MappedFile file(settings.calibration);
  options.calibration = std::make_shared<const Calibration>(
      parse_calibration(file.bytes(), printable(settings.calibration, 400), calibration_model()));
  return options;
}

namespace {

// No pass of a calibration makes logits, which are looked at elsewhere.
void refuse_damage(const Calibration& calibration) {
  const auto finite = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  };
  for (size_t i = 0; i < calibration.ffns.size(); ++i) {
    const CalibrationFfn& ffn = calibration.ffns[i];
    if (!finite(ffn.squares) || !finite(ffn.mean) || !finite(ffn.fluctuation) || !finite(ffn.history))
      fail("calibrate: layer {}: the activations are not finite: damaged weights", calibration.model.ffns[i].layer);
  }
}

void check_repair(const RepairOptions& o, const ModelSpec& spec, std::span<const LayerWeights> layers) {
  if (spec.moe.experts > 0) fail("calibrate: repair: method tyr does not run on mixtures of experts");
  if (spec.post_norms) fail("calibrate: repair: method tyr does not run on models with a norm after the FFN");
  if (o.iterations < 0 || o.generations < 0 || o.offspring < 1)
    fail("calibrate: repair: expected 0 or more iterations and generations of 1 or more children, found {}, {}, {}",
         o.iterations, o.generations, o.offspring);
  const auto positive = [](const std::vector<int>& values) {
    return std::all_of(values.begin(), values.end(), [](int v) { return v > 0; });
  };
  if (o.tokens.empty() || o.tokens.size() != o.survivors.size() || !positive(o.tokens) || !positive(o.survivors))
    fail("calibrate: repair: expected as many survivors as stages of at least one token, found {} and {}",
         o.survivors.size(), o.tokens.size());
  PruneOptions ratio;  // out of reach: before the texts are run
  ratio.method = "tyr";
  ratio.ratio = o.ratio;
  ffn_sparsity(ratio, count_weights(layers));
}

}  // namespace

CalibrationResult Engine::calibrate(std::span<const std::vector<int32_t>> sequences,
                                    const CalibrationOptions& options) {
  impl_->expect_weights();
  if (impl_->model->spec.moe.experts > 0 && (options.allocate > 0 || options.history > 0))
    fail("calibrate: allocate, history: expected 0, methods teal and probe do not run on mixtures of experts");
  if (options.repair) check_repair(*options.repair, impl_->model->spec, impl_->model->layers);
  size_t longest = 0, total = 0;
  for (const std::vector<int32_t>& ids : sequences) {
    if (ids.empty()) fail("calibrate: expected sequences of at least one token, found an empty one");
    check_ids(ids, impl_->model->spec.vocab);
    longest = std::max(longest, ids.size());
    total += ids.size();
  }
  if (sequences.empty()) fail("calibrate: expected at least one sequence, found none");
  if (longest > size_t(impl_->info.context))
    fail("calibrate: expected sequences of at most {} tokens (--ctx), found {}", impl_->info.context, longest);
  if (options.allocate < 0) fail("calibrate: allocate: expected 0 or more sequences, found {}", options.allocate);
  if (options.history < 0) fail("calibrate: history: expected 0 or more positions, found {}", options.history);

  const auto start = std::chrono::steady_clock::now();
  const int history = int(std::min(size_t(options.history), longest));
  const auto collector = std::make_shared<CalibrationCollector>(impl_->calibration_model(), history, *impl_->pool);
  Sequence sequence;
  sequence.kv = KvCache(impl_->model->spec, impl_->kv, int(longest));
  sequence.policy = collector;
  RunContext run = impl_->run_context(&options.hooks.interrupted);
  CalibrationResult result{.bytes = {}, .finish_reason = "interrupted"};
  std::vector<ForwardRow> rows;
  for (const std::vector<int32_t>& ids : sequences) {
    sequence.length = 0;
    for (size_t at = 0; at < ids.size(); at += rows.size()) {
      const size_t count = std::min(ids.size() - at, size_t(impl_->options.prefill_chunk));
      rows.clear();
      for (size_t i = at; i < at + count; ++i) rows.push_back({&sequence, ids[i], false});
      try {
        forward(*impl_->model, run, impl_->scratch(int(count)), Phase::Prefill, rows, {});
      } catch (const PassInterrupted&) {
        return result;
      }
    }
    collector->partition();
    ++result.sequences;
    result.tokens += ids.size();
    if (options.hooks.on_progress) options.hooks.on_progress(int64_t(result.tokens), int64_t(total));
  }
  Calibration calibration = collector->result(options.source);
  refuse_damage(calibration);
  try {
    if (options.allocate > 0)
      impl_->allocate(sequences.first(std::min(sequences.size(), size_t(options.allocate))), options.hooks,
                      calibration);
    if (options.repair) impl_->repair(sequences, *options.repair, options.hooks, calibration, result);
  } catch (const PassInterrupted&) {
    return result;
  }
  result.bytes = calibration_bytes(calibration);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.finish_reason = "complete";
  return result;
}

}  // namespace pop
