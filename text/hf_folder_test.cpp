// A Hugging Face folder's text files: which of them says what, and folders nobody should write.
#include "text/hf_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "text/tokenizer_goldens.h"

namespace pop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class HfFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = temporary_.path() + "/folder \u00fc";
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + '/' + name, std::ios::binary) << text;
  }
  void write_json(const std::string& name, const Json& value) { write(name, value.dump()); }
  void use(const char* name) {  // a golden tokenizer.json or tokenizer.model
    const std::string path = "tests/tokenizer/goldens/" + std::string(name);
    write(path.ends_with(".model") ? "tokenizer.model" : "tokenizer.json", read_bytes(path));
  }
  FolderText read(int vocab = 1100) const { return read_folder_text(folder_, vocab); }
  Tokenizer tokenizer() const { return Tokenizer(read().tokenizer.value()); }
  std::string error(int vocab = 1100) const {
    try {
      const FolderText text = read(vocab);
      if (text.tokenizer) Tokenizer tokenizer(*text.tokenizer);
      return "no error";
    } catch (const Error& e) {
      return std::string(e.what()).starts_with(folder_ + '/') ? std::string(e.what()).substr(folder_.size() + 1)
                                                              : e.what();
    }
  }

  test::TemporaryFolder temporary_;
  std::string folder_;
};

TEST_F(HfFolder, AFolderWithoutTextFilesHasNoTokenizer) {
  const FolderText text = read();
  EXPECT_FALSE(text.tokenizer.has_value());
  EXPECT_EQ(text.chat_template, "");
  EXPECT_EQ(text.tokenizer_file, "");
}

TEST_F(HfFolder, TheVocabularyIsAsLongAsTheEmbedding) {
  use("json/byte_bpe.json");
  const FolderText text = read(1500);
  EXPECT_EQ(text.tokenizer_file, "tokenizer.json");
  const Tokenizer tokenizer(text.tokenizer.value());
  EXPECT_EQ(tokenizer.vocab_size(), 1500);
  EXPECT_EQ(tokenizer.type(1499), TokenType::kUnused);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1499}), "");
  EXPECT_NE(error(900).find("tokens: expected at most 900, as the embedding has rows, found "), std::string::npos);
}

TEST_F(HfFolder, SpecialTokensComeFromTheConfigThenFromTheMap) {
  use("json/byte_bpe.json");
  write_json("special_tokens_map.json",
             Json{{"bos_token", "<|im_end|>"}, {"eos_token", {{"content", "<|endoftext|>"}}}});
  EXPECT_EQ(tokenizer().bos(), tokenizer().find("<|im_end|>"));
  EXPECT_EQ(tokenizer().eos(), tokenizer().find("<|endoftext|>"));
  EXPECT_FALSE(tokenizer().add_bos());
  write_json("tokenizer_config.json",
             Json{{"bos_token", {{"content", "<|im_start|>"}}}, {"eos_token", nullptr}, {"add_bos_token", true}});
  EXPECT_EQ(tokenizer().bos(), tokenizer().find("<|im_start|>"));
  EXPECT_EQ(tokenizer().eos(), tokenizer().find("<|endoftext|>"));
  EXPECT_TRUE(tokenizer().add_bos());
  write_json("tokenizer_config.json", Json{{"bos_token", "<none>"}});
  EXPECT_EQ(error(), "tokenizer_config.json: bos_token: expected a token of the vocabulary, found \"<none>\"");
  write_json("tokenizer_config.json", Json{{"add_bos_token", "yes"}});
  EXPECT_EQ(error(), "tokenizer_config.json: add_bos_token: expected true or false, found \"yes\"");
}

// public-cases T16: what the config says counts, whatever the post-processor adds.
TEST_F(HfFolder, AddBosTokenOverridesThePostProcessor) {
  use("json/char_bpe.json");
  EXPECT_TRUE(tokenizer().add_bos());
  write_json("tokenizer_config.json", Json{{"add_bos_token", false}});
  EXPECT_FALSE(tokenizer().add_bos());
  write_json("tokenizer_config.json", Json{{"add_bos_token", true}});
  use("json/byte_bpe.json");
  EXPECT_EQ(error(), "tokenizer.json: add_bos_token: true, but there is no bos_token_id");
}

// public-cases T18, T19: ends of generation from all files are joined.
TEST_F(HfFolder, EndsOfGenerationAreJoined) {
  use("json/byte_bpe.json");
  write_json("tokenizer_config.json", Json{{"eos_token", "<|endoftext|>"}});
  write_json("generation_config.json", Json{{"eos_token_id", {5, 9}}});
  write_json("config.json", Json{{"eos_token_id", 7}});
  const int32_t im_end = tokenizer().find("<|im_end|>").value();  // an end mark of a published format
  EXPECT_EQ(tokenizer().end_of_generation(), (std::vector<int32_t>{0, 5, 7, 9, im_end}));
  write_json("generation_config.json", Json{{"eos_token_id", {5, -1}}});
  EXPECT_EQ(error(), "generation_config.json: eos_token_id[1]: expected a token id below 4194304, found -1");
  write_json("generation_config.json", Json{{"eos_token_id", 1100}});
  EXPECT_EQ(error(), "tokenizer.json: eos_token_id: expected an id below 1100, found 1100");
}

TEST_F(HfFolder, TheTemplateIsTheFilesThenTheConfigs) {
  write_json("tokenizer_config.json", Json{{"chat_template", "A"}});
  EXPECT_EQ(read().chat_template, "A");
  write_json(
      "tokenizer_config.json",
      Json::parse(R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})"));
  EXPECT_EQ(read().chat_template, "D");
  write_json("tokenizer_config.json", Json::parse(R"({"chat_template":[{"name":"tool_use","template":"T"}]})"));
  EXPECT_EQ(error(), "tokenizer_config.json: chat_template: expected a template named \"default\", found a list");
  write("chat_template.jinja", "J\n");
  EXPECT_EQ(read().chat_template, "J\n");
}

TEST_F(HfFolder, SentencePieceFilesAndTheTokensAddedToThem) {
  use("sentencepiece/llama.model");
  write_json("tokenizer_config.json", Json::parse(R"({"added_tokens_decoder":{"1":{"content":"<s>","special":true},
                        "1102":{"content":"<|user|>","special":true},"1104":{"content":"<|x|>"}}})"));
  const FolderText text = read(1110);
  EXPECT_EQ(text.tokenizer_file, "tokenizer.model");
  const Tokenizer tokenizer(text.tokenizer.value());
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.encode("<|user|>", true), std::vector<int32_t>{1102});
  EXPECT_EQ(tokenizer.encode("a<|x|>", false).back(), 1104);
  EXPECT_EQ(tokenizer.type(1103), TokenType::kUnused);
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  const Json ids = golden("sentencepiece/ids.json").at("llama").at("ids");
  for (size_t i = 0; i < documents.size(); ++i)
    expect_numbers(tokenizer.encode(documents[i], false), ids[i], documents[i]);
  for (const auto& [key, part] :
       {std::pair("1110", "expected an id below 1110 as its name"), std::pair("x", "expected an id below 1110"),
        std::pair("2", "expected \"</s>\" as tokenizer.model has it")}) {
    write_json("tokenizer_config.json", Json{{"added_tokens_decoder", {{key, {{"content", "<y>"}}}}}});
    EXPECT_NE(error(1110).find(part), std::string::npos) << error(1110);
  }
  write_json("tokenizer_config.json",
             Json{{"added_tokens_decoder", {{"1102", {{"content", "<y>"}, {"rstrip", true}}}}}});
  EXPECT_NE(error(1110).find("1102.rstrip: expected false beside tokenizer.model"), std::string::npos) << error(1110);
  write_json("tokenizer_config.json", Json::parse(R"({"added_tokens_decoder":{"1102":{"content":"a b"}}})"));
  EXPECT_EQ(Tokenizer(read(1110).tokenizer.value()).encode("xa b", false).back(), 1102);
  write_json("tokenizer_config.json", Json::object());
  write_json("added_tokens.json", Json{{"<y>", 1102}});
  EXPECT_NE(error(1110).find("the tokens of added_tokens.json"), std::string::npos) << error(1110);
}

TEST_F(HfFolder, TheUnknownTokenOfTheConfigIsNotThatOfTheModel) {
  use("json/byte_bpe.json");
  const Tokenizer before = tokenizer();
  write_json("tokenizer_config.json", Json{{"unk_token", "a"}});
  for (const std::string text : {"a\u00e9\u4e16", "abc"})
    EXPECT_EQ(tokenizer().encode(text, false), before.encode(text, false));
}

TEST_F(HfFolder, DamagedFilesAreNamed) {
  write("tokenizer.json", "{");
  EXPECT_EQ(error(), "tokenizer.json: expected JSON, found an error at byte 2 of 1");
  fs::remove(folder_ + "/tokenizer.json");
  write("tokenizer.model", "\x0a");
  EXPECT_EQ(error(), "tokenizer.model: expected a whole varint, found a cut or too long one");
  write("tokenizer_config.json", "[]");
  EXPECT_EQ(error(), "tokenizer_config.json: expected an object, found a list");
  write("tokenizer_config.json", std::string(1000, '['));
  EXPECT_EQ(error(), "tokenizer_config.json: expected values nested at most 64 deep, found more at byte 64");
}

}  // namespace
}  // namespace pop
