#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/impl.h"
#include "engine/sampler.h"
#include "engine/stop_filter.h"
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
  plan_bytes(p);
}

void Session::Impl::plan_bytes(const PrunePlan& p) {
  const std::span<const LayerWeights> layers = engine.model->layers;
  const auto head = double(engine.dense_head_bytes);
  const double dense = pop::dense_bytes(layers);
  double planned = dense, bare = dense;
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
  s.policy->partition();
  s.forget_bytes();
  if (observation != nullptr) observation->partitioned(s);
  if (pack && packing_pays(*engine.model, tokens_to_come)) {
    const Clock::time_point before = Clock::now();
    pack_ffn(*engine.model, s, *engine.pool);
    timing.pack_s += since(before);
  }
  timing.partition_s += since(start);
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

namespace {

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

// One call of generate: prefill what is new of the prompt, then decode token by token.
class Generation {
 public:
  Generation(Session::Impl& session, std::span<const int32_t> prompt, const GenerateOptions& options)
      : session_(session),
        engine_(session.engine),
        prompt_(prompt),
        options_(options),
        sampler_(options.sampling, engine_.kernels),
        run_(engine_.run_context(&options.hooks.interrupted)),
        observation_(options.hooks.observer, *engine_.model),
        logits_(size_t(engine_.model->spec.vocab)),
        answer_(*engine_.text, prompt, options, result_) {
    if (prompt.empty()) fail("prompt: expected at least one token, found none");
    if (int(prompt.size()) > engine_.info.context)
      fail("prompt: expected at most {} tokens (--ctx), found {}", engine_.info.context, prompt.size());
    if (options.repeat_context > engine_.info.context)
      fail("repeat-context: expected at most {} (--ctx), found {}", engine_.info.context, options.repeat_context);
    if (options.max_tokens < 0) fail("max-tokens: expected 0 or more, found {}", options.max_tokens);
    check_ids(prompt, engine_.model->spec.vocab);
    if (options.hooks.observer != nullptr) run_.listener = &observation_;
    result_.prompt_tokens = int(prompt.size());
  }

  GenerateResult run() {
    start_watch(options_.hooks, *engine_.pool, run_.watch);
    if (!prefill())
      result_.finish_reason = "interrupted";
    else if (options_.max_tokens == 0)
      result_.finish_reason = "length";
    else
      decode();
    answer_.end();
    result_.reads = engine_.read_stats(session_.sequence);
    result_.logits_hash = hash_.hex();
    result_.profile = end_watch(options_.hooks, run_.watch);
    return std::move(result_);
  }

 private:
  bool interrupted() const { return options_.hooks.interrupted && options_.hooks.interrupted(); }

  LogitsSink keep_logits(int position) {
    return [this, position](int, std::span<const float> row) {
      hash_.update(row);
      std::copy(row.begin(), row.end(), logits_.begin());
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
    result_.cached_tokens = int(done.size());
    sequence.length = int(done.size());
    sequence.use_packed = false;
    sequence.reads = {};
    // A pruned prefill goes layer by layer over the whole prompt.
    const size_t chunk = session_.prefill_is_pruned() ? prompt_.size() : size_t(engine_.options.prefill_chunk);
    Activations& scratch = engine_.scratch(int(std::min(chunk, prompt_.size())));
    std::vector<ForwardRow> rows;
    while (done.size() < prompt_.size()) {
      if (interrupted()) return false;
      const auto part = prompt_.subspan(done.size(), std::min(chunk, prompt_.size() - done.size()));
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
      result_.timing.prefill_tokens += int(part.size());
      if (options_.hooks.on_progress) options_.hooks.on_progress(int64_t(done.size()), int64_t(prompt_.size()));
    }
    result_.timing.prefill_s = since(start);
    return true;
  }

  void decode_one(int32_t id) {
    Sequence& sequence = session_.sequence;
    const ForwardRow row{&sequence, id, true};
    try {
      forward(*engine_.model, run_, engine_.scratch(1), Phase::Decode, {&row, 1}, keep_logits(sequence.length));
      ++result_.timing.decode_tokens;
    } catch (const PassInterrupted&) {
      result_.finish_reason = "interrupted";
    }
  }

  void decode() {
    Sequence& sequence = session_.sequence;
    const int room = engine_.info.context - std::max(int(prompt_.size()), options_.repeat_context);
    run_.watch.mark(Part::Other);
    session_.end_prefill(sequence, std::min(options_.max_tokens, room),
                         run_.listener != nullptr ? &observation_ : nullptr, result_.timing);
    run_.watch.mark(Part::Partition);
    run_.watch.enter(Phase::Decode);
    if (options_.repeat_context > sequence.length) {
      sequence.kv.repeat(sequence.length, options_.repeat_context);
      sequence.length = options_.repeat_context;
      session_.prefilled.clear();
    }
    const Clock::time_point start = Clock::now();
    std::vector<int32_t> seen(prompt_.begin(), prompt_.end());
    while (result_.finish_reason.empty()) {
      const int32_t id = sampler_.sample(logits_, seen);
      run_.watch.mark(Part::Sampling);
      const bool ends = !options_.ignore_eos && engine_.text->ends_generation(id);
      seen.push_back(id);
      if (ends || !answer_.add(id)) {
        result_.finish_reason = "stop";
      } else if (int(result_.ids.size()) >= options_.max_tokens || sequence.length >= engine_.info.context) {
        result_.finish_reason = "length";
      } else if (interrupted()) {
        result_.finish_reason = "interrupted";
      } else {
        decode_one(id);
      }
    }
    result_.timing.decode_s = since(start);
    result_.timing.select_s = run_.watch.profile.seconds[size_t(Phase::Decode)][size_t(Part::Select)];
  }

  Session::Impl& session_;
  Engine::Impl& engine_;
  std::span<const int32_t> prompt_;
  const GenerateOptions& options_;
  Sampler sampler_;
  RunContext run_;
  Observation observation_;
  StreamHash hash_;
  std::vector<float> logits_;
  GenerateResult result_;
  Answer answer_;
};

}  // namespace

GenerateResult Session::Impl::generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  Generation generation(*this, prompt, options);
  try {
    return generation.run();
  } catch (...) {
    prefilled.clear();  // a pass may have stopped half-way: the next call starts afresh
    throw;
  }
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
const PrunePlanInfo& Session::plan() const { return impl_->plan; }
void Session::reset() { impl_->reset(); }
void Session::release() { impl_->release(); }
GenerateResult Session::generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  return impl_->generate(prompt, options);
}
SessionMemory Session::memory() const { return impl_->memory(); }
std::vector<ScoreResult> Session::score(std::span<const ScoreRequest> requests, int batch, const RunHooks& hooks) {
  return impl_->score(requests, batch, hooks);
}

}  // namespace pop
