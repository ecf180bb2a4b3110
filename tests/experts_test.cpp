// Mixtures of experts: which experts a token goes through, what a file may say, and "Bits" (docs/pruning.md) with experts. That
// their outputs are right is golden_logits_test's; what their partitions are, golden_pruning_test's.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "engine/pop.h"
#include "tests/isas.h"
#include "tests/toy_model.h"

namespace pop {
namespace {

constexpr const char* kMixtral = "tests/goldens/tiny-mixtral.gguf";    // 2 of 6 experts; 1 and 3 are equal
constexpr const char* kQwen2Moe = "tests/goldens/tiny-qwen2moe.gguf";  // and a shared one; the second layer has none

const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder made;
  return made;
}

std::vector<int32_t> ids_of(int seed, int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * i * 7 + i * 31 + seed * 97) % 256);
  return ids;
}

// Statistics of a text for methods that need them; "" for others.
std::string calibration_of(Engine& engine, const std::string& method) {
  if (method != "wanda_sp" && method != "flap") return "";
  const std::vector<std::vector<int32_t>> text = {ids_of(21, 30), ids_of(22, 13), ids_of(23, 2)};
  const std::string path = folder().path() + "/" + engine.info().model_sha256.substr(0, 8) + engine.info().isa +
                           engine.info().activations_prefill + engine.info().layout + ".calib";
  if (!std::filesystem::exists(path)) {
    const std::vector<uint8_t> bytes = engine.calibrate(text, {}).bytes;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  }
  return path;
}

std::string hash_of(Engine& engine, PruneSettings prune, std::span<const ScoreRequest> requests, int batch = 1) {
  prune.calibration = calibration_of(engine, prune.method);
  std::string joined;
  for (const ScoreResult& r : engine.session(prune)->score(requests, batch)) joined += r.logits_hash + " ";
  return joined;
}

std::string dense_hash(const std::string& path) {
  Engine engine({.model = path, .context = 64});
  const ScoreRequest request{.ids = ids_of(1, 40), .split = 30};
  return hash_of(engine, {}, {&request, 1});
}

// The matrices of one expert become something else.
auto without_expert(size_t expert) {
  return [expert](const std::string& name, const std::vector<int64_t>& shape, std::vector<float>& values) {
    if (name.find("_exps") == std::string::npos) return;
    const size_t size = values.size() / size_t(shape[0]);
    std::fill_n(values.begin() + std::ptrdiff_t(expert * size), size, 0.5f);
  };
}
const auto unchanged = [](const std::string&, const std::vector<int64_t>&, std::vector<float>&) {};

// With one expert for each token and equal scores of 1 and 3, 3 is never asked for.
TEST(Router, OfEqualScoresTheLowerExpertIsChosen) {
  const std::vector<std::pair<std::string, uint32_t>> one = {{"llama.expert_used_count", 1}};
  const auto with = [&](const char* name, auto edit) {
    return dense_hash(test::edited(kMixtral, one, edit, folder().path() + name));
  };
  const std::string whole = with("/whole.gguf", unchanged);
  EXPECT_EQ(with("/3.gguf", without_expert(3)), whole);
  EXPECT_NE(with("/1.gguf", without_expert(1)), whole);
}

// Log-probabilities of a text in float32.
std::vector<double> logprobs_of(const std::string& path) {
  Engine engine({.model = path, .threads = 1, .activations = "f32", .kv = "f32", .context = 64});
  const ScoreRequest request{.ids = ids_of(4, 40), .split = 20};
  std::vector<double> out = engine.session()->score({&request, 1})[0].logprobs;
  return {out.begin() + 1, out.end()};
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Six equal experts with equal scores: the softmax over all gives each of the two chosen 1/6, and 1/2 once they are divided by their
// sum. A softmax over the chosen ones alone would make no difference between the two.
TEST(Router, WeightsAreTheSoftmaxOverAllExperts) {
  const auto with = [&](bool normalised, float scale, const char* name) {
    test::Rewrite change;
    change.add = [&](GgufWriter& w) { w.set_bool("qwen2moe.expert_weights_norm", normalised); };
    change.tensor = [&](const std::string& tensor, const std::vector<int64_t>& shape, std::vector<float>& values) {
      if (tensor.ends_with("ffn_gate_inp.weight")) std::fill(values.begin(), values.end(), 0.f);
      if (!tensor.ends_with("_exps.weight")) return true;
      const size_t size = values.size() / size_t(shape[0]);
      for (size_t i = size; i < values.size(); ++i) values[i] = values[i - size];
      if (tensor.ends_with("ffn_down_exps.weight"))
        for (float& v : values) v *= scale;
      return true;
    };
    return logprobs_of(test::rewritten(kQwen2Moe, change, folder().path() + name));
  };
  const std::vector<double> plain = with(false, 1, "/plain.gguf");
  EXPECT_LE(largest_difference(plain, with(true, 1 / 3.f, "/third.gguf")), 1e-5);
  EXPECT_GE(largest_difference(plain, with(true, 1, "/whole.gguf")), 0.1);
}

// All tokens have much of the first channel of the embedding, so a gate on it alone can be opened and shut. `at`: its weight; `scale`:
// of the shared expert's output.
TEST(Router, TheSharedExpertIsWeighedByTheSigmoidOfItsGate) {
  const auto with = [&](float at, float scale) {
    test::Rewrite change;
    change.tensor = [&](const std::string& tensor, const std::vector<int64_t>&, std::vector<float>& values) {
      if (tensor.ends_with("ffn_gate_inp_shexp.weight")) std::fill(values.begin(), values.end(), 0.f), values[0] = at;
      if (tensor.ends_with("ffn_down_shexp.weight"))
        for (float& v : values) v *= scale;
      return true;
    };
    return logprobs_of(test::rewritten(kQwen2Moe, change, folder().path() + "/shared.gguf"));
  };
  const std::vector<double> open = with(1e6f, 1), half = with(0, 1), shut = with(-1e6f, 1);
  EXPECT_LE(largest_difference(half, with(1e6f, 0.5f)), 1e-5);  // sigmoid(0)
  EXPECT_LE(largest_difference(shut, with(0, 0)), 1e-5);
  EXPECT_GE(largest_difference(open, half), 0.1);
  EXPECT_GE(largest_difference(half, shut), 0.1);
}

// The whole message of what loading or running the model says, or "".
std::string message_of(const std::string& path) {
  try {
    dense_hash(path);
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST(Router, ScoresThatAreNoNumbersAreAnError) {
  const std::string path = test::edited(
      kMixtral, {},
      [](const std::string& name, const std::vector<int64_t>&, std::vector<float>& values) {
        if (name == "blk.1.ffn_gate_inp.weight") values[7] = std::numeric_limits<float>::quiet_NaN();
      },
      folder().path() + "/nan.gguf");
  EXPECT_NE(message_of(path).find("layer 1: the router's scores at position 0 are not finite"), std::string::npos)
      << message_of(path);
}

TEST(Files, CountsThatDoNotAgreeAreRefused) {
  const auto with = [&](const char* key, uint32_t value) {
    return message_of(test::edited(kMixtral, {{key, value}}, unchanged, folder().path() + "/counts.gguf"));
  };
  EXPECT_NE(with("llama.expert_used_count", 0).find("expected 1 to 6, found 0"), std::string::npos);
  EXPECT_NE(with("llama.expert_used_count", 8).find("expected 1 to 6, found 8"), std::string::npos);
  EXPECT_NE(with("llama.expert_count", 4).find("ffn_gate_inp.weight"), std::string::npos);
  EXPECT_NE(with("llama.expert_gating_func", 2).find("expected 1 (softmax), found 2"), std::string::npos);
  EXPECT_NE(with("llama.expert_count", 0).find("is missing"), std::string::npos);
  // Sizes that no tensor bears out would decide how much memory is asked for.
  const std::string dense = "tests/goldens/tiny-tied.gguf", path = folder().path() + "/no_router.gguf";
  const std::string found =
      message_of(test::edited(dense, {{"llama.expert_count", 4}, {"llama.expert_used_count", 2}}, unchanged, path));
  EXPECT_NE(found.find("expected 0 (no layer has a router), found 4"), std::string::npos) << found;
}

const std::vector<ScoreRequest> kRequests = {
    {.ids = ids_of(1, 25), .split = 20}, {.ids = ids_of(2, 6), .split = 1}, {.ids = ids_of(3, 15), .split = 11}};

const std::vector<PruneSettings> kMethods = {{.method = "dense"},
                                             {.method = "pop", .ratio = 0.3},
                                             {.method = "pop", .ratio = 0.3, .min_tokens = 3, .few_tokens = "dense"},
                                             {.method = "pop", .ratio = 0.3, .metric = "gate-up", .prefill = "pruned"},
                                             {.method = "full", .ratio = 0.3, .min_tokens = 0},
                                             {.method = "random", .ratio = 0.3, .random_every = "token"},
                                             {.method = "wanda_sp", .ratio = 0.3},
                                             {.method = "flap", .ratio = 0.3, .prefill = "pruned"},
                                             {.method = "wina", .ratio = 0.3},
                                             {.method = "pop+", .ratio = 0.3}};

class Experts : public testing::TestWithParam<DType> {
 protected:
  // Calls body(isa, path, layout) for every instruction set, on both layouts.
  template <class Body>
  void for_each_setting(Body&& body) {
    const std::string path =
        GetParam() == DType::F32 ? kQwen2Moe : test::requantised(kQwen2Moe, GetParam(), folder().path());
    for (const std::string& isa : test::isas())
      for (const char* layout : {"auto", "columns"}) {
        SCOPED_TRACE(isa + " " + layout);
        body([&](int threads, int chunk) {
          return Engine(
              {.model = path, .threads = threads, .isa = isa, .context = 64, .prefill_chunk = chunk, .layout = layout});
        });
      }
  }
};

TEST_P(Experts, RatioZeroIsDense) {
  for_each_setting([&](auto make) {
    Engine engine = make(1, 512);
    const std::string dense = hash_of(engine, {}, kRequests);
    for (PruneSettings method : kMethods) {
      if (method.method == "dense") continue;
      method.ratio = 0;
      EXPECT_EQ(hash_of(engine, method, kRequests), dense) << method.method;
    }
  });
}

TEST_P(Experts, ThreadsChunksAndNeighboursChangeNothing) {
  for_each_setting([&](auto make) {
    Engine one = make(1, 512), two = make(2, 7);
    for (const PruneSettings& method : kMethods) {
      std::string alone;
      for (const ScoreRequest& request : kRequests) alone += hash_of(one, method, {&request, 1});
      EXPECT_EQ(hash_of(one, method, kRequests, 3), alone) << method.method;
      EXPECT_EQ(hash_of(two, method, kRequests, 3), alone) << method.method;
      EXPECT_EQ(hash_of(two, method, kRequests, 1), alone) << method.method;
    }
  });
}

// Token by token, and teacher-forced in one go.
TEST_P(Experts, TeacherForcingChangesNothing) {
  for_each_setting([&](auto make) {
    Engine engine = make(1, 512);
    for (const PruneSettings& method : kMethods) {
      const std::vector<int32_t> prompt = ids_of(5, 15);
      PruneSettings settings = method;
      settings.calibration = calibration_of(engine, method.method);
      const GenerateResult run = engine.session(settings)->generate(prompt, {.max_tokens = 10, .ignore_eos = true});
      ScoreRequest forced{.ids = prompt, .split = 15, .score_from = 15};
      forced.ids.insert(forced.ids.end(), run.ids.begin(), run.ids.end() - 1);
      EXPECT_EQ(hash_of(engine, method, {&forced, 1}), run.logits_hash + " ") << method.method;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Experts, testing::Values(DType::F32, DType::Q4_0),
                         [](const auto& param) { return traits(param.param).name; });

TEST(Reads, CountedBytesOfDenseAreTheExpertsOfAToken) {
  for (const char* path : {kMixtral, kQwen2Moe}) {
    Engine engine({.model = path, .context = 64});
    uint64_t dense = 0;
    for (const ByteShare& share : engine.info().bytes_per_token) dense += share.bytes;
    const GenerateResult run = engine.session()->generate(ids_of(8, 20), {.max_tokens = 10, .ignore_eos = true});
    EXPECT_EQ(run.reads.weight_bytes_per_token, double(dense)) << path;
    EXPECT_EQ(run.reads.weights_read_share, 1.0);
    EXPECT_EQ(run.reads.selected_share, 1.0);
  }
}

// Every row and column of this model is whole cache lines: the counts are the formulas, to the byte.
TEST(Reads, CountedBytesOfPopAreTheFormulas) {
  Engine engine({.model = kQwen2Moe, .context = 64});
  for (const char* ratio_of : {"blocks", "active"})
    for (const double ratio : {0.2, 0.4}) {
      const auto session = engine.session({.method = "pop", .ratio = ratio, .ratio_of = ratio_of});
      const GenerateResult run = session->generate(ids_of(9, 20), {.max_tokens = 12, .ignore_eos = true});
      EXPECT_NEAR(run.reads.weight_bytes_per_token, session->plan().planned_bytes, 1e-6) << ratio_of << ratio;
      EXPECT_LT(session->plan().planned_bytes, session->plan().dense_bytes);
    }
}

// By hand, of tiny-qwen2moe (width 64): blocks of 36,864 attention weights; one dense FFN of 128 channels, twice 6 experts of 64,
// twice a shared one of 96, at 192 weights a channel. Of 245,760 in all blocks a token goes through 147,456. p = 0.2 * 245,760 /
// 208,896 = 0.2353: 30 of 128, 15 of 64 and 23 of 96 channels go; gamma 0.1 leaves 104, 52 and 78 of them to be looked at.
TEST(Reads, WhatIsLeftOutIsCountedByKindOfFfn) {
  Engine engine({.model = kQwen2Moe, .context = 64});
  const auto reads_of = [&](const PruneSettings& settings) {
    return engine.session(settings)->generate(ids_of(9, 20), {.max_tokens = 12, .ignore_eos = true}).reads;
  };
  const ReadStats pop = reads_of({.method = "pop", .ratio = 0.2});
  EXPECT_NEAR(pop.realised.blocks,
              (128 * 192 * 30 / 128. + 12 * 64 * 192 * 15 / 64. + 2 * 96 * 192 * 23 / 96.) / 245760, 1e-12);
  EXPECT_NEAR(pop.realised.active, (128 * 192 * 30 / 128. + 4 * 64 * 192 * 15 / 64. + 2 * 96 * 192 * 23 / 96.) / 147456,
              1e-12);
  EXPECT_NEAR(pop.realised.total * double(engine.info().parameters), pop.realised.blocks * 245760, 1e-6);
  ASSERT_EQ(pop.ffns.size(), 3u);
  const struct {
    const char* kind;
    double per_token, left_out, bytes;
  } expected[] = {{"dense", 1, 30 / 128., 104 * 512 + 98 * 256},
                  {"routed", 4, 15 / 64., 4 * (52 * 512 + 49 * 256)},
                  {"shared", 2, 23 / 96., 2 * (78 * 512 + 73 * 256)}};
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(expected[i].kind);
    EXPECT_EQ(pop.ffns[i].kind, expected[i].kind);
    EXPECT_EQ(pop.ffns[i].per_token, expected[i].per_token);
    EXPECT_NEAR(pop.ffns[i].left_out, expected[i].left_out, 1e-12);
    EXPECT_NEAR(pop.ffns[i].weight_bytes_per_token, expected[i].bytes, 1e-6);
    EXPECT_EQ(engine.info().ffns[i].kind, expected[i].kind);
    EXPECT_EQ(engine.info().ffns[i].per_token, expected[i].per_token);
  }
  EXPECT_EQ(engine.info().ffns[1].count, 12);
  EXPECT_EQ(engine.info().ffns[1].weight_bytes, 12u * 64 * 192 * 4);
  EXPECT_EQ(engine.info().ffns[1].weight_bytes_per_token, 4u * 64 * 192 * 4);
  EXPECT_NEAR(engine.planned({.method = "pop", .ratio = 0.2}).realised.blocks, 0.2, 1e-12);
  EXPECT_NEAR(engine.planned({.method = "pop", .ratio = 0.2}).realised.active, 0.2 * 245760 / 208896 * 110592 / 147456,
              1e-12);
  // Experts that stay whole leave nothing out, the others what they did.
  const ReadStats whole = reads_of({.method = "pop", .ratio = 0.2, .min_tokens = 1000, .few_tokens = "dense"});
  EXPECT_EQ(whole.ffns[1].left_out, 0);
  EXPECT_EQ(whole.ffns[2].left_out, 23 / 96.);
  // Where no candidate is looked at in vain, what is not left out is what was used.
  for (const char* method : {"dense", "random", "pop+", "wina"}) {
    const ReadStats reads = reads_of({.method = method});
    EXPECT_NEAR(reads.realised.active, 1 - reads.selected_share, 1e-12) << method;
    EXPECT_EQ(reads.realised.active > 0, method != std::string("dense")) << method;
  }
}

TEST(Methods, ThoseThatCannotSayWhy) {
  Engine engine({.model = kMixtral, .context = 64});
  for (const char* method : {"griffin", "probe"}) EXPECT_THROW(engine.session({.method = method}), Exception);
  const std::vector<int32_t> ids = ids_of(1, 9);
  EXPECT_THROW(engine.calibrate({&ids, 1}, {.history = 4}), Exception);
  EXPECT_THROW(engine.calibrate({&ids, 1}, {.allocate = 1}), Exception);
}

// In a text of one token, again and again, every position has the same state: h is constant, so what flap's bias stands in for it
// gives back exactly, expert by expert, before the router weighs it. wanda_sp leaves the same channels' share out without.
TEST(Methods, FlapsBiasIsExactWhereNothingVaries) {
  for (const char* path : {kMixtral, kQwen2Moe}) {
    Engine engine({.model = path, .threads = 1, .activations = "f32", .kv = "f32", .context = 64});
    const std::vector<int32_t> same(24, 77);
    const std::string calibration = folder().path() + "/same.calib";
    const std::vector<uint8_t> bytes = engine.calibrate(std::vector(3, same), {}).bytes;
    std::ofstream(calibration, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    const ScoreRequest request{.ids = same, .split = 12};
    const auto nll = [&](const PruneSettings& settings) {
      return engine.session(settings)->score({&request, 1}, 1)[0].nll_decode_sum;
    };
    const double dense = nll({});
    EXPECT_NEAR(nll({.method = "flap", .ratio = 0.4, .calibration = calibration}), dense, 1e-3) << path;
    EXPECT_GT(std::abs(nll({.method = "wanda_sp", .ratio = 0.4, .calibration = calibration}) - dense), 0.1) << path;
  }
}

// Threads and chunks change no byte of what a text's statistics are, per expert.
TEST(Methods, CalibrationDependsOnTheTextAlone) {
  const std::vector<std::vector<int32_t>> text = {ids_of(21, 30), ids_of(22, 13), ids_of(23, 2)};
  std::vector<uint8_t> first;
  for (const auto& [threads, chunk] : {std::pair{1, 512}, {2, 7}, {2, 1}}) {
    Engine engine({.model = kQwen2Moe, .threads = threads, .context = 64, .prefill_chunk = chunk});
    const std::vector<uint8_t> bytes = engine.calibrate(text, {.source = "ids"}).bytes;
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads << " " << chunk;
  }
}

}  // namespace
}  // namespace pop
