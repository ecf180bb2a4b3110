// What `pop bench` rests on and no clock decides: random weights, files of them, the rule for a roof that moves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "apps/bench/random_blocks.h"
#include "apps/bench/rows.h"
#include "apps/bench/steady.h"
#include "apps/bench/synthetic.h"
#include "apps/pop/command.h"
#include "formats/gguf_writer.h"
#include "tensor/convert_rows.h"

namespace pop::app {
namespace {

class File {
 public:
  explicit File(const std::string& name) : path_((std::filesystem::temp_directory_path() / name).string()) {}
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(RandomRow, HasTheAskedDeviationAroundZeroInEveryType) {
  constexpr int kCols = 1 << 16;
  for (const DType type : synthetic_types())
    for (const double deviation : {0.0156, 0.0417}) {
      std::vector<uint8_t> row(row_bytes(type, kCols));
      random_row(type, kCols, deviation, 7, row);
      std::vector<float> values(kCols);
      dequantize(type, row.data(), values.data(), kCols);
      double sum = 0, squares = 0;
      for (const float v : values) sum += double(v), squares += double(v) * double(v);
      EXPECT_NEAR(std::sqrt(squares / kCols), deviation, 0.08 * deviation) << traits(type).name;
      EXPECT_NEAR(sum / kCols, 0, 0.15 * deviation) << traits(type).name;
    }
}

TEST(RandomRow, FollowsItsSeed) {
  std::vector<uint8_t> a(row_bytes(DType::Q4_K, 512)), b = a, c = a;
  random_row(DType::Q4_K, 512, 0.02, 1, a);
  random_row(DType::Q4_K, 512, 0.02, 1, b);
  random_row(DType::Q4_K, 512, 0.02, 2, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(Synthetic, RowsThatBlocksDoNotDivideGetAnotherType) {
  EXPECT_EQ(fitting_type(DType::Q4_K, 4096), DType::Q4_K);
  EXPECT_EQ(fitting_type(DType::Q4_K, 576), DType::Q5_0);  // as llama.cpp's quantiser does
  EXPECT_EQ(fitting_type(DType::Q6_K, 576), DType::Q8_0);
  EXPECT_THROW(shape_named("llama-9"), UsageError);
  EXPECT_THROW(synthetic_type("q9"), UsageError);
  EXPECT_EQ(synthetic_type("Q4_k"), DType::Q4_K);
}

// A file of every type loads, gives finite logits, and is read byte for byte as the formulas plan it.
TEST(Synthetic, FilesRunAndReadWhatIsPlanned) {
  for (const DType type : synthetic_types()) {
    SyntheticModel model{shape_named("smollm2-135m"), type, 1, 3, SelectionPattern::Clustered};
    const File file("pop-bench-test.gguf");
    write_synthetic(model, file.path());
    EngineOptions options;
    options.model = file.path();
    options.threads = 2;
    options.context = 64;
    Engine engine(options);
    EXPECT_EQ(engine.info().layers, 1);
    EXPECT_EQ(engine.info().vocab, 49152);
    EXPECT_EQ(engine.decode(engine.encode("Some text!")), "Some text!");
    const std::vector<int32_t> prompt = {5, 1000, 40000, 77, 3};
    GenerateOptions generate;
    generate.max_tokens = 3;
    bool finite = true;
    generate.hooks.on_logits = [&](int, int, std::span<const float> row) {
      for (const float v : row) finite &= std::isfinite(v) && std::fabs(v) < 1e3f;
    };
    const auto dense = engine.session()->generate(prompt, generate);
    EXPECT_TRUE(finite) << traits(type).name;
    const auto session = engine.session({.method = "pop", .ratio = 0.3});
    const auto pruned = session->generate(prompt, generate);
    const PrunePlanInfo& plan = session->plan();
    EXPECT_NEAR(dense.reads.weight_bytes_per_token, plan.dense_bytes, 0.001 * plan.dense_bytes) << traits(type).name;
    EXPECT_LT(plan.planned_bytes_without_candidates, plan.planned_bytes);
    EXPECT_LT(plan.planned_bytes, plan.dense_bytes);
    // Rows in other block sizes, lines of 64 bytes: what is read may exceed the plan a little, and nothing undercuts it.
    EXPECT_GT(pruned.reads.weight_bytes_per_token, 0.995 * plan.planned_bytes) << traits(type).name;
  }
}

// Two small mixtures of experts, written as the published ones are: one with head norms, one with biases and a shared expert.
constexpr Shape kMixtures[] = {
    {"mixture", 2, 256, 512, 8, 2, 64, 1000, 512, false, 1e6, {32, 4, 256, 0}, "qwen3moe", false, true},
    {"shared", 2, 256, 512, 4, 4, 64, 1000, 512, false, 1e6, {12, 3, 256, 512}, "qwen2moe", true, false}};

std::vector<int32_t> any_ids(int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * 7919 + 13) % 1000);
  return ids;
}

// Of every type: what is counted is what prune/byte_ideal.h plans, dense and pruned, of a ratio of either kind.
TEST(Synthetic, MixturesOfExpertsReadWhatIsPlanned) {
  for (const Shape& shape : kMixtures)
    for (const DType type : synthetic_types()) {
      SCOPED_TRACE(shape.name + std::string(traits(type).name));
      const File file("pop-bench-test-experts.gguf");
      write_synthetic({shape, type, 0, 3}, file.path());
      Engine engine({.model = file.path(), .threads = 2, .context = 64});
      EXPECT_EQ(engine.info().experts, shape.experts.count);
      EXPECT_EQ(engine.info().shared_f, shape.experts.shared_f);
      GenerateOptions generate{.max_tokens = 6, .ignore_eos = true};
      bool finite = true;
      generate.hooks.on_logits = [&](int, int, std::span<const float> row) {
        for (const float v : row) finite &= std::isfinite(v) && std::fabs(v) < 1e3f;
      };
      const auto reads = [&](const PruneSettings& settings, double& planned) {
        const auto session = engine.session(settings);
        planned = session->plan().planned_bytes;
        return session->generate(any_ids(20), generate).reads.weight_bytes_per_token;
      };
      double planned = 0;
      const double dense = reads({}, planned);
      EXPECT_TRUE(finite);
      EXPECT_NEAR(dense, planned, 1e-6 * planned);
      for (const char* ratio_of : {"blocks", "active"}) {
        const double pruned = reads({.method = "pop", .ratio = 0.3, .ratio_of = ratio_of}, planned);
        EXPECT_LT(planned, dense);
        // Columns are not whole cache lines: what is read may exceed the plan, and nothing undercuts it.
        EXPECT_GT(pruned, 0.9999 * planned);
        EXPECT_LT(pruned, 1.1 * planned);
      }
    }
}

// Which experts the tokens of an answer go through, by layer and token.
std::map<std::pair<int, int>, std::set<int>> experts_of(const Shape& shape, SelectionPattern pattern) {
  const File file("pop-bench-test-routing.gguf");
  write_synthetic({shape, DType::Q8_0, 0, 3, pattern}, file.path());
  Engine engine({.model = file.path(), .context = 128});
  struct : SelectionObserver {
    std::map<std::pair<int, int>, std::set<int>> met;
    void on_partition(int, int, int, std::span<const int32_t>, std::span<const int32_t>, std::span<const int32_t>,
                      std::span<const float>) override {}
    void on_threshold(int, int, const char*, double, float, uint64_t) override {}
    void on_chosen(int, int token, int layer, int expert, const char* site, bool, std::span<const int32_t>) override {
      if (std::string_view(site) == "gate_up" && expert >= 0) met[{layer, token}].insert(expert);
    }
  } observer;
  RunHooks hooks;
  hooks.observer = &observer;
  ScoreRequest request{.ids = any_ids(100), .split = 20};
  engine.session({.method = "full", .ratio = 0.1})->score({&request, 1}, 1, hooks);
  for (auto& [place, experts] : observer.met) experts.erase(shape.experts.count);  // the shared one
  return observer.met;
}

// Of random weights each token must go elsewhere, and some token everywhere: else a benchmark would read the same few experts again
// and again, or a model with a favourite. By chance two tokens share k / E of their experts, 0.125 and 0.25.
TEST(Synthetic, TheRouterOfAMixtureSendsEveryTokenElsewhere) {
  for (const SelectionPattern pattern : {SelectionPattern::Random, SelectionPattern::Clustered})
    for (const Shape& shape : kMixtures) {
      SCOPED_TRACE(shape.name);
      const auto met = experts_of(shape, pattern);
      const size_t used = size_t(shape.experts.used);
      ASSERT_EQ(met.size(), size_t(shape.layers) * 80);
      for (int layer = 0; layer < shape.layers; ++layer) {
        std::map<int, int> uses;
        double shared = 0;
        for (int token = 0; token < 80; ++token) {
          const std::set<int>& here = met.at({layer, token});
          ASSERT_EQ(here.size(), used);
          for (const int expert : here) {
            ++uses[expert];
            if (token > 0) shared += double(met.at({layer, token - 1}).count(expert));
          }
        }
        const double chance = double(used) / shape.experts.count;
        EXPECT_LT(shared / 79 / double(used), chance + 0.15) << layer;
        EXPECT_EQ(uses.size(), size_t(shape.experts.count)) << layer;
        for (const auto& [expert, count] : uses) EXPECT_LT(count, 80 * 3 * chance) << layer << " " << expert;
      }
    }
}

TEST(Synthetic, ImportantChannelsOfAClusteredModelLieInRuns) {
  const auto runs = [](SelectionPattern pattern) {
    SyntheticModel model{shape_named("smollm2-135m"), DType::Q8_0, 1, 3, pattern};
    const File file("pop-bench-test-runs.gguf");
    write_synthetic(model, file.path());
    EngineOptions options;
    options.model = file.path();
    options.context = 64;
    Engine engine(options);
    ScoreRequest request;
    for (int i = 0; i < 40; ++i) request.ids.push_back((i * 7919) % 49152);
    request.split = 39;
    struct Runs : SelectionObserver {
      int count = 0;
      void on_partition(int, int, int, std::span<const int32_t> retained, std::span<const int32_t>,
                        std::span<const int32_t>, std::span<const float>) override {
        for (size_t i = 0; i < retained.size(); ++i) count += i == 0 || retained[i] != retained[i - 1] + 1;
      }
      void on_threshold(int, int, const char*, double, float, uint64_t) override {}
      void on_chosen(int, int, int, int, const char*, bool, std::span<const int32_t>) override {}
    } observer;
    RunHooks hooks;
    hooks.observer = &observer;
    engine.session({.method = "fixed", .ratio = 0.3})->score({&request, 1}, 1, hooks);
    return observer.count;
  };
  const int random = runs(SelectionPattern::Random), clustered = runs(SelectionPattern::Clustered);
  EXPECT_GT(random, 250);
  EXPECT_GT(clustered, 0);
  EXPECT_LT(clustered, random / 2);
}

TEST(GgufWriter, AFilledTensorIsWrittenAsIfItHadBeenThere) {
  std::vector<uint8_t> data(row_bytes(DType::F16, 4096) * 1500);
  for (size_t i = 0; i < data.size(); ++i) data[i] = uint8_t(i * 31 + i / 256);
  GgufWriter whole, filled;
  whole.add_tensor_view("t", DType::F16, {1500, 4096}, data);
  uint64_t next = 0;
  filled.add_tensor_filled("t", DType::F16, {1500, 4096}, [&](uint64_t offset, std::span<uint8_t> bytes) {
    EXPECT_EQ(offset, next);
    EXPECT_EQ(bytes.size() % 8192, 0u);
    next += bytes.size();
    std::copy_n(data.begin() + std::ptrdiff_t(offset), bytes.size(), bytes.begin());
  });
  EXPECT_EQ(whole.to_bytes(), filled.to_bytes());
}

TEST(Steady, AMovingRoofIsMeasuredAgainAndThenMarked) {
  EXPECT_FALSE(roof_moved(20, 21.9));
  EXPECT_TRUE(roof_moved(20, 22.1));
  EXPECT_TRUE(roof_moved(22.1, 20));
  const auto measured = [](std::vector<double> roofs) {
    size_t next = 1;
    int runs = 0;
    const Steadiness s = hold_steady(
        roofs[0], [&] { return roofs.at(next++); }, [&] { ++runs; });
    EXPECT_EQ(runs, s.repeats + 1);
    return s;
  };
  const Steadiness still = measured({20, 21});
  EXPECT_EQ(still.repeats, 0);
  EXPECT_FALSE(still.moved);
  EXPECT_DOUBLE_EQ(still.roof(), 20.5);
  const Steadiness settled = measured({20, 30, 31});
  EXPECT_EQ(settled.repeats, 1);
  EXPECT_FALSE(settled.moved);
  EXPECT_DOUBLE_EQ(settled.before, 30);
  const Steadiness restless = measured({20, 30, 20, 30, 20});
  EXPECT_EQ(restless.repeats, 3);
  EXPECT_TRUE(restless.moved);
}

RowSample sample(double tokens_per_s, double roof) {
  RowSample s;
  s.timing.decode_tokens = 100;
  s.timing.decode_s = 100 / tokens_per_s;
  s.steadiness.before = s.steadiness.after = roof;
  return s;
}

TEST(Rows, SharesAreMediansOfTheRoundsOwn) {
  Row row;
  row.spec.n_gen = 100;
  row.forward_bytes = 90;
  row.kv_bytes_per_token = 10;
  row.samples = {sample(8, 1000), sample(9, 1000), sample(20, 4000)};
  const RowResult r = result_of(row);
  EXPECT_DOUBLE_EQ(r.decode_tokens_per_s, 9);
  EXPECT_DOUBLE_EQ(r.share_of_roof, 0.8);
  EXPECT_FALSE(r.invalid);
  row.samples = {sample(11, 1000)};
  EXPECT_TRUE(result_of(row).invalid);
  row.samples[0].steadiness.moved = true;
  EXPECT_TRUE(result_of(row).unsteady);
  row.spec.batch = 2;  // two sequences: twice the cache, the weights once, half as many passes per token
  row.samples = {sample(11, 1000)};
  EXPECT_DOUBLE_EQ(result_of(row).share_of_roof, 11 / 2.0 * 110 / 1000);
}

TEST(Engine, ThreadsAndContextsForMeasuring) {
  const File file("pop-bench-test-engine.gguf");
  write_synthetic({shape_named("smollm2-135m"), DType::Q4_0, 1, 3}, file.path());
  EngineOptions options;
  options.model = file.path();
  options.threads = 1;
  options.context = 100;
  Engine engine(options);
  const auto session = engine.session({.method = "pop", .ratio = 0.3});
  const std::vector<int32_t> prompt = {5, 1000, 40000, 77, 3};
  GenerateOptions generate;
  generate.max_tokens = 4;
  const std::string hash = session->generate(prompt, generate).logits_hash;
  engine.set_threads(3);
  EXPECT_EQ(engine.info().threads, 3);
  session->release();
  EXPECT_EQ(session->generate(prompt, generate).logits_hash, hash);
  EXPECT_THROW(engine.set_threads(0), Exception);
  // A cache filled up by repetition is as long as asked, then ends the answer where the context ends; a prompt that
  // follows begins afresh.
  generate.repeat_context = 98;
  const auto repeated = session->generate(prompt, generate);
  EXPECT_NE(repeated.logits_hash, hash);
  EXPECT_EQ(repeated.finish_reason, "length");
  EXPECT_EQ(repeated.generated_tokens, 3);
  generate.repeat_context = 0;
  EXPECT_EQ(session->generate(prompt, generate).logits_hash, hash);
  generate.repeat_context = 101;
  EXPECT_THROW(session->generate(prompt, generate), Exception);
}

TEST(Engine, BatchesAnswerAsEachSequenceAlone) {
  const File file("pop-bench-test-batch.gguf");
  write_synthetic({shape_named("smollm2-135m"), DType::Q8_0, 2, 3}, file.path());
  EngineOptions options;
  options.model = file.path();
  options.threads = 2;
  options.context = 64;
  Engine engine(options);
  const std::vector<std::vector<int32_t>> prompts = {{5, 1000, 40000, 77, 3}, {9, 9, 12}, {5, 1000, 40000, 77, 3}};
  for (const char* method : {"dense", "pop", "pop+"}) {
    const auto session = engine.session({.method = method});
    const BatchResult batch = session->generate_batch(prompts, 6);
    ASSERT_EQ(batch.answers.size(), 3u);
    GenerateOptions generate;
    generate.max_tokens = 6;
    generate.ignore_eos = true;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const GenerateResult alone = session->generate(prompts[i], generate);
      EXPECT_EQ(batch.answers[i].ids, alone.ids) << method << " " << i;
      EXPECT_EQ(batch.answers[i].reads.weight_bytes_per_token, alone.reads.weight_bytes_per_token) << method;
    }
    EXPECT_EQ(batch.timing.decode_tokens, 15);
  }
  EXPECT_THROW(engine.session()->generate_batch({}, 3), Exception);
  EXPECT_THROW(engine.session()->generate_batch(prompts, 60), Exception);
}

}  // namespace
}  // namespace pop::app
