// The text side of model files: SentencePiece vocabularies as GGUF metadata.
#include "engine/text_model.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "text/tokenizer_goldens.h"

namespace pop {
namespace {

// The golden vocabulary `llama` as converters write it: spaces in user-defined tokens.
struct Metadata {
  TokenizerData data = read_vocabulary("tests/tokenizer/goldens/sentencepiece/llama.model");
  std::vector<int32_t> types = data.token_types;
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};

  TextModel model() {
    GgufWriter writer;
    writer.set_string("general.architecture", "llama");
    writer.set_string("tokenizer.ggml.model", "llama");
    writer.set_strings("tokenizer.ggml.tokens", data.tokens);
    if (!data.scores.empty())
      writer.set_f32s("tokenizer.ggml.scores", std::vector<float>(data.scores.begin(), data.scores.end()));
    if (!types.empty()) writer.set_i32s("tokenizer.ggml.token_type", types);
    writer.set_u32("tokenizer.ggml.bos_token_id", uint32_t(data.bos));
    writer.set_u32("tokenizer.ggml.eos_token_id", uint32_t(data.eos));
    more(writer);
    const std::string path = testing::TempDir() + "/text_model_test.gguf";
    writer.write(path);
    return TextModel(GgufFile(path), "auto", int(data.tokens.size()));
  }
  std::string error() {
    try {
      model();
      return "no error";
    } catch (const Error& e) {
      return e.what();
    }
  }
};

TEST(TextModel, SentencePieceMetadataGiveTheLibrarysIds) {
  Metadata metadata;
  for (size_t id = 0; id < metadata.types.size(); ++id)
    if (metadata.types[id] == 4 && metadata.data.tokens[id].starts_with(kSpaceMark)) metadata.data.tokens[id] = "   ";
  const TextModel text = metadata.model();
  EXPECT_EQ(text.bos_description(), "added");
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  const auto goldens = golden("sentencepiece/ids.json").at("llama").at("ids");
  for (size_t i = 0; i < documents.size(); ++i) {
    auto ids = text.prompt(documents[i], false);
    ASSERT_EQ(ids.front(), text.tokenizer().bos());
    ids.erase(ids.begin());
    expect_numbers(ids, goldens.at(i), "document " + std::to_string(i));
  }
}

TEST(TextModel, WhatSentencePieceMetadataSayCounts) {
  Metadata metadata;
  metadata.more = [](GgufWriter& writer) {
    writer.set_bool("tokenizer.ggml.add_space_prefix", false);
    writer.set_bool("tokenizer.ggml.add_bos_token", false);
    writer.set_bool("tokenizer.ggml.remove_extra_whitespaces", false);
  };
  const TextModel text = metadata.model();
  EXPECT_EQ(text.bos_description(), "not added");
  EXPECT_EQ(text.tokenizer().encode("a", true).size(), 1u);
  EXPECT_EQ(text.tokenizer().decode(text.prompt(" a", true)), " a");
}

TEST(TextModel, BadSentencePieceMetadataIsAnErrorThatNamesTheKey) {
  const auto error = [](const std::function<void(Metadata&)>& damage) {
    Metadata metadata;
    damage(metadata);
    return metadata.error();
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("text_model_test.gguf: "), std::string::npos) << message;
  };
  expect(error([](Metadata& m) { m.data.scores.clear(); }),
         "key tokenizer.ggml.scores: expected it in a SentencePiece");
  expect(error([](Metadata& m) { m.data.scores.pop_back(); }), "tokenizer.ggml.scores");
  expect(error([](Metadata& m) { m.types.clear(); }), "key tokenizer.ggml.token_type: expected it in a SentencePiece");
  expect(error([](Metadata& m) { m.types.pop_back(); }), "tokenizer.ggml.token_type");
  // public-cases G10: arrays of another element type.
  expect(error([](Metadata& m) {
           m.data.scores.clear();
           m.more = [](GgufWriter& w) { w.set_i32s("tokenizer.ggml.scores", std::vector<int32_t>(2000, 1)); };
         }),
         "tokenizer.ggml.scores");
  expect(error([](Metadata& m) {
           m.types.clear();
           m.more = [](GgufWriter& w) { w.set_f32s("tokenizer.ggml.token_type", std::vector<float>(2000, 1)); };
         }),
         "tokenizer.ggml.token_type");
  expect(error([](Metadata& m) {
           m.more = [](GgufWriter& w) { w.set_bool("tokenizer.ggml.remove_extra_whitespaces", true); };
         }),
         "remove_extra_whitespaces: expected false, found true (not supported)");
  expect(error([](Metadata& m) {
           m.more = [](GgufWriter& w) { w.set_string("tokenizer.ggml.precompiled_charsmap", "x"); };
         }),
         "precompiled_charsmap: expected none, found one (not supported)");
}

}  // namespace
}  // namespace pop
