// tokenizer.json against Hugging Face `tokenizers` (tests/tokenizer/make_json_goldens.py), and files nobody should write.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/tokenizer_goldens.h"

namespace pop {
namespace {

using Json = nlohmann::json;

Json base(const std::string& name) { return golden("json/" + name + ".json"); }

// "model.x" is a member of the model, any other of the file.
Json with(Json value, const Json& members) {
  for (const auto& [key, member] : members.items())
    (key.starts_with("model.") ? value["model"][key.substr(6)] : value[key]) = member;
  return value;
}

Tokenizer tokenizer_of(const Json& value) { return Tokenizer(read_tokenizer_json(value.dump())); }

std::string text_hash(const std::string& text) {
  return sha256_hex(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())).substr(0, 16);
}

TEST(TokenizerJson, IdsAndTextsAreHuggingFacesForEveryVariant) {
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  const Json variants = golden("json/variants.json");
  ASSERT_EQ(variants.size(), 18u);
  for (const auto& [name, variant] : variants.items()) {
    const Tokenizer tokenizer = tokenizer_of(with(base(variant.at("file")), variant.at("members")));
    const Json& results = variant.at("results");
    ASSERT_EQ(results.at("parsed").size(), documents.size());
    for (size_t i = 0; i < documents.size(); ++i) {
      const std::string where = name + ", document " + std::to_string(i);
      const auto parsed = tokenizer.encode(documents[i], true);
      const Json& plain = results.at("plain")[i];
      expect_numbers(parsed, results.at("parsed")[i], where + ", special tokens parsed");
      expect_numbers(tokenizer.encode(documents[i], false), plain == "=" ? results.at("parsed")[i] : plain, where);
      // `words` changes added tokens: the reference shows them changed, we as the file has them.
      if (name == "words") continue;
      EXPECT_EQ(text_hash(tokenizer.decode(parsed, true)), results.at("decoded")[i].get<std::string>()) << where;
    }
  }
}

// tokenizers 0.23.3: [1, 0, 0, 1], [1, 0, 1], [1, 1], [1, 1].
TEST(TokenizerJson, BytesWithoutATokenBecomeTheUnknownOneWhereThereIsOne) {
  const std::vector<std::pair<Json, bool>> cases = {
      {"<unk>", false}, {"<unk>", true}, {nullptr, false}, {nullptr, true}};
  const std::vector<std::vector<int32_t>> ids = {{1, 0, 0, 1}, {1, 0, 1}, {1, 1}, {1, 1}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json model = {{"type", "BPE"},
                        {"unk_token", cases[i].first},
                        {"fuse_unk", cases[i].second},
                        {"vocab", {{"<unk>", 0}, {"a", 1}}},
                        {"merges", Json::array()}};
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Tokenizer tokenizer =
        tokenizer_of({{"model", model}, {"pre_tokenizer", bytes}, {"decoder", {{"type", "ByteLevel"}}}});
    EXPECT_EQ(tokenizer.encode("abba", false), ids[i]) << cases[i].first << cases[i].second;
  }
}

// A file of some kilobytes must not ask for more memory than there is.
TEST(TokenizerJson, RulesThatLengthenATextWithoutEndAreAnError) {
  Json rules = Json::array();
  for (int i = 0; i < 40; ++i)
    rules.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  const Tokenizer tokenizer =
      tokenizer_of(with(base("byte_bpe"), {{"normalizer", {{"type", "Sequence"}, {"normalizers", rules}}}}));
  try {
    tokenizer.encode(std::string(1000, 'a'), false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("once it is normalized"), std::string::npos) << error.what();
  }
}

TEST(TokenizerJson, ThePostProcessorSaysWhetherBosIsAdded) {
  const Json variants = golden("json/variants.json");
  const auto bos = [&](const Json& value) {
    const Tokenizer tokenizer = tokenizer_of(value);
    return std::make_pair(tokenizer.add_bos(), tokenizer.bos());
  };
  EXPECT_EQ(bos(with(base("byte_bpe"), variants.at("llama3").at("members"))), std::make_pair(true, 0));
  EXPECT_EQ(bos(base("byte_bpe")), std::make_pair(false, -1));
  EXPECT_EQ(bos(base("char_bpe")), std::make_pair(true, 0));
  EXPECT_EQ(bos(with(base("char_bpe"), {{"post_processor", nullptr}})), std::make_pair(false, -1));
}

// What the message says after "tokenizer.json: ".
std::string error_of(const std::string& bytes) {
  try {
    Tokenizer tokenizer(read_tokenizer_json(bytes));
    return "no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("tokenizer.json: ")) << message;
    return message.substr(16);
  }
}

std::string error_with(const char* file, const Json& members) { return error_of(with(base(file), members).dump()); }

TEST(TokenizerJson, WhatIsNotSupportedIsAnErrorThatNamesTheComponent) {
  const auto has = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto type = [](const char* name) { return Json{{"type", name}}; };
  for (const char* name : {"BertNormalizer", "Precompiled", "StripAccents", "Nmt", "x"})
    has(error_with("byte_bpe", {{"normalizer", type(name)}}),
        "normalizer.type: expected NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace or Sequence, found \"" +
            std::string(name) + '"');
  for (const char* name : {"BertPreTokenizer", "Whitespace", "UnicodeScripts", "CharDelimiterSplit"})
    has(error_with("byte_bpe", {{"pre_tokenizer", type(name)}}), "found \"" + std::string(name) + '"');
  for (const char* name : {"WordPiece", "BPEDecoder", "CTC"})
    has(error_with("byte_bpe", {{"decoder", type(name)}}), "decoder.type: expected ByteLevel, ");
  for (const char* name : {"BertProcessing", "RobertaProcessing"})
    has(error_with("byte_bpe", {{"post_processor", type(name)}}), "post_processor.type: expected TemplateProcessing");
  for (const char* name : {"WordPiece", "WordLevel", ""})
    has(error_with("byte_bpe", {{"model.type", name}}), "model.type: expected BPE, or Unigram");
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+|[^\\w\\s]+"}}}, {"behavior", "Isolated"}};
  EXPECT_EQ(error_with("byte_bpe", {{"pre_tokenizer", split}}),
            "pre_tokenizer.pattern.Regex: expected one of the published patterns (docs/tokenizers.md), found "
            "\"\\w+|[^\\w\\s]+\"");
  has(error_with("char_bpe", {{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "b"}}}}),
      "normalizer.pattern.String: expected a string to replace (patterns are not supported), found none");
  has(error_with("byte_bpe", {{"decoder", nullptr}}), "decoder: expected an object, found none");
  has(error_with("byte_bpe", {{"pre_tokenizer", nullptr}}), "decoder: expected ByteLevel if and only if");
  has(error_with("byte_bpe", {{"model.dropout", 0.1}}), "model.dropout: expected none, found 0.1");
  has(error_with("byte_bpe", {{"model.continuing_subword_prefix", "##"}}),
      "expected none (not supported), found \"##\"");
  has(error_with("byte_bpe", {{"model.end_of_word_suffix", "</w>"}}), "model.end_of_word_suffix");
  has(error_with("char_bpe", {{"model.unk_token", "<none>"}}), "model.unk_token: expected a token of the vocabulary");
}

TEST(TokenizerJson, TokensThatContradictEachOtherAreAnError) {
  const auto has = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto token = [](Json id, Json content) {
    return Json::array({{{"id", std::move(id)}, {"content", std::move(content)}, {"special", true}}});
  };
  has(error_with("byte_bpe", {{"model.vocab", {{"a", 0}, {"b", 0}}}, {"model.merges", Json::array()}}),
      "model.vocab: expected every id once, found 0 for \"a\" and \"b\"");
  has(error_with("byte_bpe", {{"model.vocab", {{"a", -1}}}}),
      "model.vocab: \"a\": expected a token id below 4194304, found -1");
  has(error_with("byte_bpe", {{"model.vocab", {{"a", 4194304}}}}), "found 4194304");
  has(error_with("byte_bpe", {{"model.vocab", {{"a", 1.5}}}}), "found 1.5");
  has(error_with("byte_bpe", {{"model.vocab", {{"a", "1"}}}}), "found \"1\"");
  has(error_with("byte_bpe", {{"model.vocab", Json::array()}}), "model.vocab: expected an object, found a list");
  has(error_with("byte_bpe", {{"model.merges", Json::parse(R"(["nospace"])")}}),
      "merges: expected \"left right\" as merge 0");
  has(error_with("byte_bpe", {{"model.merges", Json::parse(R"([["a","b","c"]])")}}),
      "model.merges[0]: expected two tokens");
  has(error_with("byte_bpe", {{"model.merges", Json::parse(R"([["a b","c"]])")}}),
      "model.merges[0][0]: expected a token without spaces");
  has(error_with("byte_bpe", {{"model.merges", Json::parse(R"([["zz","qq"]])")}}),
      "needs a normal token \"zz\", the vocabulary has none");
  has(error_with("byte_bpe", {{"added_tokens", token(5, "other")}}),
      "added_tokens: expected every id once, found 5 for ");
  has(error_with("byte_bpe", {{"added_tokens", token(5000000, "x")}}), "added_tokens[0].id: expected a token id below");
  has(error_with("byte_bpe", {{"added_tokens", token(2000, "")}}),
      "added_tokens[0].content: expected a text, found \"\"");
  has(error_with("byte_bpe", {{"added_tokens", token(2000, "a")}}), "tokens: expected every text once, found \"a\"");
  has(error_with("byte_bpe", {{"added_tokens", 7}}), "added_tokens: expected a list, found 7");
  has(error_with("unigram", {{"model.vocab", Json::parse(R"([["a","b"]])")}}),
      "model.vocab[0][1]: expected a number, found \"b\"");
  has(error_with("unigram", {{"model.vocab", Json::parse(R"([["a"]])")}}), "expected a token and its score");
  has(error_with("unigram", {{"model.unk_id", 99999}}),
      "model.unk_id: expected a token of the vocabulary, found 99999");
  // A token that only its added token's merge would make must not be a control token.
  Json forged = base("byte_bpe");
  forged["added_tokens"].push_back({{"id", forged["model"]["vocab"]["th"]}, {"content", "th"}, {"special", true}});
  has(error_of(forged.dump()), "needs a normal token \"th\", the vocabulary has another type");
}

TEST(TokenizerJson, HolesAreUnusedTokens) {
  Json value = base("byte_bpe");
  const int32_t last = value["added_tokens"].back()["id"];
  value["added_tokens"].push_back({{"id", last + 5}, {"content", "<far>"}, {"special", true}});
  const Tokenizer tokenizer = tokenizer_of(value);
  EXPECT_EQ(tokenizer.vocab_size(), last + 6);
  EXPECT_EQ(tokenizer.encode("<far>", true), std::vector<int32_t>{last + 5});
  EXPECT_EQ(tokenizer.type(last + 1), TokenType::kUnused);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{last + 1, last + 2}), "");
}

TEST(TokenizerJson, DeepCutAndDamagedFilesAreOneLine) {
  EXPECT_EQ(error_of(std::string(100000, '[')), "expected values nested at most 64 deep, found more at byte 64");
  EXPECT_EQ(error_of(""), "expected JSON, found an error at byte 1 of 0");
  EXPECT_EQ(error_of("{\"model\":1e999}"), "expected JSON, found a number that is too large");
  EXPECT_EQ(error_of("[]"), "expected an object, found a list");
  EXPECT_NE(error_of("{\"model\":{\"type\":\"\xff\"}}").find("expected JSON"), std::string::npos);
  const std::string text = base("char_bpe").dump();
  for (size_t size = 0; size < text.size(); size += 97)
    EXPECT_NE(error_of(text.substr(0, size)).find("expected JSON, found an error at byte"), std::string::npos);
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = "\"{}[],:019aetu\\ \xe2"[random() % 17];
    EXPECT_EQ(error_of(damaged).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace pop
