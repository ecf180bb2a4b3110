// Hugging Face folders as they should not be (public bug reports: configurations that disagree with the weights), and as they
// may be: a header of an odd length, a head beside a tied one, a folder without a tokenizer.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
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
  config_ = replaced(config_, R"("model_type": "qwen2",)", "");  // another class would be refused for it
  const std::vector<std::array<std::string, 3>> cases = {
      {R"("num_key_value_heads": 1)", R"("num_key_value_heads": 7)", "k_proj.bias': expected [56], found [8] of F32"},
      {R"("vocab_size": 259)", R"("vocab_size": 300)", "embed_tokens.weight': expected [300, 56], found [259, 56]"},
      {R"("intermediate_size": 97)", R"("intermediate_size": 96)",
       "gate_proj.weight': expected [96, 56], found [97, 56]"},
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

// Checkpoints whose layers were cut to widths or heads of their own: the layer and both shapes are named, nothing runs on part of a
// matrix.
TEST_F(FolderTest, LayersOfOtherShapesAreNamed) {
  uint64_t size = 0;
  std::memcpy(&size, weights_.data(), 8);
  const auto header = nlohmann::json::parse(weights_.substr(8, size));
  // Writes the weights with the tensors of one layer cut to so many rows, or columns.
  const auto cut = [&](const std::map<std::string, std::array<size_t, 2>>& shapes) {
    nlohmann::json changed;
    std::string data;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      std::vector<size_t> shape = tensor["shape"];
      const size_t begin = tensor["data_offsets"][0];
      const std::string values = weights_.substr(8 + size + begin, tensor["data_offsets"][1].get<size_t>() - begin);
      const size_t cols = shape.size() == 2 ? shape[1] : 1;
      const auto it = shapes.find(name);
      if (it != shapes.end()) {
        shape[0] = it->second[0];
        if (shape.size() == 2) shape[1] = it->second[1];
      }
      const size_t from = data.size(), kept = shape.size() == 2 ? shape[1] : 1;
      for (size_t row = 0; row < shape[0]; ++row) data += values.substr(row * cols * 4, kept * 4);
      changed[name] = {{"dtype", tensor["dtype"]}, {"shape", shape}, {"data_offsets", {from, data.size()}}};
    }
    const std::string text = changed.dump();
    const uint64_t length = text.size();
    write("model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
    return error();
  };
  EXPECT_EQ(cut({}), "");
  const std::string layer = "model.layers.1.";
  const auto expect = [](const std::string& found, const std::string& expected) {
    EXPECT_NE(found.find(expected), std::string::npos) << found;
  };
  expect(cut({{layer + "mlp.gate_proj.weight", {48, 56}},
              {layer + "mlp.up_proj.weight", {48, 56}},
              {layer + "mlp.down_proj.weight", {56, 48}}}),
         "tensor 'model.layers.1.mlp.gate_proj.weight': expected [97, 56], found [48, 56] of F32");
  expect(cut({{layer + "self_attn.q_proj.weight", {40, 56}},
              {layer + "self_attn.q_proj.bias", {40, 1}},
              {layer + "self_attn.o_proj.weight", {56, 40}}}),
         "tensor 'model.layers.1.self_attn.q_proj.bias': expected [56], found [40] of F32");
  expect(cut({{layer + "self_attn.o_proj.weight", {56, 40}}}),
         "tensor 'model.layers.1.self_attn.o_proj.weight': expected [56, 56], found [56, 40] of F32");
}

// An expert more or fewer than the configuration says, another width, a layer that has none: named, never dropped.
TEST(FolderOfExperts, ConfigurationsThatDisagreeWithTheWeights) {
  const auto error_with = [](const std::string& name, const std::string& from, const std::string& to) -> std::string {
    const test::TemporaryFolder folder;
    std::filesystem::copy("tests/goldens/hf/" + name, folder.path());
    std::string config = contents(folder.path() + "/config.json");
    const size_t at = config.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::ofstream(folder.path() + "/config.json") << config.replace(at, from.size(), to);
    try {
      Engine({.model = folder.path(), .threads = 1});
      return "";
    } catch (const Exception& error) {
      return error.what();
    }
  };
  const std::vector<std::array<std::string, 4>> cases = {
      {"tiny-qwen2moe", R"("num_experts": 6)", R"("num_experts": 5)",
       "mlp.gate.weight': expected [5, 64], found [6, 64]"},
      {"tiny-qwen2moe", R"("moe_intermediate_size": 64)", R"("moe_intermediate_size": 65)",
       "experts.0.gate_proj.weight': expected [65, 64], found [64, 64]"},
      {"tiny-qwen2moe", R"("shared_expert_intermediate_size": 96)", R"("shared_expert_intermediate_size": 64)",
       "shared_expert.gate_proj.weight': expected [64, 64], found [96, 64]"},
      {"tiny-qwen3moe", R"("decoder_sparse_step": 1)", R"("decoder_sparse_step": 2)",
       "layers.0.mlp.gate_proj.weight' is missing"},
      {"tiny-qwen2moe", R"("mlp_only_layers": [)", R"("mlp_only_layers": [2,)",
       "layers.2.mlp.gate_proj.weight' is missing"},
      {"tiny-qwen2moe", R"("qkv_bias": true)", R"("qkv_bias": false)", "_proj.bias: not part of a qwen2moe model"},
      {"tiny-qwen3moe", R"("num_local_experts": 10)", R"("num_local_experts": 11)",
       "mlp.gate.weight': expected [11, 54], found [10, 54]"},
      {"tiny-mixtral", R"("intermediate_size": 45)", R"("intermediate_size": 44)",
       "block_sparse_moe.experts.0.w1.weight': expected [44, 56], found [45, 56]"},
  };
  for (const auto& [name, from, to, expected] : cases) {
    const std::string found = error_with(name, from, to);
    EXPECT_NE(found.find(expected), std::string::npos) << to << "\n" << found;
  }
}

// Whoever saved both a tied head and the embedding: a copy is none, anything else would be dropped unseen.
TEST_F(FolderTest, HeadBesideATiedOne) {
  const std::string before = hash();
  uint64_t size = 0;
  std::memcpy(&size, weights_.data(), 8);
  const auto header = nlohmann::json::parse(weights_.substr(8, size));
  const nlohmann::json& embedding = header["model.embed_tokens.weight"];
  const size_t begin = embedding["data_offsets"][0], bytes = embedding["data_offsets"][1].get<size_t>() - begin;
  const std::string data = weights_.substr(8 + size), copy = data.substr(begin, bytes);
  const auto with_head = [&](const std::string& head, const char* type, const nlohmann::json& shape) {
    nlohmann::json changed = header;
    changed["lm_head.weight"] = {
        {"dtype", type}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + head.size()}}};
    const std::string text = changed.dump();
    const uint64_t length = text.size();
    write("model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + text + data + head);
  };
  with_head(copy, "F32", embedding["shape"]);
  EXPECT_EQ(hash(), before);
  std::string other = copy;
  other.back() ^= 1;
  with_head(other, "F32", embedding["shape"]);
  const std::string expected = "tensor lm_head.weight: expected a copy of model.embed_tokens.weight";
  EXPECT_NE(error().find(expected), std::string::npos) << error();
  with_head(copy.substr(0, bytes / 2), "BF16", embedding["shape"]);
  EXPECT_NE(error().find(expected), std::string::npos) << error();
  with_head(copy, "F32", {embedding["shape"][1], embedding["shape"][0]});
  EXPECT_NE(error().find("lm_head.weight': expected [259, 56], found [56, 259]"), std::string::npos) << error();
}

// Expected hashes: Python's hashlib over the files, of each the first MiB and its size as eight bytes (in full: all bytes), in a
// folder those of the weights by name, then config.json.
TEST(ModelHash, OfAllFiles) {
  const auto hash = [](const std::string& model, bool full) {
    return Engine({.model = model, .threads = 1, .full_hash = full}).info().model_sha256;
  };
  const std::string folder = "tests/goldens/hf/tiny-mistral";
  EXPECT_EQ(hash("tests/goldens/tiny-qwen2.gguf", false),
            "03bfc01bc7deed62efdf47e1ab5e0acf74a09f43c66e2ce0c8fe2793da71d84f");
  EXPECT_EQ(hash("tests/goldens/tiny-qwen2.gguf", true),
            "381f4bf986ef9b6f69e6e0f1a39dbaca6c67cb83c31619e9da5c18548d6d8eaa");
  EXPECT_EQ(hash(folder, false), "fe09764f9396dae579dd64a47c525edbb5f727578019a56478c578f6a7cbb295");
  EXPECT_EQ(hash(folder, true), "624724fc058216ab58b893a66221f46bdb385887fb0d5ddad5fc22321aadf40f");
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
        quantize(type, wide.data(), reinterpret_cast<uint8_t*>(values.data()), int64_t(wide.size()));
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

// A window wider than any context changes nothing; least of all which of LongRoPE's factors hold.
TEST(FolderOfLongTexts, AWideWindowChangesNothing) {
  test::TemporaryFolder folder;
  std::filesystem::copy("tests/goldens/hf/tiny-phi3-long", folder.path());
  std::vector<int32_t> prompt;
  for (int i = 0; i < 24; ++i) prompt.push_back(1 + i * 7 % 250);
  const auto hash = [&](int context) {
    Engine engine({.model = folder.path(), .threads = 1, .context = context});
    return engine.session()->generate(prompt, {.max_tokens = 5, .ignore_eos = true}).logits_hash;
  };
  const std::string in_short = hash(32), in_long = hash(512);
  EXPECT_NE(in_short, in_long);
  std::string config = contents(folder.path() + "/config.json");
  const std::string none = R"("sliding_window": null)";
  ASSERT_NE(config.find(none), std::string::npos);
  config.replace(config.find(none), none.size(), R"("sliding_window": 262144)");
  std::ofstream(folder.path() + "/config.json") << config;
  EXPECT_EQ(hash(32), in_short);
  EXPECT_EQ(hash(512), in_long);
}

}  // namespace
}  // namespace pop
