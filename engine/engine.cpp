#include <algorithm>

#include "base/error.h"
#include "base/version.h"
#include "engine/impl.h"
#include "model/stored_type.h"
#include "prune/allocation.h"
#include "prune/budget.h"
#include "prune/byte_ideal.h"

namespace pop {

Activations& Engine::Impl::scratch(int rows) {
  const int least = std::max(rows, 64);
  if (scratch_memory == nullptr || scratch_memory->max_rows() < least)
    scratch_memory = std::make_unique<Activations>(model->spec, kernels, least, info.context, pool->threads());
  return *scratch_memory;
}

PolicyContext Engine::Impl::policy_context() {
  const ModelSpec& s = model->spec;
  return {.layers = model->layers,
          .ffns = model->ffns,
          .d = s.d,
          .f = s.widest_ffn(),
          .q_dim = s.q_dim(),
          .kv_dim = s.kv_dim(),
          .kernels = &kernels,
          .pool = &*pool};
}

ReadStats Engine::Impl::read_stats(const Sequence& sequence) const {
  const ReadCounts& counts = sequence.reads;
  ReadStats stats;
  stats.tokens = counts.tokens;
  stats.selections = sequence.policy != nullptr ? sequence.policy->selections : 0;
  if (counts.tokens == 0) return stats;
  const auto tokens = double(counts.tokens);
  // Every decoded token is scored or sampled from, so the head is read once for each, whole.
  const double blocks = double(counts.block_bytes) / tokens, head = double(dense_head_bytes);
  stats.weight_bytes_per_token = blocks + head;
  stats.weights_read_share = (blocks + head) / double(dense_block_bytes + dense_head_bytes);
  stats.block_weights_read_share = blocks / double(dense_block_bytes);
  stats.selected_share = double(counts.elements_used) / tokens / double(block_elements);
  LeftOut left_out{.attention = double(counts.attention_left_out) / tokens / block_weights.attention, .ffns = {}};
  for (size_t kind = 0; kind < kFfnKinds; ++kind) {
    const FfnCounts& ffns = counts.ffns[kind];
    if (ffns.elements == 0) continue;
    left_out.ffns[kind] = double(ffns.left_out) / double(ffns.elements);
    stats.ffns.push_back({.kind = ffn_kind_name(FfnKind(kind)),
                          .per_token = double(ffns.uses) / tokens,
                          .weight_bytes_per_token = double(ffns.bytes) / tokens,
                          .left_out = left_out.ffns[kind]});
  }
  stats.realised = realised(left_out);
  return stats;
}

RealisedRatio Engine::Impl::realised(const LeftOut& left_out) const {
  const Ratios ratios = realised_ratios(block_weights, left_out, double(info.parameters));
  return {.blocks = ratios.blocks, .active = ratios.active, .total = ratios.total};
}

void check_ids(std::span<const int32_t> ids, int vocab) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab) fail("token id {}: expected 0 to {}, found {}", i, vocab - 1, ids[i]);
}

void start_watch(const RunHooks& hooks, ThreadPool& pool, Stopwatch& watch) {
  if (hooks.profile || hooks.on_trace) watch.start(pool, bool(hooks.on_trace));
}

std::vector<ProfilePart> end_watch(const RunHooks& hooks, Stopwatch& watch) {
  watch.mark(Part::Other);
  if (hooks.on_trace)
    watch.for_each_event([&](const Stopwatch::Event& event) {
      hooks.on_trace(event.thread, part_name(event.part), event.begin_s, event.seconds, event.pieces);
    });
  std::vector<ProfilePart> parts;
  if (!hooks.profile) return parts;
  const Profile& p = watch.profile;
  for (size_t i = 0; i < size_t(Part::kCount); ++i)
    parts.push_back(
        {part_name(Part(i)), p.seconds[size_t(Phase::Prefill)][i], p.seconds[size_t(Phase::Decode)][i], p.bytes[i]});
  return parts;
}

Engine::Engine(const EngineOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

const ModelInfo& Engine::info() const { return impl_->info; }
void Engine::set_threads(int threads) {
  if (threads < 1 || threads > 1024) fail("threads: expected 1 to 1024, found {}", threads);
  if (threads == impl_->pool->threads()) return;
  impl_->pool.emplace(threads);
  impl_->scratch_memory.reset();  // it has a part for each thread
  impl_->info.threads = threads;
}
std::vector<int32_t> Engine::encode(std::string_view text, bool special) const {
  return impl_->text->tokenizer().encode(text, special);
}
std::vector<int32_t> Engine::prompt(std::string_view text, bool special) const {
  return impl_->text->prompt(text, special);
}
std::string Engine::decode(std::span<const int32_t> ids, bool skip_special) const {
  return impl_->text->tokenizer().decode(ids, skip_special);
}
std::string Engine::token_text(int32_t id) const {
  return impl_->text->has_tokenizer() ? std::string(impl_->text->tokenizer().piece(id)) : "";
}
bool Engine::ends_generation(int32_t id) const { return impl_->text->ends_generation(id); }
std::vector<int32_t> Engine::chat_prompt(std::span<const ChatMessage> messages) const {
  return impl_->text->chat_prompt(messages);
}
std::string Engine::chat_text(std::span<const ChatMessage> messages) const { return impl_->text->chat_text(messages); }

std::unique_ptr<Session> Engine::session(const PruneSettings& prune) {
  impl_->expect_weights();
  return std::make_unique<Session>(std::make_unique<Session::Impl>(*impl_, prune));
}

Engine::Planned Engine::planned(const PruneSettings& prune) const {
  impl_->expect_weights();
  const std::span<const LayerWeights> layers = impl_->model->layers;
  const PruneOptions options = prune_options(prune, impl_->info.parameters);
  const BlockWeights& weights = impl_->block_weights;
  Planned out;
  PlannedReads reads;
  LeftOut left_out;
  if (prune.method == "pop+") {
    out.level = column_level(options, weights);
    const SiteLevels levels = spread_level(layers, out.level, options.plus_rule);
    reads = planned_columns(layers, levels);
    // A session of this method would have been laid out for it.
    if (impl_->options.layout == "auto") reads.bytes = planned_column_bytes(layers, levels);
    const SiteLevels shares = site_shares(layers);
    left_out.attention = (shares[0] * levels[0] + shares[1] * levels[1]) / (shares[0] + shares[1]);
    left_out.ffns.fill((2 * levels[2] + levels[3]) / 3);
  } else if (prune.method == "pop") {
    out.ffn_sparsity = ffn_sparsity(options, weights);
    reads = planned_rows(layers, out.ffn_sparsity, options.gamma.value_or(kDefaultGamma));
    left_out.ffns.fill(out.ffn_sparsity);
  } else {
    fail("planned: expected pop or pop+, found \"{}\"", printable(prune.method));
  }
  const auto head = double(impl_->dense_head_bytes);
  out.weight_bytes_per_token = reads.bytes + head;
  out.weights_read_share = out.weight_bytes_per_token / (double(impl_->dense_block_bytes) + head);
  out.selected_share = reads.elements / double(impl_->block_elements);
  out.realised = impl_->realised(left_out);
  return out;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const MethodInfo& method : methods()) names.emplace_back(method.name);
  return names;
}

std::vector<std::string> weight_type_names() { return stored_type_names(); }

std::vector<std::string> built_isa_names() { return {built_isas().begin(), built_isas().end()}; }

std::vector<std::string> available_isa_names() {
  std::vector<std::string> names;
  for (const char* name : built_isas())
    if (isa_available(name)) names.emplace_back(name);
  return names;
}

BuildInfo build_info() {
  const VersionInfo v = version_info();
  return {v.version, v.commit, v.compiler, v.build_type};
}

}  // namespace pop
