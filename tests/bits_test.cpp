// "Bits" (docs/pruning.md): what must never change a single bit of a result. Compared by logits_hash, over every instruction
// set, activation type, layout and weight type, for dense, pop and pop+. In the AddressSanitizer build the same runs prove
// that no kernel reads weight bytes that a decode step counts as unread (model/project.cpp, ReadGuard).
#include <gtest/gtest.h>

#include <memory>

#include "engine/pop.h"
#include "prune/budget.h"
#include "prune/byte_ideal.h"
#include "tests/bits.h"
#include "tests/golden.h"
#include "tests/isas.h"
#include "tests/toy_model.h"

namespace pop {
namespace {

const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder made;
  return made;
}

std::string model_of(DType type) {
  return type == DType::Q4_1 ? kSource : test::requantised(kSource, type, folder().path());
}

struct Setting {
  std::string isa, activations, layout;
  DType type;
};

// Every arithmetic that the type has; all layouts on the reference arithmetic.
std::vector<Setting> settings(DType type) {
  const bool blocks = traits(type).block_elems > 1;
  std::vector<Setting> all;
  for (const std::string& isa : test::isas()) {
    for (const char* layout : {"auto", "rows", "columns", "mixed"}) all.push_back({isa, "f32", layout, type});
    for (const char* activations :
         blocks ? std::vector<const char*>{"bf16", "i16", "i8"} : std::vector<const char*>{"bf16"})
      for (const char* layout : {"auto", "columns"}) all.push_back({isa, activations, layout, type});
  }
  return all;
}

// One thread unless threads are the question: a parallel region of a toy model costs more than its work.
Engine make(const Setting& s, const std::string& path, int threads = 1, int chunk = 512) {
  EngineOptions options{.model = path,
                        .threads = threads,
                        .isa = s.isa,
                        .activations = s.activations,
                        .context = 128,
                        .prefill_chunk = chunk,
                        .layout = s.layout};
  if (s.layout == "mixed") {  // what `auto` makes of methods that select rows and methods that select columns
    options.layout = "auto";
    options.methods = {"pop", "pop+"};
  }
  return Engine(options);
}

const std::vector<PruneSettings> kMethods = {
    {.method = "dense"}, {.method = "pop", .ratio = 0.3}, {.method = "pop+", .ratio = 0.3}};

class Bits : public testing::TestWithParam<DType> {
 protected:
  // Calls body for every setting of this weight type.
  template <class Body>
  void for_each_setting(Body&& body) {
    const std::string path = model_of(GetParam());
    for (const Setting& s : settings(GetParam())) {
      SCOPED_TRACE(s.isa + " " + s.activations + " " + s.layout + " " + traits(s.type).name);
      body(s, path);
      if (HasFatalFailure()) return;
    }
  }
  const std::vector<ScoreRequest> requests_ = {{.ids = ids_of(1, 75), .split = 70},
                                               {.ids = ids_of(2, 12), .split = 1},
                                               {.ids = ids_of(3, 24), .split = 13},
                                               {.ids = ids_of(4, 5), .split = 4}};
};

TEST_P(Bits, RatioZeroIsDenseThroughTheSelectionPath) {
  for_each_setting([&](const Setting& s, const std::string& path) {
    Engine engine = make(s, path);
    const std::string dense = hash_of(engine, {.method = "dense"}, requests_);
    for (const char* method : {"pop", "fixed", "full", "random", "pop+", "magnitude", "griffin", "wina"}) {
      const auto results = engine.session({.method = method, .ratio = 0.0})->score(requests_);
      std::string joined;
      uint64_t selections = 0;
      for (const ScoreResult& r : results) joined += r.logits_hash + " ", selections += r.reads.selections;
      EXPECT_EQ(joined, dense) << method;
      EXPECT_GT(selections, 0u) << method;
    }
    EXPECT_EQ(hash_of(engine, {.method = "pop", .ratio = 0.0, .gamma = 0.7}, requests_), dense);
  });
}

TEST_P(Bits, ThreadsChangeNothing) {
  for_each_setting([&](const Setting& s, const std::string& path) {
    Engine one = make(s, path, 1), two = make(s, path, 2), three = make(s, path, 3);
    for (const PruneSettings& method : kMethods) {
      const std::string expected = hash_of(one, method, requests_, 4);
      EXPECT_EQ(hash_of(two, method, requests_, 4), expected) << method.method;
      EXPECT_EQ(hash_of(three, method, requests_, 4), expected) << method.method;
    }
  });
}

TEST_P(Bits, PrefillChunksChangeNothing) {
  for_each_setting([&](const Setting& s, const std::string& path) {
    Engine whole = make(s, path);
    std::vector<std::string> expected;
    for (const PruneSettings& method : kMethods) expected.push_back(hash_of(whole, method, requests_));
    for (const int chunk : {1, 7, 64}) {
      Engine cut = make(s, path, 1, chunk);
      for (size_t m = 0; m < kMethods.size(); ++m)
        EXPECT_EQ(hash_of(cut, kMethods[m], requests_), expected[m]) << kMethods[m].method << " chunk " << chunk;
    }
  });
}

TEST_P(Bits, NeighboursInABatchChangeNothing) {
  for_each_setting([&](const Setting& s, const std::string& path) {
    Engine engine = make(s, path);
    for (const PruneSettings& method : kMethods) {
      std::string alone;
      for (const ScoreRequest& request : requests_) alone += hash_of(engine, method, {&request, 1});
      EXPECT_EQ(hash_of(engine, method, requests_, 4), alone) << method.method;
      EXPECT_EQ(hash_of(engine, method, requests_, 3), alone) << method.method;
    }
  });
}

// A generated answer, token by token, and the same answer teacher-forced in one go; packed and in place.
TEST_P(Bits, PackingAndTeacherForcingChangeNothing) {
  for_each_setting([&](const Setting& s, const std::string& path) {
    Engine engine = make(s, path);
    for (PruneSettings method : kMethods) {
      const std::vector<int32_t> prompt = ids_of(5, 50);
      method.pack = true;
      const GenerateResult packed = engine.session(method)->generate(prompt, {.max_tokens = 50, .ignore_eos = true});
      method.pack = false;
      const GenerateResult in_place = engine.session(method)->generate(prompt, {.max_tokens = 50, .ignore_eos = true});
      EXPECT_EQ(packed.logits_hash, in_place.logits_hash) << method.method;
      EXPECT_EQ(packed.ids, in_place.ids) << method.method;
      ScoreRequest forced{.ids = prompt, .split = 50, .score_from = 50};
      forced.ids.insert(forced.ids.end(), packed.ids.begin(), packed.ids.end() - 1);
      EXPECT_EQ(hash_of(engine, method, {&forced, 1}), packed.logits_hash + " ") << method.method;
    }
  });
}

// A mask may leave nothing of an FFN: then the FFN adds nothing, whether the prompt or the answer is pruned.
TEST_P(Bits, AnEmptyMaskAddsNothing) {
  for_each_setting([&](const Setting& s, const std::string& path) {
    Engine engine = make(s, path), two = make(s, path, 2);
    const PruneSettings decode{.method = "magnitude", .ffn_sparsity = 1.0},
        all{.method = "magnitude", .ffn_sparsity = 1.0, .prefill = "pruned"};
    const ScoreResult r = engine.session(all)->score(requests_).front();
    EXPECT_EQ(r.partition.front().retained, 0);
    EXPECT_NE(r.logits_hash, engine.session(decode)->score(requests_).front().logits_hash);
    EXPECT_EQ(r.logits_hash, two.session(all)->score(requests_).front().logits_hash);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Bits,
                         testing::Values(DType::Q4_1, DType::Q8_0, DType::Q4_0, DType::F16, DType::BF16, DType::F32),
                         [](const auto& param) { return traits(param.param).name; });

// The other methods that choose differently for each text of a batch.
TEST(Batch, EveryMethodIsAlone) {
  for (const std::string& isa : test::isas()) {
    Engine engine({.model = kSource, .threads = 2, .isa = isa, .context = 128});
    std::vector<ScoreRequest> requests;
    for (int i = 0; i < 17; ++i) requests.push_back({.ids = ids_of(i, 12 + 3 * i), .split = 1 + 2 * i});
    for (const PruneSettings& method : {PruneSettings{.method = "dense"},
                                        {.method = "pop", .ratio = 0.2, .gamma = 0.5},
                                        {.method = "pop", .ratio = 0.2, .metric = "gate-up"},
                                        {.method = "fixed", .ratio = 0.3},
                                        {.method = "full", .ratio = 0.3},
                                        {.method = "random", .ratio = 0.3, .random_every = "token"},
                                        {.method = "pop+", .ratio = 0.4},
                                        {.method = "griffin", .ratio = 0.3},
                                        {.method = "wina", .ratio = 0.4}}) {
      std::string alone;
      for (const ScoreRequest& request : requests) alone += hash_of(engine, method, {&request, 1});
      for (const int batch : {2, 17})
        EXPECT_EQ(hash_of(engine, method, requests, batch), alone) << isa << method.method;
    }
  }
}

// Methods that rest on a text: ratio 0 is dense, threads and batches change nothing, the prompt pruned or not.
TEST(Calibrated, IsDenseAtRatioZeroAndAloneInABatch) {
  std::vector<std::vector<int32_t>> windows;
  for (int i = 0; i < 6; ++i) windows.push_back(ids_of(20 + i, 40));
  std::vector<ScoreRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back({.ids = ids_of(i, 15 + 5 * i), .split = 1 + 9 * i});
  for (const std::string& isa : test::isas()) {
    Engine engine({.model = kSource, .threads = 1, .isa = isa, .context = 128}),
        cut({.model = kSource, .threads = 2, .isa = isa, .context = 128, .prefill_chunk = 7});
    const CalibrationResult made = engine.calibrate(windows);
    EXPECT_EQ(cut.calibrate(windows).bytes, made.bytes) << isa;
    const std::string file = folder().write("bits.calib", made.bytes);
    const std::string dense = hash_of(engine, {}, requests);
    for (const char* method : {"wanda_sp", "flap", "task-fixed"}) {
      PruneSettings s{.method = method, .ratio = 0.0, .prefill = "pruned", .calibration = file};
      EXPECT_EQ(hash_of(engine, s, requests), dense) << isa << method;
      for (const char* prefill : {"dense", "pruned"}) {
        s.ratio = std::nullopt, s.ffn_sparsity = 0.9, s.prefill = prefill;  // flap then leaves layers empty
        std::string alone;
        for (const ScoreRequest& request : requests) alone += hash_of(engine, s, {&request, 1});
        EXPECT_NE(alone, dense);
        EXPECT_EQ(hash_of(cut, s, requests, 4), alone) << isa << method << prefill;
      }
    }
  }
}

// Thresholds from a text, on columns and on gates; the search for them; a probe with its history: in every layout.
TEST(Calibrated, ThresholdsAndProbesToo) {
  const std::vector<std::vector<int32_t>> windows = {ids_of(30, 12), ids_of(31, 12), ids_of(32, 7)};
  std::vector<ScoreRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back({.ids = ids_of(i, 15 + 5 * i), .split = 1 + 9 * i});
  for (const std::string& isa : test::isas()) {
    for (const char* layout : {"auto", "columns"}) {
      SCOPED_TRACE(isa + " " + layout);
      Engine engine({.model = kSource, .threads = 1, .isa = isa, .context = 128, .layout = layout}),
          cut({.model = kSource, .threads = 2, .isa = isa, .context = 128, .prefill_chunk = 7, .layout = layout});
      const bool searches = isa == "avx2" && std::string_view(layout) == "auto";  // one is enough
      const CalibrationOptions options{.history = 5, .allocate = searches ? 2 : 0};
      const CalibrationResult made = engine.calibrate(windows, options);
      EXPECT_EQ(cut.calibrate(windows, options).bytes, made.bytes);
      const std::string file = folder().write("thresholds.calib", made.bytes);
      const std::string dense = hash_of(engine, {}, requests);
      for (const char* method : {"teal", "cats", "probe"}) {
        PruneSettings s{.method = method, .ratio = 0.0, .calibration = file};
        EXPECT_EQ(hash_of(engine, s, requests), dense) << method;
        s.ratio = 0.3;
        std::string alone;
        for (const ScoreRequest& request : requests) alone += hash_of(engine, s, {&request, 1});
        EXPECT_NE(alone, dense) << method;
        EXPECT_EQ(hash_of(cut, s, requests, 3), alone) << method;
        const GenerateResult run = engine.session(s)->generate(ids_of(5, 30), {.max_tokens = 20, .ignore_eos = true});
        EXPECT_LT(run.reads.selected_share, 0.95) << method;
        s.partition = "shared";
        if (std::string_view(method) == "cats")
          EXPECT_THROW(engine.session(s), Exception);
        else
          EXPECT_EQ(hash_of(cut, s, requests, 2), hash_of(engine, s, requests, 2)) << method;
      }
    }
  }
}

// A repaired model: the search gives the same bytes, whatever the threads and chunks; none of its channels gone is dense; texts are alone,
// packed or not, and the prompt pruned or not.
TEST(Calibrated, RepairedModel) {
  std::vector<std::vector<int32_t>> windows;
  for (int i = 0; i < 8; ++i) windows.push_back(ids_of(20 + i, 40));
  std::vector<ScoreRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back({.ids = ids_of(i, 15 + 5 * i), .split = 1 + 9 * i});
  for (const std::string& isa : test::isas()) {
    if (isa == "scalar") continue;  // as slow as it is plain
    Engine engine({.model = kSource, .threads = 1, .isa = isa, .context = 128}),
        cut({.model = kSource, .threads = 2, .isa = isa, .context = 128, .prefill_chunk = 7});
    const std::string dense = hash_of(engine, {}, requests);
    for (const double ratio : {0.0, 0.3}) {
      const CalibrationOptions options{
          .repair =
              RepairOptions{.ratio = ratio, .generations = 2, .offspring = 3, .tokens = {50, 90}, .survivors = {2, 1}}};
      const CalibrationResult made = engine.calibrate(windows, options);
      EXPECT_EQ(cut.calibrate(windows, options).bytes, made.bytes) << isa;
      const std::string file = folder().write("repaired.calib", made.bytes);
      for (const char* prefill : {"dense", "pruned"}) {
        for (const char* repaired : {"model", "bf16"}) {
          const PruneSettings s{.method = "tyr", .prefill = prefill, .repaired = repaired, .calibration = file};
          std::string alone;
          for (const ScoreRequest& request : requests) alone += hash_of(engine, s, {&request, 1});
          EXPECT_EQ(alone == dense, ratio == 0) << isa << prefill << repaired;
          EXPECT_EQ(hash_of(cut, s, requests, 3), alone) << isa << prefill << repaired;
          PruneSettings in_place = s;
          in_place.pack = false;
          const GenerateOptions answer{.max_tokens = 50, .ignore_eos = true};
          EXPECT_EQ(engine.session(s)->generate(ids_of(5, 30), answer).logits_hash,
                    cut.session(in_place)->generate(ids_of(5, 30), answer).logits_hash);
        }
      }
    }
  }
}

// One partition for a batch: whatever the threads and chunks; of equal texts it is what each would have alone; and of
// different ones it is not.
TEST(Batch, SharedPartition) {
  const std::vector<ScoreRequest> texts = {{.ids = ids_of(1, 60), .split = 40}, {.ids = ids_of(2, 50), .split = 33}};
  const std::vector<ScoreRequest> equal(3, texts[0]);
  for (const std::string& isa : test::isas()) {
    Engine one({.model = kSource, .threads = 1, .isa = isa, .context = 128}),
        three({.model = kSource, .threads = 3, .isa = isa, .context = 128, .prefill_chunk = 7});
    for (PruneSettings method : {PruneSettings{.method = "pop", .ratio = 0.3, .gamma = 0.5},
                                 {.method = "pop", .ratio = 0.3, .metric = "gate-up"},
                                 {.method = "pop+", .ratio = 0.3}}) {
      const std::string alone = hash_of(one, method, {equal.data(), 1}), own = hash_of(one, method, texts, 2);
      method.partition = "shared";
      const std::string shared = hash_of(one, method, texts, 2);
      EXPECT_NE(shared, own);
      EXPECT_EQ(hash_of(three, method, texts, 2), shared) << isa << method.method;
      EXPECT_EQ(hash_of(one, method, texts, 1), own);
      // pop+'s threshold stands between two of its scores, at a place that their number decides.
      if (method.method == "pop") {
        EXPECT_EQ(hash_of(one, method, equal, 3), alone + alone + alone) << isa;
      }
    }
  }
  Engine engine({.model = kSource, .context = 128});
  EXPECT_THROW(engine.session({.method = "pop", .partition = "all"}), Exception);
  EXPECT_THROW(engine.session({.method = "pop", .prefill = "pruned", .partition = "shared"}), Exception);
}

// Contexts of several ranges of positions (model/attention.cpp), over every type of cache, without and with a window: several
// texts, cut prompts, and one text decoded token by token as against 32 at once.
TEST(LongContext, CutsThreadsAndNeighboursChangeNothing) {
  const std::vector<ScoreRequest> requests = {{.ids = ids_of(1, 580), .split = 505},
                                              {.ids = ids_of(2, 300), .split = 299}};
  for (const std::string& isa : test::isas())
    for (const auto& [model, kv] : {std::pair{"tiny-yarn", "f32"},
                                    {"tiny-yarn", "f16"},
                                    {"tiny-yarn", "bf16"},
                                    {"tiny-yarn", "q8_0"},
                                    {"tiny-mistral", "f16"}}) {
      SCOPED_TRACE(isa + " " + model + " " + kv);
      const auto make = [&, model = model, kv = kv](int threads, int chunk) {
        return Engine({.model = std::string("tests/goldens/") + model + ".gguf",
                       .threads = threads,
                       .isa = isa,
                       .kv = kv,
                       .context = 600,
                       .prefill_chunk = chunk});
      };
      Engine whole = make(1, 512), cut = make(3, 23);
      const std::string alone = hash_of(whole, {}, {requests.data(), 1}) + hash_of(whole, {}, {&requests[1], 1});
      EXPECT_EQ(hash_of(whole, {}, requests, 2), alone);
      EXPECT_EQ(hash_of(cut, {}, requests, 2), alone);
      if (isa == "scalar") continue;  // as slow as it is plain
      const std::vector<int32_t> prompt(requests[0].ids.begin(), requests[0].ids.begin() + 505);
      const GenerateResult answer = cut.session()->generate(prompt, {.max_tokens = 60, .ignore_eos = true});
      ScoreRequest forced{.ids = prompt, .split = 505, .score_from = 505};
      forced.ids.insert(forced.ids.end(), answer.ids.begin(), answer.ids.end() - 1);
      EXPECT_EQ(hash_of(whole, {}, {&forced, 1}), answer.logits_hash + " ");
    }
}

// Decode, by ranges, sees what prefill sees in one sweep; with a window that begins inside a range and past whole ones.
TEST(LongContext, DecodeSeesWhatPrefillSees) {
  for (const char* model : {"tiny-yarn", "tiny-mistral"}) {
    Engine engine({.model = std::string("tests/goldens/") + model + ".gguf",
                   .threads = 2,
                   .activations = "f32",
                   .kv = "f32",
                   .context = 300});
    const std::vector<ScoreRequest> requests = {{.ids = ids_of(3, 300), .split = 1},
                                                {.ids = ids_of(3, 300), .split = 300}};
    std::vector<std::vector<float>> logits(2);
    RunHooks hooks;
    hooks.on_logits = [&](int request, int, std::span<const float> row) {
      std::vector<float>& all = logits[size_t(request)];
      all.insert(all.end(), row.begin(), row.end());
    };
    engine.session()->score(requests, 1, hooks);
    ASSERT_EQ(logits[0].size(), 300u * 259u);
    ASSERT_EQ(logits[1].size(), 300u * 259u);
    for (size_t i = 0; i < logits[0].size(); ++i) ASSERT_NEAR(logits[0][i], logits[1][i], 1e-4) << model << " " << i;
  }
}

// Every family: what the types above prove of llama, once per instruction set.
TEST(Families, BitsAreTheSame) {
  const std::vector<ScoreRequest> requests = {{.ids = ids_of(1, 75), .split = 70}, {.ids = ids_of(3, 24), .split = 1}};
  for (const std::string& isa : test::isas())
    for (const char* model : {"tiny-qwen2", "tiny-qwen3", "tiny-mistral", "tiny-gemma2", "tiny-gemma3", "tiny-phi3",
                              "tiny-olmoe", "tiny-olmoe-clip"}) {
      SCOPED_TRACE(isa + " " + model);
      const std::string path = std::string("tests/goldens/") + model + ".gguf";
      Engine whole = make({isa, "f32", "mixed", DType::F32}, path),
             cut = make({isa, "f32", "mixed", DType::F32}, path, 3, 7);
      for (const PruneSettings& method : kMethods) {
        const std::string expected = hash_of(whole, method, requests);
        EXPECT_EQ(hash_of(whole, method, requests, 2), expected) << method.method;
        EXPECT_EQ(hash_of(cut, method, requests, 2), expected) << method.method;
        PruneSettings nothing = method;
        if (nothing.ratio) nothing.ratio = 0.0;
        EXPECT_EQ(hash_of(whole, nothing, requests), hash_of(whole, {}, requests)) << method.method;
        if (method.ratio) {
          EXPECT_NE(expected, hash_of(whole, {}, requests)) << method.method;
        }
      }
      const std::vector<int32_t> prompt(requests[0].ids.begin(), requests[0].ids.begin() + 70);
      for (const PruneSettings& method : kMethods) {
        const GenerateResult answer = cut.session(method)->generate(prompt, {.max_tokens = 12, .ignore_eos = true});
        ScoreRequest forced{.ids = prompt, .split = 70, .score_from = 70};
        forced.ids.insert(forced.ids.end(), answer.ids.begin(), answer.ids.end() - 1);
        EXPECT_EQ(hash_of(whole, method, {&forced, 1}), answer.logits_hash + " ") << method.method;
      }
    }
}

// A chat's second turn continues the prefilled prompt, prefills the answer again, and gives the bits of a fresh run.
TEST(Conversation, ContinuingEqualsStartingAfresh) {
  Engine engine({.model = kSource, .context = 256});
  for (const PruneSettings& method : kMethods) {
    const auto session = engine.session(method);
    std::vector<int32_t> prompt = ids_of(6, 40);
    const GenerateResult first = session->generate(prompt, {.max_tokens = 20, .ignore_eos = true});
    prompt.insert(prompt.end(), first.ids.begin(), first.ids.end());
    for (const int32_t id : ids_of(7, 15)) prompt.push_back(id);
    const GenerateResult second = session->generate(prompt, {.max_tokens = 20, .ignore_eos = true});
    EXPECT_EQ(second.cached_tokens, 40);
    const GenerateResult fresh = engine.session(method)->generate(prompt, {.max_tokens = 20, .ignore_eos = true});
    EXPECT_EQ(second.logits_hash, fresh.logits_hash) << method.method;
    EXPECT_EQ(second.ids, fresh.ids);
  }
}

TEST(Reads, CountedBytesOfDenseAreTheFilesBytes) {
  Engine engine({.model = kSource, .context = 256});
  uint64_t dense = 0;
  for (const ByteShare& share : engine.info().bytes_per_token) dense += share.bytes;
  const GenerateResult run = engine.session()->generate(ids_of(8, 20), {.max_tokens = 10, .ignore_eos = true});
  EXPECT_EQ(run.reads.weight_bytes_per_token, double(dense));
  EXPECT_EQ(run.reads.weights_read_share, 1.0);
  EXPECT_EQ(run.reads.selected_share, 1.0);
  EXPECT_EQ(run.reads.tokens, 9u);
}

// Rows and columns of this shape fill whole cache lines in most types, and packed ones lie together: what is left is less
// than a line for each matrix.
TEST_P(Bits, CountedBytesOfPopAreTheFormulas) {
  constexpr int kD = 256, kF = 1024, kLayers = 3;
  const DType type = GetParam();
  Engine engine({.model = test::widened(kSource, type, kD, kF, folder().path()), .context = 256});
  const auto matrix = [&](int rows, int cols, int unit = 1) {
    return Matrix{.type = type, .rows = rows, .cols = cols, .unit = unit};
  };
  const LayerWeights shapes{.q = matrix(kD, kD),
                            .k = matrix(kD / 2, kD),
                            .v = matrix(kD / 2, kD),
                            .o = matrix(kD, kD),
                            .ffns = {{.gate_up = matrix(2 * kF, kD, 2), .down = matrix(kD, kF)}}};
  const std::vector<LayerWeights> layers(kLayers, shapes);
  const auto counted = [&](const PruneSettings& prune) {
    const GenerateResult run = engine.session(prune)->generate(ids_of(9, 20), {.max_tokens = 64, .ignore_eos = true});
    return run.reads.weight_bytes_per_token;
  };
  const double head = counted({}) - dense_bytes(layers);
  EXPECT_GT(head, 0);
  for (const double ratio : {0.2, 0.4}) {
    PruneOptions options;
    options.method = "pop";
    options.ratio = ratio;
    const double planned = planned_row_bytes(layers, ffn_sparsity(options, count_weights(layers)), 0.1);
    EXPECT_NEAR(counted({.method = "pop", .ratio = ratio}) - head, planned, 64 * 6 * kLayers) << ratio;
    EXPECT_GE(counted({.method = "pop", .ratio = ratio, .pack = false}) - head, planned) << ratio;
  }
}

}  // namespace
}  // namespace pop
