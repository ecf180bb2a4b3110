// Teacher-forced scoring: log-probabilities of given tokens, prefill and decode, several requests in one forward.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/impl.h"

namespace pop {

using Clock = std::chrono::steady_clock;

// One request on its way through prefill and decode.
struct ScoreJob {
  const ScoreRequest* request;
  ScoreResult* result;
  Sequence* sequence;
  int index;          // among all requests
  int split;          // tokens of prefill
  int next = 0;       // first token not yet computed
  int refreshed = 0;  // where it stood at the last refresh
  StreamHash hash;

  int size() const { return int(request->ids.size()); }
  bool wants(int position) const { return position + 1 >= request->score_from; }
};

namespace {

// The logits at `position` predict the token after it; at the last position they are the `top` list.
void take_logits(ScoreJob& job, int position, std::span<const float> logits, const KernelTable& kernels) {
  ScoreResult& r = *job.result;
  job.hash.update(logits);
  const double log_sum = kernels.log_sum_exp(logits.data(), int(logits.size()));
  const int target = position + 1;
  if (target < job.size()) {
    const double logprob = double(logits[size_t(job.request->ids[size_t(target)])]) - log_sum;
    r.logprobs[size_t(target)] = logprob;
    if (target >= std::max(1, job.request->split)) r.nll_sum -= logprob, ++r.scored;
    if (position >= job.split) r.nll_decode_sum -= logprob, ++r.scored_decode;
    return;
  }
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  const size_t keep = std::min<size_t>(5, order.size());
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(keep), order.end(), [&](int32_t a, int32_t b) {
    return logits[size_t(a)] > logits[size_t(b)] || (logits[size_t(a)] == logits[size_t(b)] && a < b);
  });
  for (size_t i = 0; i < keep; ++i) r.top.push_back({order[i], logits[size_t(order[i])]});
}

void summarise_partition(const Sequence& sequence, const Model& model, ScoreResult& result) {
  if (sequence.policy == nullptr) return;
  for (int ffn = 0; ffn < int(model.ffns.size()); ++ffn)
    if (const Partition* p = sequence.policy->ffn_partition(ffn)) {
      const size_t shown = std::min<size_t>(10, p->retained.size());
      const int layer = model.ffns[size_t(ffn)]->layer;
      result.partition.push_back({layer,
                                  ffn - model.first_ffn[size_t(layer)],
                                  int(p->retained.size()),
                                  int(p->candidate.size()),
                                  int(p->pruned.size()),
                                  {p->retained.begin(), p->retained.begin() + std::ptrdiff_t(shown)}});
    }
}

void check_request(const ScoreRequest& request, size_t index, int vocab, int context) {
  const auto size = int64_t(request.ids.size());
  if (size == 0) fail("request {}: expected at least one token, found none", index);
  if (size > context) fail("request {}: expected at most {} tokens (--ctx), found {}", index, context, size);
  if (request.split != -1 && (request.split < 1 || request.split > size))
    fail("request {}: split: expected 1 to {} tokens of prefill, found {}", index, size, request.split);
  check_ids(request.ids, vocab);
}

}  // namespace

// Passes over some jobs: of at most `most` rows, at most `each` of one sequence.
class ScoreRun {
 public:
  ScoreRun(Session::Impl& session, RunContext& run, const RunHooks& hooks, int64_t total)
      : session_(session), engine_(session.engine), run_(run), hooks_(hooks), total_(total) {}

  // One phase of the jobs to its end. False: interrupted.
  bool advance(std::span<ScoreJob> jobs, Phase phase, int most, int each) {
    for (;;) {
      if (phase == Phase::Decode && !refresh(jobs)) return false;
      rows_.clear();
      owners_.clear();
      for (ScoreJob& job : jobs) {
        const int end = phase == Phase::Prefill ? job.split : job.size();
        int take = std::min({end - job.next, most - int(rows_.size()), each});
        if (phase == Phase::Decode && refresh_every() > 0)  // none beyond the next refresh
          take = std::min(take, refresh_every() - (job.next - job.split) % refresh_every());
        for (int i = 0; i < take; ++i, ++job.next) {
          rows_.push_back({job.sequence, job.request->ids[size_t(job.next)], job.wants(job.next)});
          owners_.push_back({&job, job.next});
        }
      }
      if (rows_.empty()) return true;
      if (interrupted()) return false;
      try {
        forward(*engine_.model, run_, engine_.scratch(most), phase, rows_, [&](int row, std::span<const float> logits) {
          const auto& [job, position] = owners_[size_t(row)];
          take_logits(*job, position, logits, engine_.kernels);
          if (hooks_.on_logits) hooks_.on_logits(job->index, position, logits);
        });
      } catch (const PassInterrupted&) {
        return false;
      }
      done_ += int64_t(rows_.size());
      if (hooks_.on_progress) hooks_.on_progress(done_, total_);
    }
  }
  bool interrupted() const { return hooks_.interrupted && hooks_.interrupted(); }

 private:
  int refresh_every() const { return session_.plan.refresh; }
  // Of the jobs that have come to their next one. False: interrupted.
  bool refresh(std::span<ScoreJob> jobs) {
    for (ScoreJob& job : jobs) {
      if (!session_.refresh_due(job.next - job.split) || job.next == job.refreshed || job.next == job.size()) continue;
      if (interrupted()) return false;
      try {
        session_.refresh(*job.sequence, std::span(job.request->ids).first(size_t(job.next)),
                         jobs.size() == 1 ? job.size() - job.next : 1, run_, job.result->timing);
      } catch (const PassInterrupted&) {
        return false;
      }
      job.refreshed = job.next;
    }
    return true;
  }

  Session::Impl& session_;
  Engine::Impl& engine_;
  RunContext& run_;
  const RunHooks& hooks_;
  int64_t done_ = 0, total_;
  std::vector<ForwardRow> rows_;
  std::vector<std::pair<ScoreJob*, int>> owners_;
};

namespace {

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Results of requests that nothing was computed for yet.
std::vector<ScoreResult> empty_results(std::span<const ScoreRequest> requests) {
  std::vector<ScoreResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    results[i].logprobs.assign(requests[i].ids.size(), std::numeric_limits<double>::quiet_NaN());
    results[i].finish_reason = "interrupted";
    results[i].logits_hash = StreamHash().hex();
  }
  return results;
}

}  // namespace

// One group of jobs, prefill and decode. False: interrupted.
bool Session::Impl::score_group(ScoreRun& scorer, Stopwatch& watch, std::span<ScoreJob> jobs,
                                const Observation* observation, Timing& timing) {
  const Clock::time_point start = Clock::now();
  bool going = true;
  if (prefill_is_pruned()) {  // layer by layer over one whole prompt at a time
    for (ScoreJob& job : jobs) going = going && scorer.advance({&job, 1}, Phase::Prefill, job.split, job.split);
  } else {
    going = scorer.advance(jobs, Phase::Prefill, engine.options.prefill_chunk, engine.options.prefill_chunk);
  }
  timing.prefill_s = since(start);
  watch.mark(Part::Other);
  if (!going) return false;
  for (ScoreJob& job : jobs)
    end_prefill(*job.sequence, jobs.size() == 1 ? job.size() - job.split : std::min(1, job.size() - job.split),
                observation, timing);
  watch.mark(Part::Partition);
  const Clock::time_point decode_start = Clock::now();
  going = scorer.advance(jobs, Phase::Decode, kDecodeRows,
                         std::max(1, std::min(rows_together(), kDecodeRows / int(jobs.size()))));
  timing.decode_s = since(decode_start);
  return going;
}

std::vector<ScoreResult> Session::Impl::score(std::span<const ScoreRequest> requests, int batch,
                                              const RunHooks& hooks) {
  if (batch < 1 || batch > 1024) fail("batch: expected 1 to 1024, found {}", batch);
  int longest = 0;
  int64_t total = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    check_request(requests[i], i, engine.model->spec.vocab, engine.info.context);
    longest = std::max(longest, int(requests[i].ids.size()));
    total += int64_t(requests[i].ids.size());
  }
  std::vector<ScoreResult> results = empty_results(requests);
  std::vector<Sequence> sequences(std::min(size_t(batch), requests.size()));
  RunContext run = engine.run_context(&hooks.interrupted);
  Observation observation(hooks.observer, *engine.model);
  if (hooks.observer != nullptr) run.listener = &observation;
  ScoreRun scorer(*this, run, hooks, total);
  start_watch(hooks, *engine.pool, run.watch);

  bool going = true;
  for (size_t first = 0; going && first < requests.size(); first += sequences.size()) {
    const size_t count = std::min(sequences.size(), requests.size() - first);
    std::vector<ScoreJob> jobs;
    Timing timing;
    for (size_t i = 0; i < count; ++i) {
      const ScoreRequest& request = requests[first + i];
      begin_sequence(sequences[i], int(first + i), longest);
      const int size = int(request.ids.size());
      jobs.push_back({&request,
                      &results[first + i],
                      &sequences[i],
                      int(first + i),
                      request.split < 0 ? size : request.split,
                      0,
                      0,
                      {}});
    }
    share_partition({sequences.data(), count});
    going = score_group(scorer, run.watch, jobs, hooks.observer != nullptr ? &observation : nullptr, timing);
    for (ScoreJob& job : jobs) {
      ScoreResult& r = *job.result;
      r.logits_hash = job.hash.hex();
      r.reads = engine.read_stats(*job.sequence);
      const Timing own = r.timing;
      r.timing = timing;
      r.timing.refresh_s = own.refresh_s, r.timing.refreshed_tokens = own.refreshed_tokens;
      r.timing.prefill_tokens = job.split, r.timing.decode_tokens = job.size() - job.split;
      if (!going) continue;
      r.finish_reason = "complete";
      summarise_partition(*job.sequence, *engine.model, r);
    }
  }
  const std::vector<ProfilePart> profile = end_watch(hooks, run.watch);
  for (ScoreResult& r : results) r.profile = profile;
  return results;
}

}  // namespace pop
