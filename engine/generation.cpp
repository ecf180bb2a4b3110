// One answer: prefill what is new of the prompt, then decode token by token.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/impl.h"
#include "engine/sampler.h"
#include "engine/stop_filter.h"

namespace pop {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Collects an answer: tokens to text, stop strings, reasons to end.
class Answer {
 public:
  Answer(const TextModel& text, std::span<const int32_t> prompt, const GenerateOptions& options, GenerateResult& result)
      : options_(options), result_(result), stops_(options.stop) {
    if (text.has_tokenizer()) decoder_.emplace(text.tokenizer(), true, !text.tokenizer().shows_text(prompt));
  }
  // False: a stop string is complete.
  bool add(int32_t id) {
    result_.ids.push_back(id);
    if (decoder_) show(stops_.push(decoder_->push(id)));
    return !stops_.stopped();
  }
  void end() {
    if (decoder_ && !stops_.stopped()) {
      show(stops_.push(decoder_->flush()));
      show(stops_.flush());
    }
    result_.generated_tokens = int(result_.ids.size());
  }

 private:
  void show(const std::string& text) {
    result_.text += text;
    if (!text.empty() && options_.on_text) options_.on_text(text);
  }
  const GenerateOptions& options_;
  GenerateResult& result_;
  StopFilter stops_;
  std::optional<StreamDecoder> decoder_;
};

}  // namespace

struct Generation::Impl {
  Impl(Session::Impl& session, std::span<const int32_t> prompt, const GenerateOptions& options)
      : session_(session),
        engine_(session.engine),
        prompt_(prompt.begin(), prompt.end()),
        options_(options),
        sampler_(options.sampling, engine_.kernels),
        run_(engine_.run_context(&options_.hooks.interrupted)),
        observation_(options.hooks.observer, *engine_.model),
        seen_(prompt_),
        answer_(*engine_.text, prompt_, options_, result) {
    if (prompt.empty()) fail("prompt: expected at least one token, found none");
    if (int(prompt.size()) > engine_.info.context)
      fail("prompt: expected at most {} tokens (--ctx), found {}", engine_.info.context, prompt.size());
    if (options.repeat_context > engine_.info.context)
      fail("repeat-context: expected at most {} (--ctx), found {}", engine_.info.context, options.repeat_context);
    if (options.repeat_context > 0 && session.plan.refresh > 0)
      fail("repeat-context: expected a session without refresh, found {}", session.plan.refresh);
    if (options.max_tokens < 0) fail("max-tokens: expected 0 or more, found {}", options.max_tokens);
    check_ids(prompt, engine_.model->spec.vocab);
    if (options.hooks.observer != nullptr) run_.listener = &observation_;
    result.prompt_tokens = int(prompt.size());
    turn_ = ++session.turn;
  }

  bool step() {
    if (!going()) return false;
    try {
      if (turn_ != session_.turn) fail("generation: its session has gone on to another answer, or was reset");
      advance();
      if (!going()) end();
    } catch (...) {
      // A pass may have stopped half-way: the next answer starts afresh.
      if (turn_ == session_.turn) session_.prefilled.clear();
      result.finish_reason = "interrupted";
      throw;
    }
    return going();
  }

  void stop() {
    if (!going()) return;
    result.finish_reason = "interrupted";
    end();
  }

  std::span<const float> logits() const { return logits_; }

  GenerateResult result;

 private:
  bool going() const { return result.finish_reason.empty(); }
  bool interrupted() const { return options_.hooks.interrupted && options_.hooks.interrupted(); }

  void advance() {
    if (!begun_) {
      begun_ = true;
      start_watch(options_.hooks, *engine_.pool, run_.watch);
      if (!prefill())
        result.finish_reason = "interrupted";
      else if (options_.max_tokens == 0)
        result.finish_reason = "length";
      else
        end_prefill();
    }
    const Clock::time_point start = Clock::now();
    if (!result.ids.empty()) {
      run_.watch.mark(Part::Other);  // what the caller did since the last token
      if (interrupted())
        result.finish_reason = "interrupted";
      else
        decode_one(result.ids.back());
    }
    if (going()) choose();
    result.timing.decode_s += since(start);
  }

  LogitsSink keep_logits(int position) {
    return [this, position](int, std::span<const float> row) {
      hash_.update(row);
      logits_.assign(row.begin(), row.end());
      if (options_.hooks.on_logits) options_.hooks.on_logits(0, position, row);
    };
  }

  // A prompt that continues what earlier prefills left is continued; anything else starts afresh. False: interrupted.
  bool prefill() {
    const Clock::time_point start = Clock::now();
    Sequence& sequence = session_.sequence;
    std::vector<int32_t>& done = session_.prefilled;
    if (done.empty() || done.size() >= prompt_.size() || session_.prefill_is_pruned() ||
        !std::equal(done.begin(), done.end(), prompt_.begin()))
      session_.reset();
    result.cached_tokens = int(done.size());
    sequence.length = int(done.size());
    sequence.use_packed = false;
    sequence.reads = {};
    // A pruned prefill goes layer by layer over the whole prompt.
    const size_t chunk = session_.prefill_is_pruned() ? prompt_.size() : size_t(engine_.options.prefill_chunk);
    Activations& scratch = engine_.scratch(int(std::min(chunk, prompt_.size())));
    std::vector<ForwardRow> rows;
    while (done.size() < prompt_.size()) {
      if (interrupted()) return false;
      const auto part = std::span(prompt_).subspan(done.size(), std::min(chunk, prompt_.size() - done.size()));
      rows.clear();
      for (const int32_t id : part) rows.push_back({&sequence, id, false});
      rows.back().wants_logits = done.size() + part.size() == prompt_.size();
      try {
        forward(*engine_.model, run_, scratch, Phase::Prefill, rows, keep_logits(int(prompt_.size()) - 1));
      } catch (const PassInterrupted&) {
        done.clear();  // what the policy has seen of the pass is not known: the next call starts afresh
        return false;
      }
      done.insert(done.end(), part.begin(), part.end());
      result.timing.prefill_tokens += int(part.size());
      if (options_.hooks.on_progress) options_.hooks.on_progress(int64_t(done.size()), int64_t(prompt_.size()));
    }
    result.timing.prefill_s = since(start);
    return true;
  }

  void end_prefill() {
    Sequence& sequence = session_.sequence;
    const int room = engine_.info.context - std::max(int(prompt_.size()), options_.repeat_context);
    run_.watch.mark(Part::Other);
    session_.end_prefill(sequence, std::min(options_.max_tokens, room),
                         run_.listener != nullptr ? &observation_ : nullptr, result.timing);
    run_.watch.mark(Part::Partition);
    run_.watch.enter(Phase::Decode);
    if (options_.repeat_context > sequence.length) {
      sequence.kv.repeat(sequence.length, options_.repeat_context);
      sequence.length = options_.repeat_context;
      session_.prefilled.clear();
    }
  }

  void decode_one(int32_t id) {
    Sequence& sequence = session_.sequence;
    const ForwardRow row{&sequence, id, true};
    try {
      if (session_.refresh_due(result.timing.decode_tokens)) {
        session_.prefilled.clear();  // of what the policy has seen, the next prompt may be no continuation
        session_.refresh(sequence, std::span(seen_).first(seen_.size() - 1),
                         options_.max_tokens - result.timing.decode_tokens, run_, result.timing);
      }
      forward(*engine_.model, run_, engine_.scratch(1), Phase::Decode, {&row, 1}, keep_logits(sequence.length));
      ++result.timing.decode_tokens;
    } catch (const PassInterrupted&) {
      result.finish_reason = "interrupted";
    }
  }

  void choose() {
    const int32_t id = sampler_.sample(logits_, seen_);
    run_.watch.mark(Part::Sampling);
    const bool ends = !options_.ignore_eos && engine_.text->ends_generation(id);
    seen_.push_back(id);
    if (ends || !answer_.add(id))
      result.finish_reason = "stop";
    else if (int(result.ids.size()) >= options_.max_tokens || session_.sequence.length >= engine_.info.context)
      result.finish_reason = "length";
  }

  void end() {
    answer_.end();
    result.timing.select_s = run_.watch.profile.seconds[size_t(Phase::Decode)][size_t(Part::Select)];
    if (turn_ == session_.turn) result.reads = engine_.read_stats(session_.sequence);
    result.logits_hash = hash_.hex();
    result.profile = end_watch(options_.hooks, run_.watch);
  }

  Session::Impl& session_;
  Engine::Impl& engine_;
  std::vector<int32_t> prompt_;
  GenerateOptions options_;
  Sampler sampler_;
  RunContext run_;
  Observation observation_;
  StreamHash hash_;
  std::vector<float> logits_;  // [vocab], of the last position computed
  std::vector<int32_t> seen_;  // prompt and answer
  Answer answer_;
  uint64_t turn_ = 0;  // of the session
  bool begun_ = false;
};

Generation::Generation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generation::~Generation() = default;
Generation::Generation(Generation&&) noexcept = default;
bool Generation::step() { return impl_->step(); }
void Generation::stop() { impl_->stop(); }
const GenerateResult& Generation::result() const { return impl_->result; }
std::span<const float> Generation::logits() const { return impl_->logits(); }

Generation Session::start(std::span<const int32_t> prompt, const GenerateOptions& options) {
  return Generation(std::make_unique<Generation::Impl>(*impl_, prompt, options));
}

GenerateResult Session::generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  Generation::Impl generation(*impl_, prompt, options);
  while (generation.step()) {
  }
  return std::move(generation.result);
}

}  // namespace pop
