// SentencePiece vocabularies: goldens of the `sentencepiece` library (tests/tokenizer/make_sentencepiece_goldens.py), small
// ones by hand, and damaged ones.
#include "text/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/error.h"
#include "text/normalize.h"
#include "text/tokenizer_goldens.h"

namespace pop {
namespace {

using Ids = std::vector<int32_t>;

std::string golden_model(const std::string& name) {
  return read_bytes("tests/tokenizer/goldens/sentencepiece/" + name + ".model");
}

TokenizerData golden_data(const std::string& name) { return read_sentencepiece_model(golden_model(name)); }

std::string text_hash(const std::string& text) {
  return sha256_hex(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())).substr(0, 16);
}

// Llama's spelling, small enough to check by hand: the earlier a token stands, the better its score.
TokenizerData tiny() {
  TokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "</s>"};
  data.token_types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    data.token_types.push_back(6);
  }
  for (const char* token : {"\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "aa", "aaaa", "Hello", "\u2581Hello", "H",
                            "e", "l", "o", "He", "ll", "llo", "\n", "\u2581\u2581"})
    data.tokens.push_back(token);
  data.token_types.resize(data.tokens.size(), 1);
  for (size_t id = 0; id < data.tokens.size(); ++id) data.scores.push_back(id < 259 ? 0 : -float(id));
  data.unk = 0, data.bos = 1, data.eos = 2;
  return data;
}

int32_t id_of(const Tokenizer& tokenizer, const char* text) { return tokenizer.find(text).value(); }

TEST(SentencePiece, IdsAndTextsAreTheLibrarys) {
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  const auto goldens = golden("sentencepiece/ids.json");
  ASSERT_EQ(goldens.size(), 5u);
  for (const auto& [name, expected] : goldens.items()) {
    const Tokenizer tokenizer(golden_data(name));
    ASSERT_EQ(expected.at("ids").size(), documents.size());
    for (size_t i = 0; i < documents.size(); ++i) {
      const std::string where = name + ", document " + std::to_string(i);
      const Ids ids = tokenizer.encode(documents[i], false);
      expect_numbers(ids, expected.at("ids")[i], where);
      std::string text = tokenizer.decode(ids, true);
      StreamDecoder stream(tokenizer, true);
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.flush(), text) << where;
      // The library writes U+2047 where the unknown token stands; nothing is left out of a text with byte tokens.
      if (name == "llama" || name == "unigram_bytes") {
        EXPECT_EQ(text, documents[i]) << where;
        EXPECT_EQ(text_hash(text), expected.at("texts")[i]) << where;
      }
    }
  }
}

// public-cases T01: one space in front, those of the text kept.
TEST(SentencePiece, OneSpaceIsPutInFrontAndTakenAwayAgain) {
  const Tokenizer tokenizer(tiny());
  const auto id = [&](const char* text) { return id_of(tokenizer, text); };
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"Hello", {id(" Hello")}},
      {" Hello", {id(" "), id(" Hello")}},
      {"  Hello", {id("  "), id(" Hello")}},
      {"", {}},
      {"\n", {id(" "), id("\n")}},
      {"a b", {id(" a"), id(" "), id("b")}},
      {" ", {id("  ")}},
  };
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer.encode(text, true), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
    Ids with_bos = tokenizer.encode(text, true);
    EXPECT_TRUE(tokenizer.apply_bos(with_bos, BosMode::kAuto));  // Llama's rule where the file is silent
    EXPECT_EQ(with_bos.size(), ids.size() + 1);
    EXPECT_EQ(tokenizer.decode(with_bos, true), text);
  }
  TokenizerData data = tiny();
  data.add_space_prefix = false;
  const Tokenizer bare(data);
  EXPECT_EQ(bare.encode("Hello Hello", true), (Ids{id("Hello"), id(" Hello")}));
  EXPECT_EQ(bare.decode(Ids{id(" Hello")}), " Hello");
}

// public-cases T04: pieces of a continuation, joined, are decode(all) less decode(prompt).
TEST(SentencePiece, AContinuationKeepsItsSpace) {
  const Tokenizer tokenizer(golden_data("llama"));
  for (const std::string& text : golden("texts.json").get<std::vector<std::string>>()) {
    const Ids all = tokenizer.encode(text, true);
    for (size_t cut = 0; cut <= all.size(); cut += 1 + all.size() / 7) {
      const std::span prompt(all.data(), cut);
      const std::string before = tokenizer.decode(prompt, true);
      StreamDecoder stream(tokenizer, true, cut == 0);
      std::string streamed;
      for (size_t i = cut; i < all.size(); ++i) streamed += stream.push(all[i]);
      ASSERT_EQ(before + streamed + stream.flush(), tokenizer.decode(all, true)) << printable(text) << " at " << cut;
      ASSERT_EQ(before + tokenizer.decode(std::span(all).subspan(cut), true, cut == 0), tokenizer.decode(all, true));
    }
  }
}

// public-cases T05: byte tokens are joined before they are shown.
TEST(SentencePiece, BytesStandForWhatNoTokenIs) {
  const Tokenizer tokenizer(tiny());
  const auto byte = [](uint8_t value) { return 3 + int32_t(value); };
  const Ids ids = tokenizer.encode("a \U0001f600", true);
  EXPECT_EQ(ids, (Ids{id_of(tokenizer, " a"), id_of(tokenizer, " "), byte(0xF0), byte(0x9F), byte(0x98), byte(0x80)}));
  EXPECT_EQ(tokenizer.decode(ids), "a \U0001f600");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\u4e2d", true)), "\u4e2d");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(byte(0xE4)), "");
  EXPECT_EQ(stream.push(byte(0xB8)), "");
  EXPECT_EQ(stream.push(byte(0xAD)), "\u4e2d");
  // A token's name in a text is no byte, and bytes that are not UTF-8 come back.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<0x41>", true)), "<0x41>");
  EXPECT_GT(tokenizer.encode("<0x41>", true).size(), 2u);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xff\xe4 b\x80", true)), "a\xff\xe4 b\x80");
  EXPECT_EQ(tokenizer.decode(Ids{byte(' '), byte('x')}), " x");  // only a token's own space is the prefix
}

TEST(SentencePiece, MergesTheBestScoreFirstThenTheLeftmost) {
  const Tokenizer tokenizer(tiny());
  const auto id = [&](const char* text) { return id_of(tokenizer, text); };
  EXPECT_EQ(tokenizer.encode("ab", true), Ids{id(" ab")});
  EXPECT_EQ(tokenizer.encode("bab", true), (Ids{id(" "), id("b"), id("ab")}));
  EXPECT_EQ(tokenizer.encode("baaaaa", true), (Ids{id(" "), id("b"), id("aaaa"), id("a")}));
}

TEST(SentencePiece, UnusedTokensAreTakenApart) {
  TokenizerData data = tiny();
  const auto aa = std::find(data.tokens.begin(), data.tokens.end(), "aa") - data.tokens.begin();
  data.token_types[size_t(aa)] = 5;
  const Tokenizer tokenizer(data);
  const auto a = id_of(tokenizer, "a");
  EXPECT_EQ(tokenizer.encode("baa", true), (Ids{id_of(tokenizer, " "), id_of(tokenizer, "b"), a, a}));
  EXPECT_EQ(tokenizer.encode("baaaa", true),
            (Ids{id_of(tokenizer, " "), id_of(tokenizer, "b"), id_of(tokenizer, "aaaa")}));
}

TEST(SentencePiece, ControlTokensAreParsedOnlyWhenAskedFor) {
  const Tokenizer tokenizer(golden_data("llama"));
  const auto id = [&](const char* text) { return id_of(tokenizer, text); };
  const Ids parsed = tokenizer.encode("<s>[INST] x [/INST]", true);
  EXPECT_EQ(parsed.front(), id("<s>"));
  EXPECT_EQ(parsed[1], id("[INST]"));
  EXPECT_EQ(parsed.back(), id("[/INST]"));
  for (const int32_t plain : tokenizer.encode("<s>[INST] x [/INST]</s><unk>", false))
    EXPECT_FALSE(tokenizer.is_special(plain));
  EXPECT_EQ(tokenizer.encode("<tool_call>", false), (Ids{id(" "), id("<tool_call>")}));
  EXPECT_TRUE(tokenizer.is_end_of_generation(id("</s>")));
}

TEST(SentencePiece, RandomBytesComeBackExactly) {
  std::mt19937 random(11);
  const std::string few = "\xe4\xb8\xad \n\t'aAB1<tool_call>\xcc\x81\xf0\x9f\x98\x80\xe2\x96\x81";
  for (const char* name : {"llama", "unigram_bytes"}) {
    const Tokenizer tokenizer(golden_data(name));
    for (int round = 0; round < 400; ++round) {
      std::string text(random() % 300, ' ');
      for (char& byte : text) byte = round % 2 ? static_cast<char>(random()) : few[random() % few.size()];
      const std::string expected =
          replace_all(text, kSpaceMark, " ");  // a mark in the text is a space to SentencePiece
      const Ids ids = tokenizer.encode(text, false);
      ASSERT_EQ(tokenizer.decode(ids), expected) << name << " round " << round;
    }
  }
  for (const char* name : {"bpe_bare", "bpe_rules", "unigram"}) {  // lossy, but no error
    const Tokenizer tokenizer(golden_data(name));
    for (int round = 0; round < 200; ++round) {
      std::string text(random() % 300, ' ');
      for (char& byte : text) byte = static_cast<char>(random());
      for (const int32_t id : tokenizer.encode(text, true)) ASSERT_LT(id, tokenizer.vocab_size());
    }
  }
}

TEST(SentencePiece, LongTextsOfOneCharacterWork) {
  for (const char* name : {"llama", "unigram_bytes"}) {
    const Tokenizer tokenizer(golden_data(name));
    for (const char character : {'a', ' ', '7'}) {
      const std::string text(300000, character);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, true)), text);
    }
  }
}

void expect_error(const std::function<void(TokenizerData&)>& damage, const std::string& part) {
  expect_refused(tiny(), damage, part);
}

TEST(SentencePiece, BadMetadataIsAnErrorThatNamesTheKey) {
  expect_error([](auto& d) { d.scores.pop_back(); }, "tokenizer.ggml.scores: expected one per token (278), found 277");
  expect_error([](auto& d) { d.scores[4] = NAN; }, "scores: expected a number for token 4, found nan");
  expect_error([](auto& d) { d.tokens[7] = "<0x0g>"; }, "expected \"<0xHH>\" as byte token 7, found \"<0x0g>\"");
  expect_error([](auto& d) { d.tokens[7] = "<0x041>"; }, "as byte token 7");
  expect_error([](auto& d) { d.tokens[7] = "<0x05>"; }, "expected every text once");
  expect_error([](auto& d) { d.token_types[7] = 1; }, "expected no byte tokens or all 256, found 255");
  expect_error([](auto& d) { d.token_types[7] = 0; }, "expected 1 to 6 for token 7, found 0");
  expect_error([](auto& d) { std::fill(d.token_types.begin(), d.token_types.end(), 1), d.unk = -1; },
               "unknown_token_id: expected one, since there are no byte tokens");
  expect_error([](auto& d) { d.unk = 278; }, "unknown_token_id: expected an id below 278");
}

TEST(SentencePiece, EveryCutModelIsAnError) {
  const std::string model = golden_model("llama");
  for (size_t size = 0; size < model.size(); size += size < 200 ? 1 : 37) {
    try {
      Tokenizer tokenizer(read_sentencepiece_model(std::string_view(model).substr(0, size)));
    } catch (const Error&) {
    }
  }
  EXPECT_THROW(read_sentencepiece_model(std::string_view(model).substr(0, 5)), Error);
  EXPECT_THROW(Tokenizer(read_sentencepiece_model("")), Error);
}

TEST(SentencePiece, DamagedModelsGiveOneLineOrWork) {
  std::mt19937 random(5);
  for (const char* name : {"bpe_rules", "unigram"}) {
    const std::string model = golden_model(name);
    for (int round = 0; round < 300; ++round) {
      std::string damaged = model;
      for (int i = 0; i < 4; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
      // The charsmap stands at the end.
      damaged[damaged.size() - 1 - random() % 600] = static_cast<char>(random());
      try {
        const Tokenizer tokenizer(read_sentencepiece_model(damaged));
        tokenizer.encode("AB \u00e9\u3000\ufb01 x\u0301\u0301", true);
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
    }
  }
}

TEST(SentencePiece, MessagesNameWhatIsNotSupported) {
  const auto error = [](const std::string& bytes) -> std::string {
    try {
      read_sentencepiece_model(bytes);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(error("\x12\x02\x18\x03"), "tokenizer.model: expected model_type 1 (unigram) or 2 (BPE), found 3");
  EXPECT_EQ(error(std::string("\x12\x03\xc0\x01\x01", 5)),
            "tokenizer.model: expected treat_whitespace_as_suffix false, found true (not supported)");
  EXPECT_EQ(error(std::string("\x1a\x02\x28\x00", 4)),
            "tokenizer.model: expected escape_whitespaces true, found false (not supported)");
  EXPECT_EQ(error("\x2a\x03\x12\x01x"), "tokenizer.model: expected no denormalizer_spec, found one (not supported)");
  EXPECT_EQ(error("\x0a\x7f"), "tokenizer.model: expected 127 bytes in field 1, found 0");
  EXPECT_EQ(error("\x0b"), "tokenizer.model: expected wire type 0, 1, 2 or 5 in field 1, found 3");
  EXPECT_EQ(error("\x08\x01"), "tokenizer.model: expected wire type 2 in field 1, found 0");
  EXPECT_EQ(error("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            "tokenizer.model: expected a whole varint, found a cut or too long one");
}

}  // namespace
}  // namespace pop
