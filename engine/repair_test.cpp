// Method tyr from the search to the answer, on a small model.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "engine/pop.h"
#include "engine/top_logits.h"

namespace pop {
namespace {

TEST(TopLogits, WorkedExample) {  // by hand: dense 2 1 0, other 1 1 5, over the dense model's two largest
  const std::vector<float> dense = {2, 1, 0}, other = {1, 1, 5};
  EXPECT_NEAR(top_divergence(top_logits(dense, 2), other), 0.110944, 1e-6);
  EXPECT_NEAR(top_divergence(top_logits(dense, 100), other), 2.843458, 1e-6);
  EXPECT_EQ(top_logits(dense, 2).ids, (std::vector<int32_t>{0, 1}));
  EXPECT_NEAR(top_divergence(top_logits(dense, 3), dense), 0, 1e-7);
}

constexpr const char* kTiny = "tests/goldens/tiny-q4_1.gguf";

std::vector<std::vector<int32_t>> texts(int count, int length) {
  std::vector<std::vector<int32_t>> all(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    for (int t = 0; t < length; ++t) all[size_t(i)].push_back((i * 131 + t * t * 7 + t) % 250);
  return all;
}

TEST(RepairedModel, LosesWhatWasAskedForAndLittleElse) {
  Engine engine({.model = kTiny, .threads = 2, .context = 256});
  const CalibrationOptions options{
      .repair =
          RepairOptions{.ratio = 0.3, .generations = 4, .offspring = 6, .tokens = {60, 200}, .survivors = {3, 1}}};
  const auto windows = texts(12, 50);
  const CalibrationResult made = engine.calibrate(windows, options);
  // Exactly the share of channels that --ratio gives wanda_sp, over all layers.
  const auto plan = engine.session({.method = "magnitude", .ratio = 0.3})->plan();
  const int wanted = int(std::lround(plan.ffn_sparsity * engine.info().f)) * engine.info().layers;
  EXPECT_EQ(std::accumulate(made.removed.begin(), made.removed.end(), 0), wanted);
  EXPECT_EQ(made.generations.size(), 8u);

  const test::TemporaryFolder folder;
  const std::string file = folder.write("tiny.tyr", made.bytes);
  // On its own texts, how far log-probabilities are from the dense model's.
  const auto distance = [&](const PruneSettings& settings) {
    std::vector<ScoreRequest> requests;
    for (const auto& ids : windows) requests.push_back({.ids = ids, .split = 1});
    const auto dense = engine.session()->score(requests), pruned = engine.session(settings)->score(requests);
    double sum = 0;
    for (size_t i = 0; i < dense.size(); ++i)
      for (size_t t = 1; t < dense[i].logprobs.size(); ++t)
        sum += std::pow(double(dense[i].logprobs[t]) - double(pruned[i].logprobs[t]), 2);
    return sum;
  };
  EXPECT_LT(distance({.method = "tyr", .prefill = "pruned", .calibration = file}),
            0.8 * distance({.method = "wanda_sp", .ratio = 0.3, .prefill = "pruned", .calibration = file}));
}

TEST(RepairedModel, ErrorsNameWhatIsWrong) {
  Engine engine({.model = kTiny, .threads = 1, .context = 256}),
      experts({.model = "tests/goldens/tiny-qwen3moe.gguf", .threads = 1}),
      normed({.model = "tests/goldens/tiny-gemma2.gguf", .threads = 1});
  const auto error_of = [&](Engine& of, const RepairOptions& options) -> std::string {
    try {
      of.calibrate(texts(1, 20), {.repair = options});
    } catch (const Exception& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error_of(experts, {}).find("does not run on mixtures of experts"), std::string::npos);
  EXPECT_NE(error_of(normed, {}).find("a norm after the FFN"), std::string::npos);
  EXPECT_NE(error_of(engine, {.ratio = 0.99}).find("method tyr"), std::string::npos);
  EXPECT_NE(error_of(engine, {.offspring = 0}).find("1 or more children"), std::string::npos);
  EXPECT_NE(error_of(engine, {.tokens = {5}}).find("as many survivors as stages"), std::string::npos);
  EXPECT_EQ(error_of(engine, {.iterations = 0}), "");  // every layer loses the same
  const test::TemporaryFolder folder;
  const CalibrationResult made = engine.calibrate(texts(2, 20));
  const std::string file = folder.write("plain.calib", made.bytes);
  try {
    engine.session({.method = "tyr", .calibration = file});
    FAIL();
  } catch (const Exception& e) {
    EXPECT_NE(std::string(e.what()).find("make it with pop calibrate --tyr"), std::string::npos);
  }
}

}  // namespace
}  // namespace pop
