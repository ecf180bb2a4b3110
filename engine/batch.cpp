// Several answers at once: every pass computes the next token of every sequence, so that weights are read once for all.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/impl.h"

namespace pop {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool asked_to_stop(const RunHooks& hooks) { return hooks.interrupted && hooks.interrupted(); }

}  // namespace

// False: interrupted.
bool Session::Impl::prefill_alone(Sequence& s, std::span<const int32_t> prompt, RunContext& run, const RunHooks& hooks,
                                  const LogitsSink& sink) {
  const size_t chunk = prefill_is_pruned() ? prompt.size() : size_t(engine.options.prefill_chunk);
  Activations& scratch = engine.scratch(int(std::min(chunk, prompt.size())));
  std::vector<ForwardRow> rows;
  for (size_t first = 0; first < prompt.size(); first += chunk) {
    if (asked_to_stop(hooks)) return false;
    rows.clear();
    for (const int32_t id : prompt.subspan(first, std::min(chunk, prompt.size() - first)))
      rows.push_back({&s, id, false});
    rows.back().wants_logits = first + rows.size() == prompt.size();
    forward(*engine.model, run, scratch, Phase::Prefill, rows, sink);
  }
  return true;
}

BatchResult Session::Impl::generate_batch(std::span<const std::vector<int32_t>> prompts, int tokens,
                                          const RunHooks& hooks) {
  if (prompts.empty() || prompts.size() > 1024) fail("batch: expected 1 to 1024 prompts, found {}", prompts.size());
  if (tokens < 1) fail("batch: expected 1 or more tokens, found {}", tokens);
  for (const auto& prompt : prompts) {
    if (prompt.empty()) fail("prompt: expected at least one token, found none");
    if (int64_t(prompt.size()) + tokens > engine.info.context)
      fail("a prompt and new tokens: expected at most {} (--ctx), found {}", engine.info.context,
           prompt.size() + size_t(tokens));
    check_ids(prompt, engine.model->spec.vocab);
  }
  BatchResult result;
  result.answers.resize(prompts.size());
  result.finish_reason = "interrupted";  // until the end is reached
  std::vector<Sequence> sequences(prompts.size());
  RunContext run = engine.run_context();
  std::vector<int32_t> next(prompts.size());
  const auto greedy_into = [&](size_t first) {
    return [&, first](int row, std::span<const float> logits) {
      next[first + size_t(row)] = engine.kernels.argmax(logits.data(), int(logits.size()));
    };
  };
  for (size_t i = 0; i < prompts.size(); ++i) begin_sequence(sequences[i], int(i), int(prompts[i].size()) + tokens);
  share_partition(sequences);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto start = Clock::now();
    const LogitsSink sink = [&](int, std::span<const float> logits) { greedy_into(i)(0, logits); };
    if (!prefill_alone(sequences[i], prompts[i], run, hooks, sink)) return result;
    result.timing.prefill_s += since(start);
    result.timing.prefill_tokens += int(prompts[i].size());
  }
  // After every prefill: a shared partition is made from all of them.
  for (Sequence& sequence : sequences)
    end_prefill(sequence, prompts.size() == 1 ? tokens : std::min(tokens, 1), nullptr, result.timing);
  start_watch(hooks, *engine.pool, run.watch);
  run.watch.enter(Phase::Decode);
  const auto start = Clock::now();
  std::vector<ForwardRow> rows;
  for (int step = 0;; ++step) {
    for (size_t i = 0; i < prompts.size(); ++i) result.answers[i].ids.push_back(next[i]);
    if (step + 1 == tokens) break;
    if (asked_to_stop(hooks)) return result;
    for (size_t i = 0; refresh_due(step) && i < prompts.size(); ++i) {
      std::vector<int32_t> ids = prompts[i];
      ids.insert(ids.end(), result.answers[i].ids.begin(), result.answers[i].ids.end() - 1);
      refresh(sequences[i], ids, prompts.size() == 1 ? tokens - step : 1, run, result.timing);
    }
    rows.clear();
    for (size_t i = 0; i < prompts.size(); ++i) rows.push_back({&sequences[i], next[i], true});
    forward(*engine.model, run, engine.scratch(int(rows.size())), Phase::Decode, rows, greedy_into(0));
    result.timing.decode_tokens += int(rows.size());
  }
  result.timing.decode_s = since(start);
  result.timing.select_s = run.watch.profile.seconds[size_t(Phase::Decode)][size_t(Part::Select)];
  result.profile = end_watch(hooks, run.watch);
  for (size_t i = 0; i < prompts.size(); ++i) result.answers[i].reads = engine.read_stats(sequences[i]);
  result.finish_reason = "length";
  if (run.counted_passes > 0) result.forward_bytes = double(run.forward_bytes) / double(run.counted_passes);
  return result;
}

BatchResult Session::generate_batch(std::span<const std::vector<int32_t>> prompts, int tokens, const RunHooks& hooks) {
  return impl_->generate_batch(prompts, tokens, hooks);
}

}  // namespace pop
