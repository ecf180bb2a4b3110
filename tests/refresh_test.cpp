// --refresh: a long answer goes on as if its tokens so far had been prompt.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/bits.h"
#include "tests/isas.h"

namespace pop {
namespace {

// --refresh: what follows is what follows a prompt that long, in every bit, whatever was decoded before.
TEST(Refresh, GoesOnAsAfterAPromptOfAllThat) {
  const std::vector<int32_t> ids = ids_of(7, 60);
  for (const std::string& isa : test::isas()) {
    Engine engine({.model = kSource, .threads = 1, .isa = isa, .context = 128, .methods = {"pop", "pop+"}});
    const auto logprobs = [&](const PruneSettings& s, int split) {
      const ScoreRequest request{.ids = ids, .split = split};
      return engine.session(s)->score({&request, 1}).front().logprobs;
    };
    for (const char* method : {"pop", "fixed", "full", "griffin", "pop+"}) {
      PruneSettings s{.method = method, .ratio = 0.4};
      const auto never = logprobs(s, 20), after30 = logprobs(s, 30), after40 = logprobs(s, 40);
      s.refresh = 10;
      const auto refreshed = logprobs(s, 20);
      const auto part = [](const std::vector<double>& all, int from) {  // that ten tokens of decode give
        return std::vector<double>(all.begin() + from + 1, all.begin() + from + 11);
      };
      EXPECT_EQ(part(refreshed, 20), part(never, 20)) << isa << method;
      EXPECT_EQ(part(refreshed, 30), part(after30, 30)) << isa << method;
      EXPECT_EQ(part(refreshed, 40), part(after40, 40)) << isa << method;
      EXPECT_NE(part(refreshed, 30), part(never, 30)) << isa << method;
      if (std::string(method) != "pop+") {
        const PruneSettings once{.method = method, .ffn_sparsity = 0.25};
        const PruneSettings anew{.method = method, .ffn_sparsity = 0.25, .refresh = 10};
        EXPECT_NE(logprobs(anew, 20), logprobs(once, 20)) << isa << method;
      }
      const ScoreRequest request{.ids = ids, .split = 20};
      EXPECT_EQ(hash_of(engine, {.method = method, .ratio = 0, .refresh = 10}, {&request, 1}),
                hash_of(engine, {}, {&request, 1}))
          << isa << method;
    }
  }
}

// The last of them alone; in a batch, cut otherwise, by more threads, packed or not, generated or teacher-forced.
TEST(Refresh, DependsOnNothingElse) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<ScoreRequest> requests;
  for (int i = 0; i < 5; ++i) {
    prompts.push_back(ids_of(i, 9 + 6 * i));
    requests.push_back({.ids = ids_of(i, 40 + 3 * i), .split = 9 + 6 * i});
  }
  for (const std::string& isa : test::isas()) {
    const EngineOptions options{.model = kSource, .threads = 1, .isa = isa, .context = 128, .methods = {"pop", "pop+"}};
    EngineOptions otherwise = options;
    otherwise.threads = 2, otherwise.prefill_chunk = 3;
    Engine engine(options), other(otherwise);
    for (const char* method : {"pop", "pop+"}) {
      PruneSettings s{.method = method, .ratio = 0.4, .refresh = 8, .refresh_last = 5};
      std::string alone;
      for (const ScoreRequest& request : requests) alone += hash_of(engine, s, {&request, 1});
      EXPECT_EQ(hash_of(other, s, requests, 4), alone) << isa << method;
      const BatchResult batch = engine.session(s)->generate_batch(prompts, 30);
      for (size_t i = 0; i < prompts.size(); ++i) {
        s.pack = i % 2 == 0;
        const GenerateResult r = other.session(s)->generate(prompts[i], {.max_tokens = 30, .ignore_eos = true});
        EXPECT_EQ(r.ids, batch.answers[i].ids) << isa << method << i;
        EXPECT_EQ(r.timing.refreshed_tokens, 15);  // after 8, 16 and 24 of 29 tokens decoded
        ScoreRequest forced{.ids = prompts[i], .split = int(prompts[i].size()), .score_from = int(prompts[i].size())};
        forced.ids.insert(forced.ids.end(), r.ids.begin(), r.ids.end() - 1);
        EXPECT_EQ(hash_of(engine, s, {&forced, 1}), r.logits_hash + " ") << isa << method << i;
      }
    }
  }
}

TEST(Refresh, TheNextTurnOfAChatIsAsIfRunAlone) {
  Engine engine({.model = kSource, .threads = 1, .context = 128});
  const PruneSettings s{.method = "pop", .ratio = 0.4, .refresh = 8};
  const auto session = engine.session(s);
  const GenerateOptions answer{.max_tokens = 20, .ignore_eos = true};
  std::vector<int32_t> turn = ids_of(5, 30);
  const GenerateResult first = session->generate(turn, answer);
  turn.insert(turn.end(), first.ids.begin(), first.ids.end());
  turn.push_back(7);
  EXPECT_EQ(session->generate(turn, answer).logits_hash, engine.session(s)->generate(turn, answer).logits_hash);
}

TEST(Refresh, WhatCannotBeIsOneClearError) {
  Engine engine({.model = kSource, .threads = 1, .context = 128});
  const auto error_of = [&](const PruneSettings& s) -> std::string {
    try {
      engine.session(s);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of({.method = "pop", .refresh = 0}), "--refresh: expected 1 or more tokens, found 0");
  EXPECT_EQ(error_of({.method = "pop", .refresh = 8, .refresh_last = 9}),
            "--refresh-last: expected 1 to 8 tokens (--refresh), found 9");
  EXPECT_EQ(error_of({.method = "pop", .refresh_last = 9}), "--refresh-last: expected --refresh beside it");
  EXPECT_EQ(error_of({.method = "magnitude", .refresh = 9}), "--refresh: does not apply to method magnitude");
  EXPECT_NE(error_of({.method = "pop", .partition = "shared", .refresh = 9}), "");
  EXPECT_NE(error_of({.method = "pop", .metric = "gate-up", .prefill = "pruned", .refresh = 9}), "");
}

}  // namespace
}  // namespace pop
