#include "apps/bench/rows.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <span>

#include "apps/pop/results.h"
#include "apps/pop/terminal.h"

namespace pop::app {
namespace {

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

template <class Of>
double middle(const Row& row, Of of) {
  std::vector<double> values;
  for (const RowSample& sample : row.samples) values.push_back(of(sample));
  return values.empty() ? 0 : median(values);
}

double decode_rate(const RowSample& sample) { return rate(sample.timing.decode_tokens, sample.timing.decode_s); }
double prefill_rate(const RowSample& sample) { return rate(sample.timing.prefill_tokens, sample.timing.prefill_s); }

class Measurement {
 public:
  Measurement(Engine& engine, Roof& roof, const std::vector<int32_t>& prompt)
      : engine_(engine), roof_(roof), prompt_(prompt) {}

  // False if interrupted.
  bool sample(Row& row, Session& session, bool counted) {
    const int threads = row.spec.threads;
    engine_.set_threads(threads);
    RowSample sample;
    if (counted) {
      // The roof after a row is the roof before the next.
      const double before = last_threads_ == threads ? last_roof_ : roof_.rate(threads);
      sample.steadiness = hold_steady(
          before, [&] { return roof_.rate(threads); }, [&] { sample.timing = generate(row, session); });
      last_roof_ = sample.steadiness.after;
      last_threads_ = threads;
      row.samples.push_back(sample);
    } else {
      generate(row, session);
    }
    session.release();
    return !InterruptScope::raised();
  }

 private:
  Timing generate(Row& row, Session& session) {
    const RowSpec& spec = row.spec;
    row.kv_bytes_per_token =
        spec.n_gen > 0 ? double(engine_.info().kv_bytes_per_token) * (spec.context + 0.5 * spec.n_gen) : 0;
    if (spec.batch > 1) return generate_batch(row, session);
    GenerateOptions options;
    options.ignore_eos = true;
    options.max_tokens = std::max(1, spec.n_gen);
    options.repeat_context = spec.context > spec.n_prompt ? spec.context : 0;
    options.hooks.interrupted = InterruptScope::raised;
    const std::span<const int32_t> prompt(prompt_.data(), size_t(spec.n_prompt));
    const GenerateResult result = session.generate(prompt, options);
    row.reads = result.reads;
    row.forward_bytes = result.reads.weight_bytes_per_token;
    row.rss_bytes = resident_bytes();
    return result.timing;
  }

  // Every sequence has its own stretch of the text, so that each has a partition of its own.
  Timing generate_batch(Row& row, Session& session) {
    const RowSpec& spec = row.spec;
    std::vector<std::vector<int32_t>> prompts;
    for (int i = 0; i < spec.batch; ++i) {
      const size_t from = size_t(i) * 17 % (prompt_.size() - size_t(spec.n_prompt) + 1);
      prompts.emplace_back(prompt_.begin() + std::ptrdiff_t(from),
                           prompt_.begin() + std::ptrdiff_t(from) + spec.n_prompt);
    }
    RunHooks hooks;
    hooks.interrupted = InterruptScope::raised;
    const BatchResult result = session.generate_batch(prompts, spec.n_gen, hooks);
    row.reads = result.answers.front().reads;
    row.forward_bytes = std::max(result.forward_bytes, result.answers.front().reads.weight_bytes_per_token);
    row.rss_bytes = resident_bytes();
    return result.timing;
  }

  Engine& engine_;
  Roof& roof_;
  const std::vector<int32_t>& prompt_;
  double last_roof_ = 0;
  int last_threads_ = 0;
};

}  // namespace

RowResult result_of(const Row& row) {
  RowResult r;
  if (row.samples.empty()) return r;
  const bool decode = row.spec.n_gen > 0;
  r.prefill_tokens_per_s = middle(row, prefill_rate);
  r.decode_tokens_per_s = decode ? middle(row, decode_rate) : 0;
  r.prefill_s = middle(row, [](const RowSample& s) { return s.timing.prefill_s; });
  r.partition_s = middle(row, [](const RowSample& s) { return s.timing.partition_s; });
  r.pack_s = middle(row, [](const RowSample& s) { return s.timing.pack_s; });
  r.select_s = middle(row, [](const RowSample& s) { return s.timing.select_s; });
  r.decode_s = middle(row, [](const RowSample& s) { return s.timing.decode_s; });
  r.total_s =
      middle(row, [](const RowSample& s) { return s.timing.prefill_s + s.timing.partition_s + s.timing.decode_s; });
  r.roof = middle(row, [](const RowSample& s) { return s.steadiness.roof(); });
  std::vector<double> rates;
  for (const RowSample& sample : row.samples) {
    rates.push_back(decode ? decode_rate(sample) : prefill_rate(sample));
    r.repeats += sample.steadiness.repeats;
    r.unsteady |= sample.steadiness.moved;
  }
  r.spread = spread(rates);
  if (!decode) return r;
  // Of a batch, one pass reads the weights once for all of its sequences, and every sequence's cache.
  const double batch = row.spec.batch;
  r.bytes_per_token = row.forward_bytes + batch * row.kv_bytes_per_token;
  const auto read = [&](const RowSample& s) { return decode_rate(s) / batch * r.bytes_per_token; };
  r.read_bytes_per_s = middle(row, read);
  r.share_of_roof =
      middle(row, [&](const RowSample& s) { return s.steadiness.roof() > 0 ? read(s) / s.steadiness.roof() : 0; });
  r.invalid = r.share_of_roof > 1;
  return r;
}

bool measure_rows(Engine& engine, std::vector<Row>& rows, int rounds, Roof& roof, const std::vector<int32_t>& prompt,
                  const std::function<void(int64_t, int64_t)>& progress) {
  // Rows that differ in threads or lengths only share a session: column norms are worked out once.
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> session_of;
  for (size_t i = 0; i < rows.size(); ++i) {
    size_t same = 0;
    while (same < i && !(rows[same].spec.prune.method == rows[i].spec.prune.method &&
                         rows[same].spec.prune.ratio == rows[i].spec.prune.ratio))
      ++same;
    if (same < i) {
      session_of.push_back(session_of[same]);
    } else {
      sessions.push_back(engine.session(rows[i].spec.prune));
      session_of.push_back(sessions.back().get());
    }
    rows[i].plan = session_of[i]->plan();
  }
  Measurement measurement(engine, roof, prompt);
  int64_t done = 0;
  const auto total = int64_t(rows.size()) * (rounds + 1);
  for (int round = -1; round < rounds; ++round)
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!measurement.sample(rows[i], *session_of[i], round >= 0)) return false;
      progress(++done, total);
    }
  return true;
}

}  // namespace pop::app
