// The default model's tokenizer against Hugging Face tokenizers built from the same vocabulary (make_goldens.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/gguf.h"
#include "text/tokenizer_goldens.h"

namespace pop {
namespace {

constexpr const char* kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

Tokenizer from_file(const std::string& path) {
  const GgufFile file(path);
  const std::string prefix = "tokenizer.ggml.";
  TokenizerData data;
  data.model = file.get_string(prefix + "model");
  data.pre = file.get_string(prefix + "pre");
  data.tokens = file.get_strings(prefix + "tokens");
  data.token_types = file.get_i32s(prefix + "token_type", data.tokens.size());
  data.merges = file.get_strings(prefix + "merges");
  data.bos = static_cast<int32_t>(file.get_u64(prefix + "bos_token_id"));
  data.eos = static_cast<int32_t>(file.get_u64(prefix + "eos_token_id"));
  data.add_bos = file.find_bool(prefix + "add_bos_token");
  return Tokenizer(data);
}

TEST(DefaultModelTokenizer, IdsAreHuggingFaces) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is not there (scripts/quickstart fetches it)";
  const Tokenizer tokenizer = from_file(kModel);
  expect_golden_ids(tokenizer, golden("smollm.json"), "smollm");
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_EQ(tokenizer.end_of_generation(), (std::vector<int32_t>{0, 2}));  // <|endoftext|>, <|im_end|>
  EXPECT_FALSE(tokenizer.add_bos());
  // This vocabulary has no token for 13 bytes that UTF-8 never or hardly has, and for 8 control characters.
  EXPECT_EQ(tokenizer.missing_bytes().size(), 21u);
}

TEST(DefaultModelTokenizer, IdsOfTheDataSetsAreHuggingFaces) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is not there (scripts/quickstart fetches it)";
  const std::string data = std::filesystem::exists("data/wikitext2_raw") ? "data/" : "../shared/data/";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "the data sets are not there (data/ or ../shared/data/)";
  const Tokenizer tokenizer = from_file(kModel);
  const auto goldens = golden("smollm.json").at("files");
  ASSERT_EQ(goldens.size(), 4u);
  for (const auto& [name, expected] : goldens.items()) {
    std::ifstream file(data + name, std::ios::binary);
    ASSERT_TRUE(file) << data + name;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto ids = tokenizer.encode(text, true);
    expect_numbers(ids, expected, name);
    EXPECT_EQ(tokenizer.decode(ids), text) << name;
  }
}

}  // namespace
}  // namespace pop
