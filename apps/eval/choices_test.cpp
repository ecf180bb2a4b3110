// Where contexts end, which choice wins, windows of a text: against lm-eval's rule (python/make_eval_goldens.py) and by hand.
#include "apps/eval/choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "apps/eval/corpus.h"
#include "apps/eval/importance_trace.h"

namespace pop::app {
namespace {

const char* const kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

TEST(Decide, TheFirstOfEqualsWins) {
  EXPECT_EQ(decide({-2, -1, -1}, {}).choice, 1u);
  EXPECT_EQ(decide({-1, -1, -1}, {}).choice, 0u);
  // Per character: -2/4, -1/1, -3/6
  const Decision d = decide({-2, -1, -3}, {4, 1, 6});
  EXPECT_EQ(d.choice, 1u);
  EXPECT_EQ(d.choice_norm, 0u);
}

TEST(SplitPair, IsThatOfLmEval) {
  if (!std::filesystem::exists(kDefaultModel)) GTEST_SKIP() << kDefaultModel << " is absent";
  const Engine engine({.model = kDefaultModel, .text_only = true});
  EXPECT_EQ(prefix_token(engine.info()), 1);
  const Json golden = Json::parse(std::ifstream("tests/goldens/eval-tiny.json"));
  ASSERT_GT(golden["pairs"].size(), 10u);
  for (const Json& pair : golden["pairs"]) {
    const TokenPair found = split_pair(engine, {pair["context"], pair["continuation"]}, 1, "item");
    EXPECT_EQ(Json(found.context), pair["context_ids"]) << pair;
    EXPECT_EQ(Json(found.continuation), pair["continuation_ids"]) << pair;
  }
  // An empty context is the prefix token, which is not doubled.
  const Engine always({.model = kDefaultModel, .bos = "always", .text_only = true});
  EXPECT_EQ(split_pair(always, {"", " It"}, 1, "item").context, (std::vector<int32_t>{1}));
  // "the" is one token, so nothing is left of the continuation.
  EXPECT_THROW(split_pair(engine, {"th", "e"}, 1, "item"), std::runtime_error);
}

std::vector<int> positions(const ForcedText& text) {
  std::vector<int> out;
  for (const Query& query : text.queries) out.push_back(query.position);
  return out;
}

TEST(Windows, LlamaScoresTheSecondHalf) {
  const std::vector<int32_t> ids = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};  // 13: the last is left over
  const auto windows = llama_windows(ids, {1}, 6, true);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[1].ids, (std::vector<int32_t>{1, 17, 18, 19, 20}));
  EXPECT_EQ(positions(windows[1]), (std::vector<int>{3, 4}));  // n - 1 - n / 2
  EXPECT_EQ(windows[1].queries[1].target, 21);
  EXPECT_EQ(windows[1].split, 3);
  EXPECT_EQ(llama_windows(ids, {}, 6, false)[0].ids.front(), 10);
  EXPECT_EQ(llama_windows(ids, {}, 6, false)[0].split, -1);
}

TEST(Windows, ChunksScoreAllButTheFirst) {
  const auto windows = chunk_windows({10, 11, 12, 13, 14, 15, 16}, 3);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[1].ids, (std::vector<int32_t>{13, 14}));
  EXPECT_EQ(windows[1].queries[0].target, 14);
  EXPECT_EQ(windows[1].queries[1].target, 15);
}

// lm-eval 0.4.13: list(map(make_disjoint_window, get_rolling_token_windows(list(range(10, 20)), 1, 4, 1))) gives
// ([1], [10..13]), ([13], [14..17]), ([15, 16, 17], [18, 19]); inputs are context + continuation[:-1].
TEST(Windows, RollingScoresEveryTokenOnce) {
  const auto windows = rolling_windows({10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, 1, 4);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].ids, (std::vector<int32_t>{1, 10, 11, 12}));
  EXPECT_EQ(windows[1].ids, (std::vector<int32_t>{13, 14, 15, 16}));
  EXPECT_EQ(windows[2].ids, (std::vector<int32_t>{15, 16, 17, 18}));
  EXPECT_EQ(positions(windows[2]), (std::vector<int>{2, 3}));
  EXPECT_EQ(windows[2].queries[1].target, 19);
  EXPECT_TRUE(rolling_windows({}, 1, 4).empty());
  EXPECT_EQ(rolling_windows({5}, 1, 4)[0].ids, (std::vector<int32_t>{1}));
}

// len(re.split(r"\s+", text))
TEST(Words, AsPythonSplitsThem) {
  EXPECT_EQ(count_words("one two"), 2u);
  EXPECT_EQ(count_words(" one  two\n"), 4u);
  EXPECT_EQ(count_words(""), 1u);
  EXPECT_EQ(count_words("a\xc2\xa0\xe3\x80\x80"
                        "b"),
            2u);
  EXPECT_EQ(count_words("caf\xc3\xa9"), 1u);
}

TEST(Ranks, MovesByHand) {
  const std::vector<float> a = {4, 3, 2, 1}, b = {1, 4, 3, 2}, equal = {1, 1, 1, 1};
  EXPECT_EQ(ranks_of(a), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(ranks_of(b), (std::vector<int32_t>{3, 0, 1, 2}));
  EXPECT_EQ(ranks_of(equal), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(rank_change(ranks_of(a), ranks_of(b)), (3 + 1 + 1 + 1) / 16.0);
  EXPECT_DOUBLE_EQ(top_half_overlap(ranks_of(a), ranks_of(b)), 0.5);  // {0, 1} and {1, 2}
  EXPECT_DOUBLE_EQ(top_half_overlap(ranks_of(a), ranks_of(a)), 1.0);
}

}  // namespace
}  // namespace pop::app
