// Folders whose matrices are F8_E4M3 with scales: the values are PyTorch's (tests/goldens/f8, python/make_f8_goldens.py), and what is
// damaged is named.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/temporary_folder.h"
#include "engine/pop.h"
#include "formats/hf_folder.h"
#include "formats/scaled_f8.h"

namespace pop {
namespace {

const std::string kGoldens = "tests/goldens/f8/";
constexpr const char* kNames[] = {"blocks", "matrices", "rows"};

std::string hash_of(EngineOptions options) {
  options.threads = 2;
  Engine engine(options);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  return engine.session()->generate(prompt, {.max_tokens = 5, .ignore_eos = true}).logits_hash;
}

TEST(F8, RowsAreThoseOfPyTorch) {
  for (const std::string name : kNames) {
    const HfFolder f8(kGoldens + name), plain(kGoldens + name + "-bf16");
    ASSERT_EQ(f8.tensors().size(), plain.tensors().size());  // scales are none of their own
    int scaled = 0;
    for (const TensorInfo& info : plain.tensors()) {
      const RawTensor expected = plain.tensor(info.name), found = f8.matrix(info.name, info.shape);
      ASSERT_EQ(found.type, DType::BF16);
      if (!found.scales) continue;
      ++scaled;
      const auto cols = size_t(info.shape[1]);
      std::vector<uint8_t> row(2 * cols);
      for (int64_t r = 0; r < info.shape[0]; ++r) {
        EXPECT_FALSE(f8_row_to_bf16(found, r, row.data()));
        ASSERT_EQ(std::memcmp(row.data(), expected.data.data() + size_t(r) * row.size(), row.size()), 0)
            << name << " " << info.name << " row " << r;
      }
      EXPECT_ANY_THROW(f8.tensor(info.name));  // who does not look at scales gets no such tensor
    }
    EXPECT_GE(scaled, 7);
  }
}

TEST(F8, RunsAsTheSameWeightsInBf16) {
  for (const std::string name : kNames)
    for (const char* type : {"", "f32", "q8_0"}) {
      EngineOptions f8{.model = kGoldens + name}, plain{.model = kGoldens + name + "-bf16"};
      if (*type != 0) f8.load_as = plain.load_as = type;
      EXPECT_EQ(hash_of(f8), hash_of(plain)) << name << " " << type;
    }
}

class F8Folder : public testing::Test {
 protected:
  void copy(const std::string& name) {
    std::filesystem::remove_all(folder_.path());
    std::filesystem::copy(kGoldens + name, folder_.path());
  }
  std::string read(const char* file) const {
    std::ostringstream text;
    text << std::ifstream(folder_.path() + file, std::ios::binary).rdbuf();
    return text.str();
  }
  void replace(const char* file, const std::string& from, const std::string& to) const {
    std::string text = read(file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(folder_.path() + file, std::ios::binary) << text.replace(at, from.size(), to);
  }
  // Overwrites the first bytes of a tensor.
  void overwrite(const std::string& tensor, const std::vector<uint8_t>& bytes) const {
    std::string text = read(kWeights);
    const std::string key = "\"" + tensor + "\":";
    const size_t field = text.find("\"data_offsets\":[", text.find(key));
    ASSERT_NE(field, std::string::npos) << tensor;
    uint64_t header = 0;
    std::memcpy(&header, text.data(), 8);
    const size_t at = 8 + header + std::stoul(text.substr(field + 16));
    std::memcpy(text.data() + at, bytes.data(), bytes.size());
    std::ofstream(folder_.path() + kWeights, std::ios::binary) << text;
  }
  std::string error() const {
    try {
      Engine({.model = folder_.path(), .threads = 1});
      return "";
    } catch (const Exception& error) {
      return error.what();
    }
  }
  static constexpr const char *kWeights = "/model.safetensors", *kConfig = "/config.json";
  test::TemporaryFolder folder_;
};

TEST_F(F8Folder, WhatIsDamagedIsNamed) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight", scale = q + "_scale_inv";
  struct Case {
    const char* name;
    std::function<void()> edit;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {"blocks", [&] { replace(kConfig, "32\n", "16\n"); }, "_scale_inv': expected ["},
      {"blocks", [&] { replace(kConfig, "\"weight_block_size\"", "\"x\""); }, "_scale_inv': expected [] or [1] or ["},
      {"blocks", [&] { replace(kConfig, "\"fp8\"", "\"awq\""); }, "quant_method: expected fp8 or compressed-tensors"},
      {"blocks", [&] { replace(kConfig, "\"quantization_config\"", "\"x\""); }, "can read, found F8_E4M3"},
      {"blocks", [&] { replace(kWeights, scale + "\":{\"dtype\":\"F32\"", scale + "\":{\"dtype\":\"I32\""); },
       scale + "': expected scales in F32, F16 or BF16, found I32"},
      {"blocks", [&] { replace(kWeights, scale, q + "_scale_inw"); }, q + "': expected its scales as a tensor"},
      {"matrices", [&] { replace(kConfig, "\"activation_scheme\": \"dynamic\"", "\"weight_block_size\": [8, 8]"); },
       "_scale_inv': expected ["},
      {"blocks",
       [&] {
         overwrite(q, {1, 2, 0x7f});
       },
       q + ": expected values that BF16 can hold, found"},
      {"blocks",
       [&] {
         overwrite(scale, {0, 0, 0x80, 0x7f});
       },
       scale + "': expected finite scales >= 0, found inf"},
      {"blocks",
       [&] {
         overwrite(scale, {0, 0, 0x80, 0xbf});
       },
       scale + "': expected finite scales >= 0, found -1"},
      {"blocks",
       [&] {
         overwrite(scale, {0, 0, 0x7f, 0x7f});
       },
       q + ": expected values that BF16 can hold, found"},
      {"rows", [&] { replace(kConfig, "\"num_bits\": 8", "\"num_bits\": 4"); }, "weights.num_bits: expected 8"},
  };
  for (const Case& c : cases) {
    copy(c.name);
    c.edit();
    const std::string found = error();
    EXPECT_NE(found.find(c.expected), std::string::npos) << c.expected << "\n" << found;
    EXPECT_TRUE(found.starts_with(folder_.path())) << found;
  }
}

// Scales alone tell two models from each other, beyond the first MiB of their files as well.
TEST_F(F8Folder, ACacheKnowsItsScales) {
  copy("blocks");
  std::string text = read(kWeights);
  uint64_t header = 0;
  std::memcpy(&header, text.data(), 8);
  const std::string padding = R"("__metadata__":{"padding":")" + std::string(1 << 20, ' ') + "\"},";
  text.insert(9, padding);
  header += padding.size();
  std::memcpy(text.data(), &header, 8);
  std::ofstream(folder_.path() + kWeights, std::ios::binary) << text;
  const test::TemporaryFolder cache;
  const auto run = [&] { return hash_of({.model = folder_.path(), .cache = cache.path()}); };
  const std::string first = run();
  EXPECT_EQ(run(), first);
  const auto time = std::filesystem::last_write_time(folder_.path() + kWeights);
  overwrite("model.layers.0.mlp.down_proj.weight_scale_inv", {0, 0, 0x80, 0x3f});
  std::filesystem::last_write_time(folder_.path() + kWeights, time);
  const std::string second = run();
  EXPECT_NE(second, first);
  EXPECT_EQ(second, hash_of({.model = folder_.path()}));
}

}  // namespace
}  // namespace pop
