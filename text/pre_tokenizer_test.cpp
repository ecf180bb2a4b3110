#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/tokenizer_goldens.h"

namespace pop {
namespace {

using Pieces = std::vector<std::string_view>;
const std::vector<std::string> kNames = {"smollm", "gpt-2", "llama-bpe", "qwen2", "default"};

std::string joined(const Pieces& pieces) {
  std::string out;
  for (const auto piece : pieces) out += piece;
  return out;
}

TEST(PreTokenizer, CutsTheGoldenTextsAsHuggingFaceDoes) {
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  const auto goldens = golden("splits.json");
  ASSERT_GT(documents.size(), 150u);
  for (const std::string& name : kNames) {
    const PreTokenizer pre(name);
    ASSERT_EQ(goldens.at(name).size(), documents.size());
    for (size_t i = 0; i < documents.size(); ++i) {
      const std::string text = pre.normalise(documents[i]);
      std::vector<int32_t> lengths;
      for (const auto piece : pre.split(text)) lengths.push_back(static_cast<int32_t>(piece.size()));
      expect_numbers(lengths, goldens.at(name).at(i), name + ", document " + std::to_string(i));
    }
  }
}

TEST(PreTokenizer, AnUnknownNameIsAnErrorThatNamesIt) {
  for (const char* name : {"", "Smollm", "smollm ", "deepseek-llm", "gpt2"}) {
    try {
      PreTokenizer pre(name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("found \"" + std::string(name) + "\""), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find("llama-bpe"), std::string::npos) << error.what();
    }
  }
}

TEST(PreTokenizer, AliasesCutAsWhatTheyStandFor) {
  const std::string text = "It's 12345 x\n\n  y\u00e9";
  EXPECT_EQ(PreTokenizer("llama3").split(text), PreTokenizer("llama-bpe").split(text));
  EXPECT_EQ(PreTokenizer("llama-v3").split(text), PreTokenizer("llama-bpe").split(text));
  EXPECT_EQ(PreTokenizer("phi-2").split(text), PreTokenizer("gpt-2").split(text));
  EXPECT_NE(PreTokenizer("gpt-2").split(text), PreTokenizer("llama-bpe").split(text));
  EXPECT_EQ(PreTokenizer::names().size(), 16u);
  EXPECT_TRUE(PreTokenizer("llama3").ignore_merges());
  EXPECT_TRUE(PreTokenizer("llama3").adds_bos_by_default());
  EXPECT_FALSE(PreTokenizer("qwen2").ignore_merges());
  EXPECT_FALSE(PreTokenizer("smollm").adds_bos_by_default());
}

TEST(PreTokenizer, EachByteThatIsNotUtf8IsAPiece) {
  for (const std::string& name : kNames) {
    const PreTokenizer pre(name);
    EXPECT_EQ(pre.split("ab\xff\xfe cd"), (Pieces{"ab", "\xff", "\xfe", " cd"})) << name;
    // An overlong form, a surrogate, a code above U+10FFFF, a cut character at the end.
    EXPECT_EQ(pre.split("\xc0\xaf"), (Pieces{"\xc0", "\xaf"})) << name;
    EXPECT_EQ(pre.split("\xed\xa0\x80"), (Pieces{"\xed", "\xa0", "\x80"})) << name;
    EXPECT_EQ(pre.split("\xf4\x90\x80\x80"), (Pieces{"\xf4", "\x90", "\x80", "\x80"})) << name;
    EXPECT_EQ(pre.split("a\xe4\xb8"), (Pieces{"a", "\xe4", "\xb8"})) << name;
    // A run between such bytes is cut by itself: the two spaces stay together, as at the end of a text.
    EXPECT_EQ(pre.split("a  \x80z"), (Pieces{"a", "  ", "\x80", "z"})) << name;
    EXPECT_EQ(pre.split(std::string_view("\0\xff\0", 3)),
              (Pieces{std::string_view("\0", 1), "\xff", std::string_view("\0", 1)}))
        << name;
  }
}

TEST(PreTokenizer, RandomBytesAreCutWithoutLoss) {
  std::mt19937 random(1);
  for (const std::string& name : kNames) {
    const PreTokenizer pre(name);
    for (int round = 0; round < 200; ++round) {
      std::string text(random() % 300, ' ');
      // Half of the rounds from few bytes, so that characters and runs come up.
      const std::string few = "\xe4\xb8\xad \n\t'a1\xcc\x81\xf0\x9f\x98\x80";
      for (char& byte : text) byte = round % 2 ? static_cast<char>(random()) : few[random() % few.size()];
      EXPECT_EQ(joined(pre.split(text)), text) << name;
      for (const auto piece : pre.split(text)) EXPECT_FALSE(piece.empty());
    }
  }
}

TEST(PreTokenizer, LongTextsOfOneKindAreNoError) {
  const size_t million = 1000000;
  for (const std::string& name : kNames) {
    const PreTokenizer pre(name);
    EXPECT_EQ(pre.split(std::string(million, 'a')).size(), 1u) << name;
    EXPECT_EQ(pre.split(std::string(million, ' ')).size(), 1u) << name;
    EXPECT_EQ(pre.split(std::string(million, ' ') + "x").size(), 2u) << name;
    EXPECT_EQ(pre.split(std::string(million, '\n')).size(), 1u) << name;
    EXPECT_EQ(pre.split(std::string(million, '.')).size(), 1u) << name;
    EXPECT_EQ(pre.split(std::string(million, '\xff')).size(), million) << name;
    std::string marks;
    for (size_t i = 0; i < million / 4; ++i) marks += "\u0316\u0301";
    EXPECT_EQ(pre.split(marks).size(), 1u) << name;
  }
}

// Examples of Unicode Standard Annex 15 (figures 3 to 6), composed by hand.
TEST(PreTokenizer, Qwen2NormalisesToFormC) {
  const PreTokenizer pre("qwen2");
  EXPECT_TRUE(pre.normalises());
  EXPECT_EQ(pre.normalise("\u212b"), "\u00c5");                // a singleton: Angstrom sign
  EXPECT_EQ(pre.normalise("e\u0301"), "\u00e9");               // composition
  EXPECT_EQ(pre.normalise("q\u0307\u0323"), "q\u0323\u0307");  // order of marks
  EXPECT_EQ(pre.normalise("d\u0323\u0307"), "\u1e0d\u0307");
  EXPECT_EQ(pre.normalise("\u0958"), "\u0915\u093c");        // a composition exclusion
  EXPECT_EQ(pre.normalise("\u1112\u1161\u11ab"), "\ud55c");  // Hangul
  EXPECT_EQ(pre.normalise("\u0301\u0301"), "\u0301\u0301");  // marks alone
  EXPECT_EQ(pre.normalise("\ufb01"), "\ufb01");              // a compatibility form stays
  EXPECT_EQ(pre.normalise("e\xff\u0301"), "e\xff\u0301");    // nothing composes over a byte that is not UTF-8
  EXPECT_EQ(pre.normalise(std::string("e\u0301\0e\u0301", 7)), std::string("\u00e9\0\u00e9", 5));
  EXPECT_EQ(PreTokenizer("llama-bpe").normalise("e\u0301"), "e\u0301");
  EXPECT_FALSE(PreTokenizer("llama-bpe").normalises());
}

TEST(PreTokenizer, LongRunsOfMarksAreOrderedInReasonableTime) {
  // Sorting by swapping neighbours would take 10^11 steps here.
  const size_t count = 300000;
  std::string above_first, below_first;
  for (size_t i = 0; i < count; ++i) above_first += "\u0301";
  for (size_t i = 0; i < count; ++i) above_first += "\u0316", below_first += "\u0316";
  for (size_t i = 0; i < count; ++i) below_first += "\u0301";
  EXPECT_EQ(PreTokenizer("qwen2").normalise(above_first), below_first);
}

}  // namespace
}  // namespace pop
