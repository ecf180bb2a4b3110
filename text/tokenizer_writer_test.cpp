// Tokenizer files that are written are read as the same tokenizer; that other programs do is python/check_convert.py's.
#include "text/tokenizer_writer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_goldens.h"
#include "text/tokenizer_json.h"

namespace pop {
namespace {

void expect_same_vocabulary(const TokenizerData& a, const TokenizerData& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.token_types, b.token_types);
  EXPECT_EQ(a.scores, b.scores);
  EXPECT_EQ(a.merges, b.merges);
  EXPECT_EQ(a.add_space_prefix, b.add_space_prefix);
}

TEST(WriteSentencePiece, IsReadAsTheSame) {
  for (const char* name : {"llama", "bpe_bare"}) {
    TokenizerData data =
        read_sentencepiece_model(read_bytes(fmt::format("tests/tokenizer/goldens/sentencepiece/{}.model", name)));
    for (const bool prefix : {true, false}) {
      data.add_space_prefix = prefix;
      const TokenizerData back = read_sentencepiece_model(write_sentencepiece_model(data));
      expect_same_vocabulary(data, back);
      for (const auto member : {&TokenizerData::bos, &TokenizerData::eos, &TokenizerData::unk, &TokenizerData::pad})
        EXPECT_EQ(data.*member, back.*member) << name;
    }
  }
}

// Steps behind every published name, with and without BOS, and tokens of every type.
TEST(WriteTokenizerJson, IsReadAsTheSame) {
  for (const std::string_view name : PreTokenizer::names()) {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = name;
    data.tokens = {"<s>", "a", "b", "ab", "\u0120ab", "tool call", "[PAD6]", "\u0120"};
    data.token_types = {3, 1, 1, 1, 1, 4, 5, 1};
    data.merges = {"a b", "\u0120 ab"};
    data.bos = 0;
    if (name == "default") {
      EXPECT_THROW(write_tokenizer_json(data, false), Error);
      continue;
    }
    for (const bool bos : {false, true}) {
      TokenizerData back = read_tokenizer_json(write_tokenizer_json(data, bos));
      ASSERT_EQ(PreTokenizer::name_of(*back.steps), PreTokenizer::published(name).name);
      EXPECT_EQ(back.add_bos, bos);
      EXPECT_EQ(back.bos, bos ? 0 : -1);
      EXPECT_EQ(back.tokens[6], "");  // an unused token has no text there
      back.tokens[6] = data.tokens[6];
      expect_same_vocabulary(data, back);
    }
  }
}

TEST(WriteTokenizerJson, TokensThatAreNoTextAreNamed) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.keys = "tokenizer.ggml.";
  data.tokens = {"a", "\xff"};
  data.token_types = {1, 1};
  try {
    write_tokenizer_json(data, false);
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.ggml.tokens: token 1: expected UTF-8"), std::string::npos)
        << error.what();
  }
}

TEST(WriteTokenizerJson, StepsWithoutANameHaveNone) {
  TextSteps steps;
  steps.cuts.push_back({"[0-9]"});
  EXPECT_EQ(PreTokenizer::name_of(steps), std::nullopt);
  const TokenizerData spelt = read_tokenizer_json(read_bytes("tests/tokenizer/goldens/json/char_bpe.json"));
  EXPECT_EQ(PreTokenizer::name_of(*spelt.steps), std::nullopt);
  EXPECT_THROW(write_tokenizer_json(spelt, false), Error);
  EXPECT_THROW(write_sentencepiece_model(spelt), Error);
}

}  // namespace
}  // namespace pop
