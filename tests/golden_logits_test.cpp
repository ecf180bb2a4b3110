// Logits and greedy ids against Hugging Face transformers (tests/goldens, made by python/make_goldens.py).
#include <cmath>
#include <filesystem>

#include "base/sanitizer.h"
#include "base/temporary_folder.h"
#include "engine/pop.h"
#include "tests/golden.h"
#include "tests/isas.h"

namespace pop {
namespace {

using test::Golden;

// Of float32 sums in another order: tiny models, and thirty layers with logits up to 40.
constexpr float kTinyTolerance = 1e-4f, kTolerance = 2e-3f, kGreedyLead = 4e-3f;

// LongRoPE: one model runs within its original context, which is the default, the other beyond.
int context_of(std::string_view name) { return name == "tiny-phi3-long" ? 512 : 0; }

class GoldenLogits : public testing::TestWithParam<const char*> {};

void compare_logits(const Golden& golden, const std::string& prompt, Engine& engine, float tolerance) {
  const auto ids = golden.array<int32_t>(prompt + "/ids");
  const auto sample = golden.array<int32_t>("sample");
  const auto sampled = golden.array<float>(prompt + "/sampled");
  const auto top = golden.array<float>(prompt + "/top"), log_sums = golden.array<float>(prompt + "/logsumexp");
  const auto top_ids = golden.array<int32_t>(prompt + "/top_ids");
  RunHooks hooks;
  float worst = 0;
  size_t positions = 0;
  hooks.on_logits = [&](int, int position, std::span<const float> logits) {
    const auto t = size_t(position);
    ++positions;
    for (size_t i = 0; i < sample.size(); ++i)
      worst = std::max(worst, std::fabs(logits[size_t(sample[i])] - sampled[t * sample.size() + i]));
    for (size_t i = 0; i < 8; ++i)
      worst = std::max(worst, std::fabs(logits[size_t(top_ids[t * 8 + i])] - top[t * 8 + i]));
    double sum = 0;
    for (const float x : logits) sum += std::exp(double(x) - log_sums[t]);
    worst = std::max(worst, float(std::fabs(std::log(sum))));
  };
  const ScoreRequest request{.ids = ids};
  engine.session()->score({&request, 1}, 1, hooks);
  EXPECT_EQ(positions, ids.size());
  EXPECT_LE(worst, tolerance) << prompt;
  ::testing::Test::RecordProperty(prompt + "_max_abs_error", std::to_string(worst));
}

void compare_greedy(const Golden& golden, const std::string& prompt, Engine& engine) {
  const auto ids = golden.array<int32_t>(prompt + "/ids"), greedy = golden.array<int32_t>(prompt + "/greedy");
  const auto lead = golden.array<float>(prompt + "/greedy_lead");
  GenerateOptions options{.max_tokens = int(greedy.size()), .ignore_eos = true};
  const GenerateResult result = engine.session()->generate(ids, options);
  ASSERT_EQ(result.ids.size(), greedy.size());
  for (size_t i = 0; i < greedy.size(); ++i) {
    if (lead[i] < kGreedyLead) break;  // a coin toss: the texts may part here
    ASSERT_EQ(result.ids[i], greedy[i]) << prompt << " step " << i;
  }
}

TEST_P(GoldenLogits, EqualTransformers) {
  const Golden golden(GetParam());
  const std::string path = test::model_path(golden);
  POP_SKIP_WITHOUT(path);
  for (const std::string& isa : test::isas())
    for (const char* layout : {"auto", "rows", "columns"}) {
      if (path == test::kDefaultModel && std::string(layout) != "auto") continue;
      if (path == test::kDefaultModel && isa == "scalar" && test::isas().size() > 1)
        continue;  // minutes; tiny-q4_1 stands for it
      SCOPED_TRACE(isa + " " + layout);
      Engine engine({.model = path,
                     .threads = path == test::kDefaultModel ? 0 : 1,
                     .isa = isa,
                     .activations = "f32",
                     .kv = "f32",
                     .context = context_of(GetParam()),
                     .prefill_chunk = 17,
                     .layout = layout});
      for (const std::string prompt : golden.meta().at("prompts")) {
        compare_logits(golden, prompt, engine, path == test::kDefaultModel ? kTolerance : kTinyTolerance);
        if (path == test::kDefaultModel && kAddressSanitizer) break;  // one of them: minutes otherwise
        compare_greedy(golden, prompt, engine);
      }
    }
}

// The same models as transformers saves them, with the configuration that each of its versions writes.
class GoldenFolders : public testing::TestWithParam<const char*> {};

TEST_P(GoldenFolders, EqualTransformers) {
  const std::string name = GetParam(), folder = "tests/goldens/hf/" + name;
  const Golden golden(name);
  const test::TemporaryFolder version4;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file == "config.json") continue;
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                    version4.path() + "/" + (file == "config-4.json" ? "config.json" : file));
  }
  std::string hashes;
  for (const std::string& path : {folder, version4.path() + "/", "tests/goldens/" + name + ".gguf"}) {
    SCOPED_TRACE(path);
    Engine engine({.model = path,
                   .threads = 1,
                   .activations = "f32",
                   .kv = "f32",
                   .context = context_of(name),
                   .prefill_chunk = 17});
    for (const std::string prompt : golden.meta().at("prompts")) {
      compare_logits(golden, prompt, engine, kTinyTolerance);
      compare_greedy(golden, prompt, engine);
    }
    const auto ids = golden.array<int32_t>("random/ids");
    hashes += engine.session()->generate(ids, {.max_tokens = 8, .ignore_eos = true}).logits_hash;
  }
  EXPECT_EQ(hashes.substr(0, 16), hashes.substr(16, 16));
  if (name.starts_with("tiny-qwen") || name.starts_with("tiny-gemma") || name.starts_with("tiny-phi3") ||
      name.starts_with("tiny-olmoe")) {  // no rows are permuted: the same weights in the same order
    EXPECT_EQ(hashes.substr(0, 16), hashes.substr(32, 16));
  }
}

TEST(GoldenFolder, WeightCacheGivesTheSameBits) {
  const test::TemporaryFolder cache;
  std::string hashes;
  for (const bool again : {false, true}) {
    Engine engine({.model = "tests/goldens/hf/tiny-qwen3", .threads = 1, .cache = cache.path()});
    EXPECT_EQ(engine.info().from_cache, again);
    hashes +=
        engine.session()->generate(std::vector<int32_t>{1, 2, 3}, {.max_tokens = 8, .ignore_eos = true}).logits_hash;
  }
  EXPECT_EQ(hashes.substr(0, 16), hashes.substr(16));
}

const auto kName = [](const auto& param) {
  std::string name = param.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
};

INSTANTIATE_TEST_SUITE_P(Models, GoldenFolders,
                         testing::Values("tiny-llama3", "tiny-qwen2", "tiny-qwen2-yarn", "tiny-qwen3", "tiny-mistral",
                                         "tiny-qwen2moe", "tiny-qwen3moe", "tiny-mixtral", "tiny-gemma2", "tiny-gemma3",
                                         "tiny-phi3", "tiny-phi3-long", "tiny-olmoe", "tiny-olmoe-clip"),
                         kName);

INSTANTIATE_TEST_SUITE_P(Models, GoldenLogits,
                         testing::Values("tiny-tied", "tiny-linear", "tiny-llama3", "tiny-yarn", "tiny-q4_1",
                                         "tiny-qwen2", "tiny-qwen2-yarn", "tiny-qwen3", "tiny-mistral", "tiny-qwen2moe",
                                         "tiny-qwen3moe", "tiny-mixtral", "tiny-gemma2", "tiny-gemma3", "tiny-phi3",
                                         "tiny-phi3-long", "tiny-olmoe", "tiny-olmoe-clip", "smollm2-135m-q4_1"),
                         kName);

}  // namespace
}  // namespace pop
