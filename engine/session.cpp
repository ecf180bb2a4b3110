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

// Packing copies what decode will stream; in place costs a little at every token. The copy pays after about so many tokens
// (measured, docs/kernels.md): plain types lose little in place and have most to copy.
constexpr int kPackAfterBlockTypes = 16, kPackAfterPlainTypes = 40;

bool packing_pays(const Model& model, int tokens) {
  return tokens > (traits(model.layers[0].gate_up.type).block_elems > 1 ? kPackAfterBlockTypes : kPackAfterPlainTypes);
}

}  // namespace

void Observation::chosen(const Sequence& sequence, int position, int layer, Site site, const Selection& selection) {
  const bool columns = selection.kind == Selection::Kind::Columns && !selection.zero_rest;
  // A full list without an index still names its members.
  std::vector<int32_t> all;
  std::span<const int32_t> list(selection.list.index, size_t(selection.list.index != nullptr ? selection.list.count : 0));
  if (selection.list.index == nullptr) {
    for (int i = 0; i < selection.list.count; ++i) all.push_back(i);
    list = all;
  }
  observer_->on_chosen(sequence.id, position - sequence.prefilled, layer, site_name(site), columns, list);
}

void Observation::partitioned(const Sequence& sequence) const {
  for (int layer = 0; layer < layers_; ++layer) {
    if (const Partition* p = sequence.policy->ffn_partition(layer))
      observer_->on_partition(sequence.id, layer, p->retained, p->candidate, p->pruned, p->scores);
    for (int site = 0; site < kSites; ++site)
      if (const auto t = sequence.policy->threshold(Site(site), layer))
        observer_->on_threshold(sequence.id, layer, site_name(Site(site)), t->level, t->tau, t->counted);
  }
}

Session::Impl::Impl(Engine::Impl& e, const PruneSettings& settings) : engine(e), pack(settings.pack) {
  const PolicyContext context = engine.policy_context();
  policy = make_policy(prune_options(settings, context, engine.info.parameters), context);
  const PrunePlan& p = policy->plan();
  plan = {.method = p.method,
          .ratio_of = settings.ratio_of.empty() ? "blocks" : settings.ratio_of,
          .metric = p.metric,
          .decode_metric = p.decode_metric,
          .norm = p.norm,
          .prefill = p.prefill,
          .ratio = p.ratio,
          .ffn_sparsity = p.ffn_sparsity,
          .gamma = p.gamma,
          .level = p.level};
}

void Session::Impl::begin_sequence(Sequence& s, int id, int capacity) const {
  s.id = id;
  s.length = s.prefilled = 0;
  s.use_packed = false;
  s.reads = {};
  if (s.kv.capacity() < capacity) s.kv = KvCache(engine.model->spec, engine.kv, capacity);
  s.policy = policy->prunes() ? policy->begin() : nullptr;
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
    pack_ffn(*engine.model, s, engine.pool);
    timing.pack_s += since(before);
  }
  timing.partition_s += since(start);
}

void Session::Impl::reset() {
  begin_sequence(sequence, 0, engine.info.context);
  prefilled.clear();
}

namespace {

// Collects an answer: tokens to text, stop strings, reasons to end.
class Answer {
 public:
  Answer(const TextModel& text, const GenerateOptions& options, GenerateResult& result)
      : options_(options), result_(result), stops_(options.stop) {
    if (text.has_tokenizer()) decoder_.emplace(text.tokenizer(), true);
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

GenerateResult Session::Impl::generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  const int context = engine.info.context, vocab = engine.model->spec.vocab;
  if (prompt.empty()) fail("prompt: expected at least one token, found none");
  if (int(prompt.size()) > context)
    fail("prompt: expected at most {} tokens (--ctx), found {}", context, prompt.size());
  if (options.max_tokens < 0) fail("max-tokens: expected 0 or more, found {}", options.max_tokens);
  check_ids(prompt, vocab);
  Sampler sampler(options.sampling, engine.kernels);
  GenerateResult result;
  result.prompt_tokens = int(prompt.size());
  RunContext run = engine.run_context();
  Observation observation(options.hooks.observer, engine.model->spec.layers);
  if (options.hooks.observer != nullptr) run.listener = &observation;
  StreamHash hash;
  std::vector<float> logits(static_cast<size_t>(vocab));
  const auto interrupted = [&] { return options.hooks.interrupted && options.hooks.interrupted(); };
  const auto keep_logits = [&](int position) {
    return [&, position](int, std::span<const float> row) {
      hash.update(row);
      std::copy(row.begin(), row.end(), logits.begin());
      if (options.hooks.on_logits) options.hooks.on_logits(0, position, row);
    };
  };

  // A prompt that continues what earlier prefills left is continued; anything else starts afresh.
  const bool continues = !prefilled.empty() && prefilled.size() < prompt.size() && !prefill_is_pruned() &&
                         std::equal(prefilled.begin(), prefilled.end(), prompt.begin());
  if (!continues) reset();
  result.cached_tokens = int(prefilled.size());
  sequence.length = int(prefilled.size());
  sequence.use_packed = false;
  sequence.reads = {};

  // Prefill, in chunks. A pruned prefill goes layer by layer over the whole prompt.
  const Clock::time_point start = Clock::now();
  const int chunk = prefill_is_pruned() ? int(prompt.size()) : engine.options.prefill_chunk;
  Activations& scratch = engine.scratch(std::min(chunk, int(prompt.size())));
  std::vector<ForwardRow> rows;
  bool stopped = false;
  for (size_t at = prefilled.size(); at < prompt.size();) {
    if ((stopped = interrupted())) break;
    const size_t end = std::min(prompt.size(), at + size_t(chunk));
    rows.clear();
    for (size_t i = at; i < end; ++i) rows.push_back({&sequence, prompt[i], i + 1 == prompt.size()});
    forward(*engine.model, run, scratch, Phase::Prefill, rows, keep_logits(int(prompt.size()) - 1));
    prefilled.insert(prefilled.end(), prompt.begin() + std::ptrdiff_t(at), prompt.begin() + std::ptrdiff_t(end));
    result.timing.prefill_tokens += int(end - at);
    at = end;
    if (options.hooks.on_progress) options.hooks.on_progress(int64_t(at), int64_t(prompt.size()));
  }
  result.timing.prefill_s = since(start);

  Answer answer(*engine.text, options, result);
  if (!stopped && options.max_tokens > 0) {
    end_prefill(sequence, std::min(options.max_tokens, context - int(prompt.size())),
                options.hooks.observer != nullptr ? &observation : nullptr, result.timing);
    const double select_before = run.profile.seconds[size_t(Part::Select)];
    const Clock::time_point decode_start = Clock::now();
    std::vector<int32_t> seen(prompt.begin(), prompt.end());
    for (;;) {
      const int32_t id = sampler.sample(logits, seen);
      if (!options.ignore_eos && engine.text->has_tokenizer() && engine.text->tokenizer().is_end_of_generation(id)) {
        result.finish_reason = "stop";
        break;
      }
      seen.push_back(id);
      if (!answer.add(id)) {
        result.finish_reason = "stop";
        break;
      }
      if (int(result.ids.size()) >= options.max_tokens || sequence.length >= context) {
        result.finish_reason = "length";
        break;
      }
      if ((stopped = interrupted())) break;
      const ForwardRow row{&sequence, id, true};
      forward(*engine.model, run, scratch, Phase::Decode, {&row, 1}, keep_logits(sequence.length));
      ++result.timing.decode_tokens;
    }
    result.timing.decode_s = since(decode_start);
    result.timing.select_s = run.profile.seconds[size_t(Part::Select)] - select_before;
  }
  answer.end();
  if (stopped) result.finish_reason = "interrupted";
  if (result.finish_reason.empty()) result.finish_reason = "length";
  result.reads = engine.read_stats(sequence);
  result.logits_hash = hash.hex();
  if (options.hooks.profile) result.profile = profile_parts(run.profile);
  return result;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
const PrunePlanInfo& Session::plan() const { return impl_->plan; }
void Session::reset() { impl_->reset(); }
GenerateResult Session::generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  return impl_->generate(prompt, options);
}
std::vector<ScoreResult> Session::score(std::span<const ScoreRequest> requests, int batch, const RunHooks& hooks) {
  return impl_->score(requests, batch, hooks);
}

}  // namespace pop
