// Hugging Face folders as they should not be (public bug reports: configurations that disagree with the weights), and as they
// may be: a header of an odd length, a head beside a tied one, a folder without a tokenizer.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/temporary_folder.h"
#include "engine/pop.h"
#include "tests/toy_model.h"

namespace pop {
namespace {

constexpr const char* kSource = "tests/goldens/hf/tiny-qwen2";

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(kSource, folder_.path());
    config_ = contents(folder_.path() + "/config.json");
    weights_ = contents(folder_.path() + "/model.safetensors");
  }
  void write(const char* name, const std::string& text) {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << text;
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  Engine open() const { return Engine({.model = folder_.path(), .threads = 1}); }
  std::string hash() const { return hash_of(folder_.path()); }
  static std::string hash_of(const std::string& model) {
    Engine engine({.model = model, .threads = 1});
    const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
    return engine.session()->generate(prompt, {.max_tokens = 5, .ignore_eos = true}).logits_hash;
  }
  std::string error() const {
    try {
      open();
      return "";
    } catch (const Exception& error) {
      return error.what();
    }
  }
  test::TemporaryFolder folder_;
  std::string config_, weights_;
};

TEST_F(FolderTest, ConfigurationsThatDisagreeWithTheWeights) {
  const std::vector<std::array<std::string, 3>> cases = {
      {R"("num_key_value_heads": 1)", R"("num_key_value_heads": 7)", "k_proj.bias': expected [56], found [8] of F32"},
      {R"("vocab_size": 259)", R"("vocab_size": 300)", "embed_tokens.weight': expected [300, 56], found [259, 56]"},
      {R"("intermediate_size": 97)", R"("intermediate_size": 96)",
       "down_proj.weight': expected [56, 96], found [56, 97]"},
      {R"("num_hidden_layers": 3)", R"("num_hidden_layers": 4)", "layer_types: expected one for each of 4 layers"},
      {R"("head_dim": 8)", R"("head_dim": 4)", "q_proj.bias': expected [28], found [56] of F32"},
      {R"("tie_word_embeddings": true)", R"("tie_word_embeddings": false)", "tensor 'lm_head.weight' is missing"},
      {R"(Qwen2ForCausalLM)", R"(Qwen3ForCausalLM)", "self_attn.q_norm.weight' is missing"},
      {R"(Qwen2ForCausalLM)", R"(LlamaForCausalLM)", "_proj.bias: not part of a llama model"},
      {R"(Qwen2ForCausalLM)", R"(FalconForCausalLM)", "architectures: expected one of"},
  };
  for (const auto& [from, to, expected] : cases) {
    write("config.json", replaced(config_, from, to));
    const std::string found = error();
    EXPECT_NE(found.find(expected), std::string::npos) << to << "\n" << found;
    EXPECT_TRUE(found.starts_with(folder_.path())) << found;
  }
}

TEST_F(FolderTest, UnalignedWeights) {
  const std::string before = hash();
  uint64_t size = 0;
  std::memcpy(&size, weights_.data(), 8);
  const uint64_t longer = size + 1;
  std::string moved(reinterpret_cast<const char*>(&longer), 8);
  write("model.safetensors", moved + weights_.substr(8, size) + " " + weights_.substr(8 + size));
  EXPECT_EQ(hash(), before);
}

// Matrices in half the bytes, as most models are published: the bits of a GGUF file of that type.
TEST_F(FolderTest, HalfFloats) {
  uint64_t size = 0;
  std::memcpy(&size, weights_.data(), 8);
  const auto header = nlohmann::json::parse(weights_.substr(8, size));
  for (const DType type : {DType::BF16, DType::F16}) {
    nlohmann::json changed;
    std::string data;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      const size_t begin = tensor["data_offsets"][0], bytes = tensor["data_offsets"][1].get<size_t>() - begin;
      std::string values = weights_.substr(8 + size + begin, bytes);
      changed[name] = tensor;
      if (tensor["shape"].size() == 2) {
        std::vector<float> wide(bytes / 4);
        std::memcpy(wide.data(), values.data(), bytes);
        values.resize(bytes / 2);
        quantize_reference(type, wide.data(), reinterpret_cast<uint8_t*>(values.data()), int64_t(wide.size()));
        changed[name]["dtype"] = traits(type).name;
      }
      changed[name]["data_offsets"] = {data.size(), data.size() + values.size()};
      data += values;
    }
    const std::string text = changed.dump();
    size = text.size();
    write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
    const std::string gguf = test::requantised("tests/goldens/tiny-qwen2.gguf", type, folder_.path());
    EXPECT_EQ(hash(), hash_of(gguf)) << traits(type).name;
    std::memcpy(&size, weights_.data(), 8);
  }
}

TEST_F(FolderTest, WithoutTokenizer) {
  Engine engine = open();
  EXPECT_THROW(engine.encode("text"), Exception);
  EXPECT_THROW(engine.prompt("text"), Exception);
  EXPECT_FALSE(engine.ends_generation(7));
  const std::vector<int32_t> prompt = {1, 2, 3};
  const GenerateResult free = engine.session()->generate(prompt, {.max_tokens = 6});
  EXPECT_EQ(free.ids.size(), 6u);
  // The third id that it wrote ends a generation now.
  write("generation_config.json", "{\"eos_token_id\": [" + std::to_string(free.ids[2]) + "]}");
  Engine ends = open();
  EXPECT_TRUE(ends.ends_generation(free.ids[2]));
  EXPECT_LE(ends.session()->generate(prompt, {.max_tokens = 6}).ids.size(), 3u);
}

// "dynamic" is run as far as it changes nothing.
TEST_F(FolderTest, DynamicPositionsEndWithTheTrainedContext) {
  const std::string before = hash();
  write("config.json", replaced(config_, R"("rope_type": "default")", R"("rope_type": "dynamic", "factor": 2.0)"));
  EXPECT_EQ(hash(), before);
  EXPECT_NO_THROW(Engine({.model = folder_.path(), .context = 512}));
  EXPECT_THROW(Engine({.model = folder_.path(), .context = 513}), Exception);
}

}  // namespace
}  // namespace pop
