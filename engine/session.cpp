#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/impl.h"
#include "prune/byte_ideal.h"

namespace pop {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Packing copies what decode will stream; in place costs a little at every token. The copy pays after about so many tokens
// (measured, docs/kernels.md): plain types lose little in place and have most to copy.
constexpr int kPackAfterBlockTypes = 24, kPackAfterPlainTypes = 40;

bool packing_pays(const Model& model, int tokens) {
  return tokens >
         (traits(model.layers[0].ffns[0].gate_up.type).block_elems > 1 ? kPackAfterBlockTypes : kPackAfterPlainTypes);
}

}  // namespace

void Observation::chosen(const Sequence& sequence, int position, int place, Site site, const Selection& selection) {
  const int layer = of_ffn(site) ? model_.ffns[size_t(place)]->layer : place;
  const int expert = of_ffn(site) ? place - model_.first_ffn[size_t(layer)] : 0;

  const bool columns = selection.kind == Selection::Kind::Columns && !selection.zero_rest;
  // A full list without an index still names its members.
  std::vector<int32_t> all;
  std::span<const int32_t> list(selection.list.index,
                                size_t(selection.list.index != nullptr ? selection.list.count : 0));
  if (selection.list.index == nullptr) {
    for (int i = 0; i < selection.list.count; ++i) all.push_back(i);
    list = all;
  }
  observer_->on_chosen(sequence.id, position - sequence.prefilled, layer, expert, site_name(site), columns, list);
}

void Observation::partitioned(const Sequence& sequence) const {
  sequence.policy->partition_all();
  for (int layer = 0; layer < model_.spec.layers; ++layer) {
    const int first = model_.first_ffn[size_t(layer)];
    for (int i = 0; i < int(model_.layers[size_t(layer)].ffns.size()); ++i)
      if (const Partition* p = sequence.policy->ffn_partition(first + i))
        observer_->on_partition(sequence.id, layer, i, p->retained, p->candidate, p->pruned, p->scores);
    for (const Site site : {Site::Qkv, Site::O, Site::GateUp, Site::Down})
      if (const auto t = sequence.policy->threshold(site, of_ffn(site) ? first : layer))
        observer_->on_threshold(sequence.id, layer, site_name(site), t->level, t->tau, t->counted);
  }
}

Session::Impl::Impl(Engine::Impl& e, const PruneSettings& settings)
    : engine(e), pack(settings.pack), shared_partition(settings.partition == "shared") {
  if (!settings.partition.empty() && settings.partition != "shared" && settings.partition != "sequence")
    fail("partition: expected sequence or shared, found \"{}\"", printable(settings.partition));
  const PolicyContext context = engine.policy_context();
  policy = make_policy(engine.prune_options(settings), context);
  const PrunePlan& p = policy->plan();
  plan = {.method = p.method,
          .ratio_of = settings.ratio_of.empty() ? "blocks" : settings.ratio_of,
          .metric = p.metric,
          .decode_metric = p.decode_metric,
          .norm = p.norm,
          .prefill = p.prefill,
          .plus_rule = p.plus_rule,
          .few_tokens = p.few_tokens,
          .repaired = p.repaired,
          .min_tokens = p.min_tokens,
          .calibration = p.calibration,
          .ratio = p.ratio,
          .ffn_sparsity = p.ffn_sparsity,
          .gamma = p.gamma,
          .level = p.level};
  if (shared_partition && prefill_is_pruned())
    fail("--partition: shared needs prompts computed whole, as --prefill pruned does not");
  if (shared_partition && policy->prunes() && policy->begin()->gate_first())
    fail("--partition: shared needs a method that chooses for a batch, {} looks at each text's own gates", p.method);
  take_refresh(settings);
  plan_bytes(p);
}

void Session::Impl::take_refresh(const PruneSettings& settings) {
  if (!settings.refresh) {
    if (settings.refresh_last) fail("--refresh-last: expected --refresh beside it");
    return;
  }
  plan.refresh = *settings.refresh;
  plan.refresh_last = settings.refresh_last.value_or(plan.refresh);
  if (plan.refresh < 1) fail("--refresh: expected 1 or more tokens, found {}", plan.refresh);
  if (plan.refresh_last < 1 || plan.refresh_last > plan.refresh)
    fail("--refresh-last: expected 1 to {} tokens (--refresh), found {}", plan.refresh, plan.refresh_last);
  if (shared_partition) fail("--refresh: expected partitions of one sequence each, --partition shared has one for all");
  if (prefill_is_pruned()) fail("--refresh: expected --prefill dense: what it decides from, all weights have computed");
}

void Session::Impl::plan_bytes(const PrunePlan& p) {
  std::span<const LayerWeights> layers = engine.model->layers;
  const auto head = double(engine.dense_head_bytes);
  const double dense = pop::dense_bytes(layers);
  double planned = dense, bare = dense;
  std::vector<LayerWeights> repaired;
  if (!p.repaired.empty() && p.ffn_sparsity > 0) {
    repaired.assign(layers.begin(), layers.end());
    for (LayerWeights& layer : repaired)
      for (FfnWeights& ffn : layer.ffns) ffn.down.type = repaired_type(p.repaired, ffn.down.type);
    layers = repaired;
  }
  if (p.level > 0) {
    planned = bare = planned_column_bytes(layers, p.levels);
  } else if (p.ffn_sparsity > 0) {
    planned = planned_row_bytes(layers, p.ffn_sparsity, p.gamma);
    bare = planned_row_bytes(layers, p.ffn_sparsity, 0);
  }
  plan.dense_bytes = dense + head;
  plan.planned_bytes = planned + head;
  plan.planned_bytes_without_candidates = bare + head;
}

void Session::Impl::begin_sequence(Sequence& s, int id, int capacity) const {
  s.id = id;
  s.length = s.prefilled = 0;
  s.use_packed = false;
  s.reads = {};
  if (s.kv.capacity() < capacity) s.kv = KvCache(engine.model->spec, engine.kv, capacity);
  s.policy = policy->prunes() ? policy->begin() : nullptr;
  s.shares_policy = false;
}

void Session::Impl::share_partition(std::span<Sequence> sequences) const {
  if (!shared_partition || sequences.size() < 2 || sequences[0].policy == nullptr) return;
  for (Sequence& s : sequences) {
    s.policy = sequences[0].policy;
    s.shares_policy = true;
  }
}

void Session::Impl::end_prefill(Sequence& s, int tokens_to_come, const Observation* observation, Timing& timing) {
  s.prefilled = s.length;
  if (s.policy == nullptr || tokens_to_come <= 0) return;
  const Clock::time_point start = Clock::now();
  timing.pack_s += decide(s, tokens_to_come, observation);
  timing.partition_s += since(start);
}

double Session::Impl::decide(Sequence& s, int tokens_to_come, const Observation* observation) {
  s.policy->partition();
  s.forget_bytes();
  if (observation != nullptr) observation->partitioned(s);
  const int holds = plan.refresh > 0 ? std::min(tokens_to_come, plan.refresh) : tokens_to_come;
  if (!pack || !packing_pays(*engine.model, holds)) return 0;
  const Clock::time_point start = Clock::now();
  pack_ffn(*engine.model, s, *engine.pool);
  return since(start);
}

void Session::Impl::refresh(Sequence& s, std::span<const int32_t> ids, int tokens_to_come, RunContext& run,
                            Timing& timing) {
  const Clock::time_point start = Clock::now();
  const std::span<const int32_t> last = ids.last(size_t(plan.refresh_last));
  s.length -= int(last.size());
  s.use_packed = false;
  const auto chunk = size_t(engine.options.prefill_chunk);
  std::vector<ForwardRow> rows;
  for (size_t at = 0; at < last.size(); at += rows.size()) {
    rows.clear();
    for (const int32_t id : last.subspan(at, std::min(chunk, last.size() - at))) rows.push_back({&s, id, false});
    forward(*engine.model, run, engine.scratch(int(rows.size())), Phase::Prefill, rows, {});
  }
  decide(s, tokens_to_come, nullptr);
  timing.refreshed_tokens += int(last.size());
  timing.refresh_s += since(start);
}

SessionMemory Session::Impl::memory() const {
  SessionMemory held;
  held.kv = engine.info.kv_bytes_per_token * uint64_t(sequence.length);
  held.packed += sequence.packed_memory.size();
  return held;
}

void Session::Impl::reset() {
  begin_sequence(sequence, 0, engine.info.context);
  prefilled.clear();
}

void Session::Impl::release() {
  sequence = {};
  prefilled.clear();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
const PrunePlanInfo& Session::plan() const { return impl_->plan; }
void Session::reset() {
  ++impl_->turn;
  impl_->reset();
}
void Session::release() {
  ++impl_->turn;
  impl_->release();
}
SessionMemory Session::memory() const { return impl_->memory(); }
std::vector<ScoreResult> Session::score(std::span<const ScoreRequest> requests, int batch, const RunHooks& hooks) {
  return impl_->score(requests, batch, hooks);
}

}  // namespace pop
