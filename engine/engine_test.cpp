#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "base/error.h"
#include "engine/pop.h"
#include "engine/sampler.h"
#include "engine/stop_filter.h"
#include "kernels/select.h"

namespace pop {
namespace {

constexpr const char* kTiny = "tests/goldens/tiny-q4_1.gguf";

int32_t sample(const SamplingOptions& options, const std::vector<float>& logits,
               const std::vector<int32_t>& seen = {}) {
  return Sampler(options, select_kernels("scalar")).sample(logits, seen);
}

// How often each token comes in n draws.
std::map<int32_t, int> draws(SamplingOptions options, const std::vector<float>& logits, int n) {
  options.seed = 7;
  Sampler sampler(options, select_kernels("scalar"));
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(logits, {})];
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  EXPECT_EQ(sample({}, {1, 3, 3, 2}), 1);
  EXPECT_EQ(sample({.temp = 1e-9}, {1, 3, 3, 2}), 1);
}

TEST(Sampler, PenaltyDividesPositiveAndMultipliesNegativeLogits) {
  // Both seen, penalty 2 (hand-computed): [-1, 2] becomes [-2, 1]; the unseen 0.9 and 1.1 decide.
  EXPECT_EQ(sample({.repeat_penalty = 2}, {-1, 2, 1.1f}, {0, 1}), 2);
  EXPECT_EQ(sample({.repeat_penalty = 2}, {-1, 2, 0.9f}, {0, 1}), 1);
  EXPECT_EQ(sample({.repeat_penalty = 2}, {-1, -1.9f}, {0}), 1);
  EXPECT_EQ(sample({.repeat_penalty = 2}, {-1, -2.1f}, {0, 0, 0}), 0);  // once, however often it was seen
}

TEST(Sampler, FiltersAtTheirEdges) {
  const std::vector<float> flat(8, 0.f);
  EXPECT_EQ(draws({.temp = 1}, flat, 1000).size(), 8u);  // top_k 0 is off
  EXPECT_EQ(draws({.temp = 1, .top_k = 3}, flat, 1000).size(), 3u);
  EXPECT_EQ(draws({.temp = 1, .top_k = 100}, flat, 1000).size(), 8u);
  EXPECT_EQ(draws({.temp = 1, .top_p = 0}, flat, 100).size(), 1u);
  EXPECT_EQ(draws({.temp = 1, .top_p = 0.5}, flat, 1000).size(), 4u);
  EXPECT_EQ(draws({.temp = 1, .min_p = 1}, {0, 1, 2, 2}, 1000).size(), 2u);
  // exp(-1) = 0.37 of the best: kept at 0.3, not at 0.4.
  EXPECT_EQ(draws({.temp = 1, .min_p = 0.3}, {1, 0}, 1000).size(), 2u);
  EXPECT_EQ(draws({.temp = 1, .min_p = 0.4}, {1, 0}, 1000).size(), 1u);
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  // Weights e^0 : e^1 = 0.269 : 0.731 (hand-computed); at temperature 2, e^0 : e^0.5 = 0.378 : 0.622.
  EXPECT_NEAR(draws({.temp = 1}, {0, 1}, 20000)[1] / 20000.0, 0.731, 0.015);
  EXPECT_NEAR(draws({.temp = 2}, {0, 1}, 20000)[1] / 20000.0, 0.622, 0.015);
  EXPECT_NEAR(draws({.temp = 1e8}, {0, 1}, 20000)[1] / 20000.0, 0.5, 0.015);
}

// A vocabulary of several blocks whose logits fall slowly and quickly: each filter against its definition, token by token, over
// everything sorted; draws against the softmax over what is kept.
TEST(Sampler, LargeVocabulariesKeepWhatTheDefinitionKeeps) {
  for (const double step : {0.0, 0.001, 0.02, 3.0}) {
    std::vector<float> logits(3000);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(-step * double((i * 1237) % logits.size()));
    for (const SamplingOptions& options : {SamplingOptions{.temp = 0.7},
                                           {.temp = 0.7, .top_k = 40},
                                           {.temp = 0.7, .top_p = 0.9},
                                           {.temp = 1.5, .top_p = 0.99999},
                                           {.temp = 0.7, .min_p = 0.05},
                                           {.temp = 0.7, .min_p = 1e-12},
                                           {.temp = 1, .top_k = 50, .top_p = 0.6, .min_p = 0.01},
                                           {.temp = 3, .top_k = 3000, .top_p = 0.97, .min_p = 6e-5}}) {
      std::vector<size_t> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
      if (options.top_k > 0) order.resize(size_t(options.top_k));
      double total = 0, sum = 0;
      for (const size_t id : order) total += std::exp(double(logits[id]));
      size_t kept = 0;
      while (kept < order.size() && (kept == 0 || sum < options.top_p * total))
        sum += std::exp(double(logits[order[kept++]]));
      if (options.top_p >= 1) kept = order.size();
      while (kept > 1 && std::exp(double(logits[order[kept - 1]])) < options.min_p) --kept;
      order.resize(kept);
      std::vector<double> share(logits.size());
      double all = 0, mean = 0, drawn = 0;
      for (const size_t id : order) all += share[id] = std::exp(double(logits[id]) / options.temp);
      constexpr int kDraws = 400;
      for (const size_t id : order) mean += share[id] / all * double(id);
      double spread = 0;
      for (const size_t id : order) spread += share[id] / all * (double(id) - mean) * (double(id) - mean);
      for (const auto& [id, times] : draws(options, logits, kDraws)) {
        ASSERT_GT(share[size_t(id)], 0) << "token " << id << " was cut, step " << step;
        drawn += double(id) * times / kDraws;
      }
      EXPECT_NEAR(drawn, mean, 4 * std::sqrt(spread / kDraws) + 1e-9) << "step " << step << ", kept " << kept;
    }
  }
}

TEST(Sampler, InfiniteLogitsAreNeverDrawn) {
  std::vector<float> logits(5000, -std::numeric_limits<float>::infinity());
  logits[4100] = 1;
  logits[4101] = 1;
  for (const SamplingOptions& options :
       {SamplingOptions{.temp = 1}, {.temp = 1, .top_k = 100}, {.temp = 1, .top_p = 0.999}})
    for (const auto& [id, times] : draws(options, logits, 200)) EXPECT_TRUE(id == 4100 || id == 4101) << id;
}

TEST(Sampler, RefusesWhatIsOutOfRange) {
  for (const SamplingOptions& bad : {SamplingOptions{.temp = -1},
                                     {.temp = NAN},
                                     {.temp = 1, .top_p = 1.5},
                                     {.temp = 1, .top_p = -1},
                                     {.temp = 1, .min_p = 2},
                                     {.repeat_penalty = 0}})
    EXPECT_THROW(Sampler(bad, select_kernels("scalar")), Error);
}

TEST(StopFilter, StopStringsOverTokenBorders) {
  StopFilter filter({"DEFGHIJ"});
  std::string shown;
  for (const char* piece : {"A", "BC", "DE", "FG", "HI", "JK", "L"}) shown += filter.push(piece);
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(shown, "ABC");
}

TEST(StopFilter, FalseBeginningsAreShownLater) {
  StopFilter filter({"aab", "xyz"});
  std::string shown = filter.push("aa");
  EXPECT_EQ(shown, "");
  shown += filter.push("ac");  // "aaac": no stop string can begin in it any more
  EXPECT_EQ(shown, "aaac");
  shown += filter.push("x");
  EXPECT_EQ(shown, "aaac");
  EXPECT_EQ(shown + filter.flush(), "aaacx");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, TheFirstOfSeveralEnds) {
  StopFilter filter({"two", "one"});
  EXPECT_EQ(filter.push("a one two"), "a ");
  EXPECT_THROW(StopFilter({""}), Error);
}

std::vector<int32_t> prompt_of(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(i * 37 % 256);
  return ids;
}

TEST(Session, EndsWithTheRightReason) {
  Engine engine({.model = kTiny, .context = 64});
  const auto session = engine.session();
  EXPECT_EQ(session->generate(prompt_of(10), {.max_tokens = 5, .ignore_eos = true}).finish_reason, "length");
  const GenerateResult full = session->generate(prompt_of(60), {.max_tokens = 50, .ignore_eos = true});
  EXPECT_EQ(full.finish_reason, "length");
  EXPECT_EQ(full.ids.size(), 5u);  // four fit behind the prompt; a fifth was predicted by the last
  EXPECT_EQ(session->generate(prompt_of(64), {.max_tokens = 50, .ignore_eos = true}).ids.size(), 1u);
  EXPECT_EQ(session->generate(prompt_of(10), {.max_tokens = 0}).ids.size(), 0u);
  int asked = 0;
  GenerateOptions options{.max_tokens = 50, .ignore_eos = true};
  options.hooks.interrupted = [&] { return ++asked > 4; };
  EXPECT_EQ(session->generate(prompt_of(10), options).finish_reason, "interrupted");
}

TEST(Session, AnswerIsTheTextOfItsIds) {
  Engine engine({.model = kTiny, .context = 64});
  std::string streamed;
  GenerateOptions options{.max_tokens = 20, .ignore_eos = true};
  options.on_text = [&](std::string_view text) { streamed += text; };
  const GenerateResult run = engine.session()->generate(prompt_of(10), options);
  EXPECT_EQ(streamed, run.text);
  EXPECT_EQ(run.text, engine.decode(run.ids, true));
}

TEST(Session, StepByStepIsGenerate) {
  Engine engine({.model = kTiny, .context = 64});
  const GenerateOptions options{.max_tokens = 20, .ignore_eos = true};
  const auto once = [&](const std::vector<int32_t>& prompt) { return engine.session()->generate(prompt, options); };
  const GenerateResult a = once(prompt_of(10)), b = once(prompt_of(23));
  // Two conversations by turns, scored beside: neither sees the other.
  const auto session_a = engine.session(), session_b = engine.session();
  Generation step_a = session_a->start(prompt_of(10), options), step_b = session_b->start(prompt_of(23), options);
  EXPECT_TRUE(step_a.logits().empty());
  const float* logits = nullptr;
  size_t steps = 0;
  for (bool more_a = true, more_b = true; more_a || more_b;) {
    more_a = step_a.step(), more_b = step_b.step(), ++steps;
    ASSERT_EQ(step_a.result().ids.size(), steps);
    ASSERT_EQ(std::max_element(step_a.logits().begin(), step_a.logits().end()) - step_a.logits().begin(),
              step_a.result().ids.back());
    if (steps > 1) {
      EXPECT_EQ(step_a.logits().data(), logits);  // overwritten in place
    }
    logits = step_a.logits().data();
    const ScoreRequest request{.ids = prompt_of(5)};
    session_a->score({&request, 1});
  }
  for (const auto& [alone, stepped] : {std::pair(&a, &step_a.result()), {&b, &step_b.result()}}) {
    EXPECT_EQ(alone->ids, stepped->ids);
    EXPECT_EQ(alone->text, stepped->text);
    EXPECT_EQ(alone->logits_hash, stepped->logits_hash);
    EXPECT_EQ(stepped->finish_reason, "length");
    EXPECT_EQ(alone->reads.weight_bytes_per_token, stepped->reads.weight_bytes_per_token);
    EXPECT_EQ(alone->timing.decode_tokens, stepped->timing.decode_tokens);
  }
  EXPECT_FALSE(step_a.step());
  EXPECT_EQ(step_a.result().ids.size(), 20u);
}

TEST(Session, GenerationCanBeLeftEarly) {
  Engine engine({.model = kTiny, .context = 64});
  const GenerateOptions options{.max_tokens = 20, .ignore_eos = true};
  const auto session = engine.session();
  const GenerateResult whole = session->generate(prompt_of(10), options);
  Generation left = session->start(prompt_of(10), options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(left.step());
  left.stop();
  EXPECT_FALSE(left.step());
  EXPECT_EQ(left.result().finish_reason, "interrupted");
  EXPECT_EQ(left.result().generated_tokens, 3);
  EXPECT_EQ(left.result().reads.tokens, 2u);
  EXPECT_EQ(left.result().text, engine.decode(left.result().ids, true));
  EXPECT_EQ(session->generate(prompt_of(10), options).logits_hash, whole.logits_hash);
}

TEST(Session, OnlyTheLastGenerationGoesOn) {
  Engine engine({.model = kTiny, .context = 64});
  const GenerateOptions options{.max_tokens = 20, .ignore_eos = true};
  const auto session = engine.session();
  const GenerateResult whole = session->generate(prompt_of(10), options);
  const std::function<void()> others[] = {[&] { session->generate(prompt_of(12), options); },
                                          [&] { session->start(prompt_of(12), options); }, [&] { session->reset(); },
                                          [&] { session->release(); }};
  for (const auto& other : others) {
    Generation old = session->start(prompt_of(10), options);
    EXPECT_TRUE(old.step());
    other();
    EXPECT_THROW(old.step(), Error);
    EXPECT_EQ(old.result().finish_reason, "interrupted");
    EXPECT_EQ(session->generate(prompt_of(10), options).logits_hash, whole.logits_hash);
  }
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST(Session, BadInputIsOneClearError) {
  Engine engine({.model = kTiny, .context = 64});
  const auto session = engine.session();
  EXPECT_NE(message_of([&] { session->generate(prompt_of(65)); }).find("at most 64 tokens (--ctx), found 65"),
            std::string::npos);
  EXPECT_NE(message_of([&] { session->generate({}); }).find("at least one token"), std::string::npos);
  EXPECT_NE(message_of([&] { session->generate(std::vector<int32_t>{259}); }).find("0 to 258, found 259"),
            std::string::npos);
  EXPECT_NE(message_of([&] { session->generate(std::vector<int32_t>{-1}); }).find("found -1"), std::string::npos);
  EXPECT_NE(message_of([&] { Engine({.model = kTiny, .isa = "neon512"}); }).find("neon512"), std::string::npos);
  EXPECT_NE(message_of([&] { Engine({.model = kTiny, .kv = "f8"}); }).find("kv: expected one of f32, f16, bf16"),
            std::string::npos);
  EXPECT_NE(message_of([&] { Engine({.model = "/nonexistent.gguf"}); }).find("/nonexistent.gguf"), std::string::npos);
  EXPECT_NE(message_of([&] { engine.session({.method = "popp"}); }).find("popp"), std::string::npos);
  EXPECT_NE(message_of([&] {
              engine.session({.method = "pop", .ratio = 0.2, .min_tokens = 4});
            }).find("--min-tokens, --few-tokens: expected a mixture of experts"),
            std::string::npos);
  const ScoreRequest split_too_long{.ids = prompt_of(5), .split = 6};
  EXPECT_NE(message_of([&] { session->score({&split_too_long, 1}); }).find("split"), std::string::npos);
  // An error leaves the session usable.
  EXPECT_EQ(session->generate(prompt_of(10), {.max_tokens = 5, .ignore_eos = true}).ids.size(), 5u);
}

// Asked for the k-th time it says yes: some k fall between passes, most into the middle of one.
TEST(Session, InterruptedWithinAPassItStartsAfresh) {
  Engine engine({.model = kTiny, .context = 64, .prefill_chunk = 16});
  const GenerateOptions plain{.max_tokens = 4, .ignore_eos = true};
  for (const char* method : {"dense", "pop", "pop+"}) {
    const std::string expected = engine.session({.method = method})->generate(prompt_of(40), plain).logits_hash;
    const auto session = engine.session({.method = method});
    for (const int stop_at : {1, 2, 7, 20, 33, 40, 45, 60}) {
      int asked = 0;
      GenerateOptions options = plain;
      options.hooks.interrupted = [&] { return ++asked == stop_at; };
      EXPECT_EQ(session->generate(prompt_of(40), options).finish_reason, "interrupted") << stop_at;
      EXPECT_EQ(asked, stop_at) << "it went on after it was told to stop";
      EXPECT_EQ(session->generate(prompt_of(40), plain).logits_hash, expected) << method << " " << stop_at;
    }
  }
}

TEST(Session, AnInterruptedScoreGivesWhatThereIs) {
  Engine engine({.model = kTiny, .context = 64});
  const std::vector<ScoreRequest> requests = {{prompt_of(20), 8}, {prompt_of(30), 8}};
  const auto whole = engine.session()->score(requests);
  EXPECT_EQ(whole[1].finish_reason, "complete");
  int passes = 0;
  RunHooks hooks;
  hooks.on_progress = [&](int64_t, int64_t) { ++passes; };
  hooks.interrupted = [&] { return passes == 3; };  // the first request's two passes, the second's prefill
  const auto part = engine.session()->score(requests, 1, hooks);
  ASSERT_EQ(part.size(), 2u);
  EXPECT_EQ(part[0].finish_reason, "complete");
  EXPECT_EQ(part[0].logits_hash, whole[0].logits_hash);
  EXPECT_EQ(part[1].finish_reason, "interrupted");
  EXPECT_EQ(part[1].logprobs[8], whole[1].logprobs[8]);
  EXPECT_TRUE(std::isnan(part[1].logprobs[20]));
  EXPECT_EQ(part[1].scored, 1);
  EXPECT_TRUE(part[1].top.empty());
}

TEST(Session, LogprobsAreTheLogSoftmaxOfTheLogits) {
  Engine engine({.model = kTiny, .context = 64});
  const ScoreRequest request{.ids = prompt_of(20), .split = 12};
  std::vector<double> expected(20, NAN);
  RunHooks hooks;
  hooks.on_logits = [&](int, int position, std::span<const float> logits) {
    double sum = 0;
    for (const float x : logits) sum += std::exp(double(x));
    if (position + 1 < 20)
      expected[size_t(position) + 1] = logits[size_t(request.ids[size_t(position) + 1])] - std::log(sum);
  };
  const ScoreResult r = engine.session()->score({&request, 1}, 1, hooks).at(0);
  EXPECT_TRUE(std::isnan(r.logprobs[0]));
  double nll = 0, nll_decode = 0;
  for (size_t i = 1; i < 20; ++i) {
    EXPECT_NEAR(r.logprobs[i], expected[i], 1e-5);
    if (i >= 12) nll -= r.logprobs[i];
    if (i > 12) nll_decode -= r.logprobs[i];
  }
  EXPECT_DOUBLE_EQ(r.nll_sum, nll);
  EXPECT_DOUBLE_EQ(r.nll_decode_sum, nll_decode);
  EXPECT_EQ(r.scored, 8);
  EXPECT_EQ(r.scored_decode, 7);
  EXPECT_EQ(r.top.size(), 5u);
}

TEST(Profile, PartsAddUpToTheWallTime) {
  Engine engine({.model = kTiny, .threads = 2, .context = 64});
  for (const char* method : {"dense", "pop"}) {
    struct Event {
      std::string part;
      double begin, seconds;
    };
    std::map<int, std::vector<Event>> events;
    GenerateOptions options{.max_tokens = 20, .ignore_eos = true};
    options.hooks.profile = true;
    options.hooks.on_trace = [&](int thread, const char* part, double begin, double seconds, int) {
      events[thread].push_back({part, begin, seconds});
    };
    const auto session = engine.session({.method = method});
    const auto start = std::chrono::steady_clock::now();
    const GenerateResult run = session->generate(prompt_of(10), options);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    double seconds = 0;
    uint64_t bytes = 0;
    for (const ProfilePart& part : run.profile) seconds += part.prefill_s + part.decode_s, bytes += part.bytes;
    // The parts lie inside what was measured here, and around what the session measured.
    EXPECT_LE(seconds, wall.count() + 1e-6);
    EXPECT_GE(seconds, run.timing.prefill_s + run.timing.partition_s + run.timing.decode_s - 1e-6);
    EXPECT_NEAR(double(bytes), run.reads.weight_bytes_per_token * double(run.reads.tokens), 1);

    double end = 0;  // the caller's events follow each other without a gap
    for (const Event& e : events.at(0)) {
      if (e.part == "sync") continue;
      EXPECT_NEAR(e.begin, end, 1e-9);
      end = e.begin + e.seconds;
    }
    EXPECT_NEAR(end, seconds, 1e-6);
    for (const Event& e : events[1]) EXPECT_LE(e.begin + e.seconds, end);
  }
  EXPECT_TRUE(engine.session()->generate(prompt_of(10), {.max_tokens = 2}).profile.empty());
}

}  // namespace
}  // namespace pop
