#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "base/error.h"
#include "text/tokenizer_goldens.h"
#include "text/utf8.h"

namespace pop {
namespace {

using Ids = std::vector<int32_t>;
const std::vector<std::string> kNames = {"smollm", "gpt-2", "llama-bpe", "qwen2", "default"};

TokenizerData toy(const std::string& pre) {
  TokenizerData data = vocabulary_from_json(golden("toy.json"));
  data.pre = pre;
  return data;
}

// Small enough to check by hand: a b c d ab abc cd Ġ Ġa <s> </s> <u> [X]
TokenizerData tiny() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.tokens = {"a", "b", "c", "d", "ab", "abc", "cd", "\u0120", "\u0120a", "<s>", "</s>", "<u>", "[X]"};
  data.token_types = {1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 4, 5};
  data.merges = {"c d", "a b", "ab c", "\u0120 a"};
  data.bos = 9;
  data.eos = 10;
  return data;
}

void expect_error(const std::function<void(TokenizerData&)>& damage, const std::string& part) {
  expect_refused(tiny(), damage, part);
}

TEST(Tokenizer, IdsAreHuggingFacesForEveryPreTokenizer) {
  const auto goldens = golden("toy_ids.json");
  for (const std::string& name : kNames) expect_golden_ids(Tokenizer(toy(name)), goldens.at(name), name);
}

TEST(Tokenizer, MergesTheLowestRankFirstThenTheLeftmost) {
  const Tokenizer tokenizer(tiny());
  EXPECT_EQ(tokenizer.encode("abcd", false), (Ids{4, 6}));  // "c d" has the lower rank, so no "abc"
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{5}));
  EXPECT_EQ(tokenizer.encode("ab ab ad", false), (Ids{4, 7, 4, 8, 3}));  // in " ab" the pair "a b" comes first
  EXPECT_EQ(tokenizer.encode("", true), Ids{});
  TokenizerData data = tiny();
  data.tokens[3] = "aa";
  data.merges = {"a a"};
  EXPECT_EQ(Tokenizer(data).encode("aaaaa", false), (Ids{3, 3, 0}));
}

TEST(Tokenizer, SpecialTokensAreParsedOnlyWhenAskedFor) {
  const Tokenizer tokenizer(toy("gpt-2"));
  const auto id = [&](const char* text) { return tokenizer.find(text).value(); };
  const Ids parsed = tokenizer.encode("Hello<|im_end|>\n", true);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), id("<|im_end|>")), 1);
  for (const int32_t plain : tokenizer.encode("<|im_start|>Hello<|im_end|>\n", false))
    EXPECT_FALSE(tokenizer.is_special(plain));
  EXPECT_EQ(tokenizer.encode("<|im_start|>x<|im_start|>", true), (Ids{id("<|im_start|>x"), id("<|im_start|>")}));
  EXPECT_EQ(tokenizer.encode("<tool_call>", false), Ids{id("<tool_call>")});
  // Unused tokens are never found in text.
  const Ids unused = tokenizer.encode("[PAD0]", true);
  EXPECT_GT(unused.size(), 1u);
}

TEST(Tokenizer, ControlTokensInLiteralRangesStayText) {
  const Tokenizer tokenizer(toy("gpt-2"));
  const std::string text = "<|im_end|>a<|im_end|>b<tool_call><|im_end|>";
  const auto ranges = tokenizer.control_ranges(text);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(text.substr(ranges[1].begin, ranges[1].end - ranges[1].begin), "<|im_end|>");
  EXPECT_EQ(ranges[1].begin, 11u);
  const auto ends = [&](std::span<const Tokenizer::Range> literal) {
    const Ids ids = tokenizer.encode(text, true, literal);
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.find("<tool_call>").value()), 1);
    return std::count(ids.begin(), ids.end(), tokenizer.find("<|im_end|>").value());
  };
  EXPECT_EQ(ends({}), 3);
  EXPECT_EQ(ends(std::vector<Tokenizer::Range>{{11, 21}}), 2);
  EXPECT_EQ(ends(std::vector<Tokenizer::Range>{{0, 1}, {20, 22}}), 1);  // touching a token is enough
  EXPECT_EQ(ends(std::vector<Tokenizer::Range>{{10, 11}, {21, 22}}), 3);
  EXPECT_EQ(tokenizer.encode(text, true, std::vector<Tokenizer::Range>{{0, text.size()}}),
            tokenizer.encode(text, false));
}

TEST(Tokenizer, DecodeGivesTheBytesBack) {
  const Tokenizer tokenizer(toy("gpt-2"));
  const Ids ids = tokenizer.encode("<|im_start|>Hello<tool_call><|im_end|>", true);
  EXPECT_EQ(tokenizer.decode(ids), "<|im_start|>Hello<tool_call><|im_end|>");
  EXPECT_EQ(tokenizer.decode(ids, true), "Hello<tool_call>");
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
  EXPECT_THROW(tokenizer.decode(Ids{-1}), Error);
  EXPECT_THROW(tokenizer.decode(Ids{tokenizer.vocab_size()}), Error);
  EXPECT_THROW(tokenizer.piece(tokenizer.vocab_size()), Error);
  EXPECT_THROW(tokenizer.is_special(-1), Error);
}

TEST(Tokenizer, RandomBytesComeBackExactly) {
  std::mt19937 random(7);
  const std::string few = "\xe4\xb8\xad \n\t'a1<|im_end|>\xcc\x81\xf0\x9f\x98\x80\x00";
  for (const std::string& name : kNames) {
    const Tokenizer tokenizer(toy(name));
    ASSERT_TRUE(tokenizer.missing_bytes().empty());
    const PreTokenizer pre(name);
    for (int round = 0; round < 300; ++round) {
      std::string text(random() % 400, ' ');
      for (char& byte : text) byte = round % 2 ? static_cast<char>(random()) : few[random() % few.size()];
      for (const bool special : {false, true}) {
        const Ids ids = tokenizer.encode(text, special);
        ASSERT_EQ(tokenizer.decode(ids), pre.normalise(text)) << name << " round " << round;
        ASSERT_TRUE(tokenizer.normalises() || tokenizer.decode(ids) == text);
      }
    }
  }
}

TEST(Tokenizer, BytesWithoutATokenAreListedAndDropped) {
  const Tokenizer tokenizer(tiny());
  EXPECT_EQ(tokenizer.missing_bytes().size(), 256u - 5u);
  EXPECT_EQ(tokenizer.encode("axb\xff", false),
            (Ids{4}));  // what stands around a dropped byte may merge, as in the reference
  EXPECT_EQ(tokenizer.encode("xyz", false), Ids{});
}

TEST(Tokenizer, LongTextsOfOneCharacterWork) {
  const Tokenizer tokenizer(toy("smollm"));
  for (const char character : {'a', ' ', '\n', '7', '.'}) {
    const std::string text(1000000, character);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, true)), text);
  }
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const Tokenizer tokenizer(toy("qwen2"));
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  std::vector<Ids> expected;
  for (const auto& text : documents) expected.push_back(tokenizer.encode(text, true));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < documents.size(); ++i) wrong[t] += tokenizer.encode(documents[i], true) != expected[i];
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer(tiny());
  EXPECT_EQ(tokenizer.vocab_size(), 13);
  EXPECT_EQ(tokenizer.piece(8), " a");
  EXPECT_EQ(tokenizer.piece(9), "<s>");
  EXPECT_EQ(tokenizer.find(" a"), 8);
  EXPECT_EQ(tokenizer.find("</s>"), 10);
  EXPECT_EQ(tokenizer.find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.find("[X]"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(9));
  EXPECT_FALSE(tokenizer.is_special(11));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_EQ(tokenizer.type(12), TokenType::kUnused);
}

TEST(Tokenizer, EndOfGenerationJoinsTheFileAndTheKnownMarks) {
  TokenizerData data = tiny();
  data.tokens[9] = "<|eot_id|>";
  data.eos = 10;
  data.eom = 11;
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.end_of_generation(), (Ids{9, 10, 11}));
  EXPECT_TRUE(tokenizer.is_end_of_generation(11));
  EXPECT_FALSE(tokenizer.is_end_of_generation(0));
  data.eos = data.eom = -1;
  data.token_types[9] = 1;  // the mark as plain text ends nothing; </s> is still a control token
  EXPECT_EQ(Tokenizer(data).end_of_generation(), (Ids{10}));
}

TEST(Tokenizer, BosIsAddedOnceAndAsAsked) {
  TokenizerData data = tiny();
  const auto front = [](const Tokenizer& tokenizer, Ids ids, BosMode mode) {
    const bool added = tokenizer.apply_bos(ids, mode);
    return std::make_pair(added, ids);
  };
  const Tokenizer silent(data);  // gpt-2, and the file says nothing
  EXPECT_EQ(front(silent, {0, 1}, BosMode::kAuto), std::make_pair(false, Ids{0, 1}));
  EXPECT_EQ(front(silent, {0, 1}, BosMode::kAlways), std::make_pair(true, Ids{9, 0, 1}));
  EXPECT_EQ(front(silent, {9, 1}, BosMode::kAlways), std::make_pair(false, Ids{9, 1}));
  data.pre = "llama-bpe";  // adds it unless the file says no
  EXPECT_EQ(front(Tokenizer(data), {}, BosMode::kAuto), std::make_pair(true, Ids{9}));
  EXPECT_EQ(front(Tokenizer(data), {0}, BosMode::kNever), std::make_pair(false, Ids{0}));
  data.add_bos = false;
  EXPECT_EQ(front(Tokenizer(data), {0}, BosMode::kAuto), std::make_pair(false, Ids{0}));
  data.pre = "gpt-2";
  data.add_bos = true;
  EXPECT_EQ(front(Tokenizer(data), {0}, BosMode::kAuto), std::make_pair(true, Ids{9, 0}));
  EXPECT_EQ(front(Tokenizer(data), {9, 0}, BosMode::kAuto), std::make_pair(false, Ids{9, 0}));
  data.add_bos.reset();
  data.bos = -1;
  EXPECT_THROW(front(Tokenizer(data), {0}, BosMode::kAlways), Error);
  EXPECT_EQ(parse_bos_mode("auto"), BosMode::kAuto);
  EXPECT_EQ(parse_bos_mode("never"), BosMode::kNever);
  EXPECT_EQ(parse_bos_mode("always"), BosMode::kAlways);
  EXPECT_THROW(parse_bos_mode("Auto"), Error);
}

TEST(Tokenizer, BadMetadataIsAnErrorThatNamesTheKey) {
  expect_error(
      [](auto& d) { d.model = "bert"; },
      "tokenizer.ggml.model: expected \"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE), found \"bert\"");
  expect_error([](auto& d) { d.pre = "unheard-of"; }, "found \"unheard-of\"");
  expect_error([](auto& d) { d.tokens.clear(); }, "found no tokens");
  expect_error([](auto& d) { d.token_types.pop_back(); },
               "tokenizer.ggml.token_type: expected one per token (13), found 12");
  expect_error([](auto& d) { d.token_types[2] = 0; }, "expected 1 to 5 for token 2, found 0");
  expect_error([](auto& d) { d.token_types[2] = 7; }, "found 7");
  expect_error([](auto& d) { d.token_types[2] = -1; }, "found -1");
  expect_error([](auto& d) { d.token_types[2] = 6; }, "SentencePiece");
  expect_error([](auto& d) { d.tokens[3] = std::string("a"); }, "expected every text once, found \"a\" as 0 and 3");
  expect_error([](auto& d) { d.tokens[9] = ""; }, "expected a text for control or user-defined token 9");
  // Looked for at every place of a text, it would cost its length at each: a megabyte of "a" would never end.
  expect_error([](auto& d) { d.tokens[9] = std::string(1 << 20, 'a') + "b"; },
               "tokens: expected at most 1024 bytes in token 9, which is looked for in texts, found 1048577");
  expect_error([](auto& d) { d.merges[1] = "ab"; }, "expected \"left right\" as merge 1, found \"ab\"");
  expect_error([](auto& d) { d.merges[1] = "a b c"; }, "expected \"left right\" as merge 1");
  expect_error([](auto& d) { d.merges[1] = " b"; }, "expected \"left right\" as merge 1");
  expect_error([](auto& d) { d.merges[1] = "a "; }, "expected \"left right\" as merge 1");
  expect_error([](auto& d) { d.merges[1] = "a z"; }, "needs a normal token \"z\", the vocabulary has none");
  expect_error([](auto& d) { d.merges[1] = "a d"; }, "needs a normal token \"ad\", the vocabulary has none");
  expect_error([](auto& d) { d.token_types[4] = 3; }, "needs a normal token \"ab\", the vocabulary has another type");
  expect_error([](auto& d) { d.merges.push_back("a b"); }, "expected every pair once, found \"a b\" again as merge 4");
  expect_error([](auto& d) { d.bos = 13; }, "tokenizer.ggml.bos_token_id: expected an id below 13, found 13");
  expect_error([](auto& d) { d.eos = -2; }, "tokenizer.ggml.eos_token_id");
  expect_error([](auto& d) { d.eot = 1 << 30; }, "tokenizer.ggml.eot_token_id");
  expect_error([](auto& d) { d.eom = 99; }, "tokenizer.ggml.eom_token_id");
  expect_error([](auto& d) { d.unk = 99; }, "tokenizer.ggml.unknown_token_id");
  expect_error([](auto& d) { d.pad = 99; }, "tokenizer.ggml.padding_token_id");
  expect_error([](auto& d) { d.add_bos = true, d.bos = -1; }, "add_bos_token: true, but there is no bos_token_id");
  expect_error([](auto& d) { d.add_eos = true, d.eos = -1; }, "add_eos_token: true, but there is no eos_token_id");
}

TEST(Tokenizer, UnusedTokensMayRepeat) {
  TokenizerData data = tiny();
  data.tokens.insert(data.tokens.end(), {"[X]", "a"});
  data.token_types.insert(data.token_types.end(), {5, 5});
  EXPECT_EQ(Tokenizer(data).encode("a", false), Ids{0});
}

TEST(Tokenizer, ATokenOutsideTheByteAlphabetDecodesToItsText) {
  TokenizerData data = tiny();
  data.tokens[3] = "\u4e2d";
  data.merges = {"a b", "ab c"};
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.piece(3), "\u4e2d");
  EXPECT_EQ(tokenizer.encode("\u4e2d", false), Ids{});
}

TEST(StreamDecoder, ShowsWholeCharactersOnly) {
  TokenizerData data = toy("gpt-2");
  const Tokenizer tokenizer(data);
  const auto byte = [&](uint8_t value) { return tokenizer.find(std::string(1, static_cast<char>(value))).value(); };
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(byte('a')), "a");
  for (const uint8_t value : {0xF0, 0x9F, 0x98}) EXPECT_EQ(stream.push(byte(value)), "");
  EXPECT_EQ(stream.push(byte(0x80)), "\U0001F600");
  EXPECT_EQ(stream.push(byte(0xE4)), "");
  EXPECT_EQ(stream.push(byte('b')), std::string("\xE4") + 'b');  // can no longer become a character
  EXPECT_EQ(stream.push(byte(0xFF)), "\xFF");
  EXPECT_EQ(stream.push(byte(0xE4)), "");
  EXPECT_EQ(stream.push(byte(0xB8)), "");
  EXPECT_EQ(stream.flush(), "\xE4\xB8");
  EXPECT_EQ(stream.flush(), "");
  StreamDecoder quiet(tokenizer, true);
  EXPECT_EQ(quiet.push(tokenizer.find("<|im_end|>").value()), "");
  EXPECT_EQ(stream.push(tokenizer.find("<|im_end|>").value()), "<|im_end|>");
}

TEST(StreamDecoder, PiecesJoinedAreDecode) {
  std::mt19937 random(3);
  const Tokenizer tokenizer(toy("llama-bpe"));
  for (int round = 0; round < 200; ++round) {
    Ids ids(random() % 60);
    // Half of the rounds from byte tokens only, where characters are cut most.
    for (int32_t& id : ids)
      id = static_cast<int32_t>(random() % (round % 2 ? 256 : static_cast<uint32_t>(tokenizer.vocab_size())));
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    ASSERT_EQ(text + stream.flush(), tokenizer.decode(ids));
  }
}

TEST(StreamDecoder, EachPartOfATextIsWellFormed) {
  const Tokenizer tokenizer(toy("gpt-2"));
  size_t waits = 0;
  for (const auto& text : golden("texts.json").get<std::vector<std::string>>()) {
    StreamDecoder stream(tokenizer);
    std::string shown;
    for (const int32_t id : tokenizer.encode(text, true)) {
      const std::string part = stream.push(id);
      ASSERT_EQ(utf8_valid_prefix(part), part.size()) << printable(text);
      waits += part.empty();
      shown += part;
    }
    ASSERT_EQ(shown, text);
    ASSERT_EQ(stream.flush(), "");
  }
  EXPECT_GT(waits, 500u);  // the texts do cut characters
}

}  // namespace
}  // namespace pop
