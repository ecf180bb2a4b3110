// Session and Generation: answers as iterators, scores, logits as arrays over the engine's own memory.
#include "bindings/session.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

namespace pop::python {

using namespace nb::literals;

std::vector<ChatMessage> chat_messages(const Messages& messages) {
  std::vector<ChatMessage> out;
  for (const auto& message : messages) {
    const auto role = message.find("role"), content = message.find("content");
    if (role == message.end() || content == message.end() || message.size() != 2)
      throw nb::value_error("messages: expected dicts with \"role\" and \"content\", and nothing else");
    out.push_back({role->second, content->second});
  }
  return out;
}

std::vector<int32_t> prompt_ids(const Engine& engine, const Prompt& prompt, bool special) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return *ids;
  if (const auto* messages = std::get_if<Messages>(&prompt)) return engine.chat_prompt(chat_messages(*messages));
  return engine.prompt(std::get<std::string>(prompt), special);
}

namespace {

using FloatRow = nb::ndarray<nb::numpy, const float, nb::ndim<1>>;
using FloatRows = nb::ndarray<nb::numpy, const float, nb::ndim<2>>;
using DoubleRow = nb::ndarray<nb::numpy, const double, nb::ndim<1>>;

class PyGeneration {
 public:
  PyGeneration(std::shared_ptr<PySession> session, const Prompt& prompt, bool special, GenerateOptions options)
      : session_(std::move(session)), signals_(std::make_unique<Signals>()) {
    options.hooks.interrupted = [signals = signals_.get()] { return signals->raised(); };
    generation_.emplace(work(*session_->shared, *signals_, [&] {
      return session_->session->start(prompt_ids(session_->shared->engine, prompt, special), options);
    }));
  }

  // What `read` makes of the result, while no step changes it.
  template <class Read>
  auto look(Read&& read) {
    return work(*session_->shared, *signals_, [&] { return read(generation_->result()); });
  }
  std::span<const float> logits() const { return generation_->logits(); }

  // Text that became whole with the next token; throws StopIteration where nothing came any more.
  nb::str next() {
    const auto piece = work(*session_->shared, *signals_, [&]() -> std::optional<std::string> {
      const GenerateResult& r = generation_->result();
      const size_t text = r.text.size(), tokens = r.ids.size();
      generation_->step();
      if (r.text.size() == text && r.ids.size() == tokens) return std::nullopt;
      return r.text.substr(text);
    });
    if (!piece) throw nb::stop_iteration();
    return text(*piece);
  }
  nb::str read() {
    return text(work(*session_->shared, *signals_, [&] {
      const size_t before = generation_->result().text.size();
      while (generation_->step()) {
      }
      return generation_->result().text.substr(before);
    }));
  }
  void stop() {
    work(*session_->shared, *signals_, [&] {
      generation_->stop();
      return true;
    });
  }

 private:
  std::shared_ptr<PySession> session_;
  std::unique_ptr<Signals> signals_;  // the options refer to it
  std::optional<Generation> generation_;
};

// Scores of one text; its arrays are views of what the engine wrote here.
struct Score {
  ScoreResult result;
  std::vector<int32_t> ids;
  int first = 0;  // position of the first row
  size_t vocab = 0;
  std::vector<float> logits;  // [ids - first][vocab], or empty
};

std::vector<Score> score(PySession& self, const std::vector<Prompt>& prompts, std::optional<int> split, int score_from,
                         bool logits, int batch, bool special) {
  Signals signals;
  return work(*self.shared, signals, [&] {
    const Engine& engine = self.shared->engine;
    std::vector<Score> scores(prompts.size());
    std::vector<ScoreRequest> requests;
    for (size_t i = 0; i < prompts.size(); ++i) {
      Score& s = scores[i];
      s.ids = prompt_ids(engine, prompts[i], special);
      s.first = std::max(0, score_from - 1);
      s.vocab = size_t(engine.info().vocab);
      requests.push_back({.ids = s.ids, .split = split.value_or(-1), .score_from = score_from});
    }
    RunHooks hooks;
    hooks.interrupted = [&] { return signals.raised(); };
    if (logits)
      hooks.on_logits = [&](int sequence, int position, std::span<const float> row) {
        Score& s = scores[size_t(sequence)];
        if (s.logits.empty()) s.logits.resize(s.vocab * (s.ids.size() - size_t(s.first)));
        std::copy(row.begin(), row.end(), s.logits.begin() + ptrdiff_t(size_t(position - s.first) * s.vocab));
      };
    std::vector<ScoreResult> results = self.session->score(requests, batch, hooks);
    for (size_t i = 0; i < prompts.size(); ++i) scores[i].result = std::move(results[i]);
    return scores;
  });
}

void bind_generation(nb::module_& m) {
  nb::class_<PyGeneration>(m, "Generation",
                           R"(An answer in the making: an iterator over its text, a piece for each token.

A piece is "" while a character, or what may be the beginning of a stop string, is not complete. The answer is computed as it
is asked for. Of a session the last one that was begun goes on: the next one, and Session.reset, end those before.)")
      .def("__iter__",
           [](nb::handle_t<PyGeneration> self) { return nb::borrow<nb::typed<nb::object, PyGeneration>>(self); })
      .def("__next__", &PyGeneration::next)
      .def("read", &PyGeneration::read, "The rest of the answer at once.")
      .def("stop", &PyGeneration::stop,
           "Ends the answer with the tokens that there are; its figures are complete then.")
      .def_prop_ro(
          "text", [](PyGeneration& g) { return text(g.look([](const auto& r) { return r.text; })); },
          "The answer so far.")
      .def_prop_ro(
          "ids", [](PyGeneration& g) { return g.look([](const auto& r) { return r.ids; }); },
          "Its token ids so far, without the one that ended it.")
      .def_prop_ro(
          "logits",
          [](nb::handle_t<PyGeneration> self) {
            const std::span<const float> logits = nb::cast<PyGeneration&>(self).logits();
            return FloatRow(logits.data(), {logits.size()}, self);
          },
          R"([vocab] float32, read-only: what the last token was chosen from; [0] before the first one.

A view of the engine's own memory, which the next token overwrites: copy it to keep it.)")
      .def_prop_ro(
          "finish_reason",
          [](PyGeneration& g) {
            auto reason = g.look([](const auto& r) { return r.finish_reason; });
            return reason.empty() ? std::nullopt : std::optional(std::move(reason));
          },
          "\"stop\", \"length\", \"interrupted\", or None while the answer is not complete.")
      .def_prop_ro("prompt_tokens",
                   [](PyGeneration& g) { return g.look([](const auto& r) { return r.prompt_tokens; }); })
      .def_prop_ro(
          "cached_tokens", [](PyGeneration& g) { return g.look([](const auto& r) { return r.cached_tokens; }); },
          "Tokens of the prompt that an earlier answer had computed.")
      .def_prop_ro(
          "timing", [](PyGeneration& g) { return g.look([](const auto& r) { return r.timing; }); },
          "Of a complete answer.")
      .def_prop_ro(
          "reads", [](PyGeneration& g) { return g.look([](const auto& r) { return r.reads; }); },
          "Of a complete answer.")
      .def_prop_ro(
          "logits_hash", [](PyGeneration& g) { return g.look([](const auto& r) { return r.logits_hash; }); },
          "Of a complete answer: XXH64 of all logits in order, 16 hex digits. Two runs compare bit for bit.");
}

void bind_score(nb::module_& m) {
  nb::class_<Score>(m, "Score", "Teacher-forced log-probabilities of one text.")
      .def_ro("ids", &Score::ids)
      .def_prop_ro(
          "logprobs",
          [](nb::handle_t<Score> self) {
            const std::vector<double>& values = nb::cast<Score&>(self).result.logprobs;
            return DoubleRow(values.data(), {values.size()}, self);
          },
          R"([ids] float64, read-only: ln p(ids[i] | ids[:i]); NaN where it was not computed, and at 0.)")
      .def_prop_ro(
          "logits",
          [](nb::handle_t<Score> self) -> std::optional<FloatRows> {
            const Score& s = nb::cast<Score&>(self);
            if (s.logits.empty()) return std::nullopt;
            return FloatRows(s.logits.data(), {s.logits.size() / s.vocab, s.vocab}, self);
          },
          R"([ids - first_position, vocab] float32, read-only, if they were asked for. Row i predicts token first_position + i + 1.)")
      .def_ro("first_position", &Score::first, "The position of the first row of logits.")
      .def_prop_ro(
          "nll_sum", [](const Score& s) { return s.result.nll_sum; },
          "Negative log-likelihood of positions from max(1, split) on.")
      .def_prop_ro(
          "scored", [](const Score& s) { return s.result.scored; }, "How many positions nll_sum has.")
      .def_prop_ro(
          "nll_decode_sum", [](const Score& s) { return s.result.nll_decode_sum; },
          "The same of positions after split, which decode predicted.")
      .def_prop_ro("scored_decode", [](const Score& s) { return s.result.scored_decode; })
      .def_prop_ro(
          "top", [](const Score& s) { return s.result.top; }, "The 5 most likely tokens after the last one.")
      .def_prop_ro(
          "partition", [](const Score& s) { return s.result.partition; }, "What the prompt decided for each FFN.")
      .def_prop_ro(
          "timing", [](const Score& s) -> const Timing& { return s.result.timing; }, nb::rv_policy::reference_internal)
      .def_prop_ro(
          "reads", [](const Score& s) -> const ReadStats& { return s.result.reads; }, nb::rv_policy::reference_internal)
      .def_prop_ro("logits_hash", [](const Score& s) { return s.result.logits_hash; });
}

PyGeneration generate(std::shared_ptr<PySession> self, const Prompt& prompt, int max_tokens, double temperature,
                      int top_k, double top_p, double min_p, double repeat_penalty, uint64_t seed,
                      const std::variant<std::string, std::vector<std::string>>& stop, bool ignore_eos, bool special) {
  GenerateOptions options{.max_tokens = max_tokens,
                          .sampling = {.temp = temperature,
                                       .top_k = top_k,
                                       .top_p = top_p,
                                       .min_p = min_p,
                                       .repeat_penalty = repeat_penalty,
                                       .seed = seed},
                          .ignore_eos = ignore_eos};
  if (const auto* one = std::get_if<std::string>(&stop))
    options.stop = {*one};
  else
    options.stop = std::get<std::vector<std::string>>(stop);
  return PyGeneration(std::move(self), prompt, special, std::move(options));
}

BatchResult generate_batch(PySession& self, const std::vector<Prompt>& prompts, int tokens, bool special) {
  Signals signals;
  return work(*self.shared, signals, [&] {
    std::vector<std::vector<int32_t>> ids;
    for (const Prompt& prompt : prompts) ids.push_back(prompt_ids(self.shared->engine, prompt, special));
    RunHooks hooks;
    hooks.interrupted = [&] { return signals.raised(); };
    return self.session->generate_batch(ids, tokens, hooks);
  });
}

template <void (Session::*method)()>
void call(PySession& self) {
  Signals signals;
  work(*self.shared, signals, [&] { return (self.session.get()->*method)(), true; });
}

}  // namespace

void bind_session(nb::module_& m) {
  bind_generation(m);
  bind_score(m);
  nb::class_<PySession>(m, "Session", R"(One conversation: its key-value cache and its pruning. Made by Engine.session.

A prompt that continues an earlier prompt reuses what was computed for it. Calls of several threads wait for each other.)")
      .def_prop_ro(
          "plan", [](const PySession& s) -> const PrunePlanInfo& { return s.session->plan(); },
          nb::rv_policy::reference_internal, "What the pruning options came to.")
      .def("generate", &generate, "prompt"_a, nb::kw_only(), "max_tokens"_a = 128, "temperature"_a = 0.0, "top_k"_a = 0,
           "top_p"_a = 1.0, "min_p"_a = 0.0, "repeat_penalty"_a = 1.0, "seed"_a = 0,
           "stop"_a = std::vector<std::string>(), "ignore_eos"_a = false, "special"_a = false,
           R"(Begins an answer; nothing is computed until it is asked for.

prompt: a text, token ids, or the messages of a chat ({"role": ..., "content": ...}), which go through the model's template.
max_tokens: at most so many tokens. temperature: 0 is greedy. top_k: 0 is off. top_p, min_p: within [0, 1].
repeat_penalty: over prompt and answer, 1 is off. seed: of the draws. stop: texts that end the answer, not part of it.
ignore_eos: tokens that end an answer are ordinary ones. special: text that spells a special token becomes that token.)")
      .def("generate_batch", &generate_batch, "prompts"_a, nb::kw_only(), "tokens"_a, "special"_a = false,
           R"(Greedy answers of exactly `tokens` tokens to several prompts, one token of each per pass.

Independent of this session's conversation; each prompt is pruned by itself.)")
      .def(
          "score",
          [](PySession& self, Prompt text, std::optional<int> split, int score_from, bool logits, bool special) {
            return std::move(score(self, {std::move(text)}, split, score_from, logits, 1, special).front());
          },
          "text"_a, nb::kw_only(), "split"_a = nb::none(), "score_from"_a = 1, "logits"_a = false, "special"_a = false,
          R"(Log-probabilities of a given text, or of token ids.

split: the first `split` tokens are prefill, the rest go through decode, where a method prunes; None: all are prefill.
score_from: log-probabilities of earlier positions are not computed. logits: keep them (4 bytes * vocab for each position).
Independent of this session's conversation.)")
      .def("score_batch", &score, "texts"_a, nb::kw_only(), "split"_a = nb::none(), "score_from"_a = 1,
           "logits"_a = false, "batch"_a = 8, "special"_a = false,
           "The same for several texts, up to `batch` of them in one pass.")
      .def("reset", &call<&Session::reset>, "Forgets the conversation.")
      .def("release", &call<&Session::release>, "Forgets the conversation and gives its memory back.")
      .def_prop_ro(
          "memory",
          [](PySession& s) {
            Signals signals;
            return work(*s.shared, signals, [&] { return s.session->memory(); });
          },
          "Bytes held beside the weights.");
}

}  // namespace pop::python
