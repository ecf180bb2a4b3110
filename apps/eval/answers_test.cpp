// Filters and metrics against lm-evaluation-harness's own results (tests/goldens/tasks.json) and hand-worked examples.
#include "apps/eval/answers.h"

#include <gtest/gtest.h>

#include <fstream>

#include "apps/eval/gen_task.h"
#include "base/error.h"

namespace pop::app {
namespace {

Json golden() {
  std::ifstream file("tests/goldens/tasks.json");
  return Json::parse(file);
}

// The task as data/ ships it.
GenTask shipped(const std::string& file) { return gen_task(read_items({"data/" + file, "", 1})); }

class Harness : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Harness, FiltersAndScoresAreEqual) {
  const auto& [name, file] = GetParam();
  const GenTask task = shipped(file);
  int compared = 0;
  const Json all = golden();
  for (const Json& answer : all["answers"][name]) {
    const auto text = answer["answer"].get<std::string>();
    const auto targets = answer["targets"].get<std::vector<std::string>>();
    ASSERT_EQ(answer["scores"].size(), task.filters.size());
    for (size_t i = 0; i < task.filters.size(); ++i) {
      const Json& wanted = answer["scores"][i];
      EXPECT_EQ(task.filters[i].name, wanted["filter"].get<std::string>());
      const std::string filtered = task.filters[i].apply(text);
      EXPECT_EQ(filtered, wanted["filtered"].get<std::string>()) << text;
      EXPECT_EQ(task.exact.score(filtered, targets), wanted["metrics"]["exact_match"].get<double>()) << text;
      ++compared;
    }
  }
  EXPECT_GE(compared, 19);
}

INSTANTIATE_TEST_SUITE_P(Tasks, Harness,
                         testing::Values(std::pair("gsm8k", "gsm8k.jsonl"), std::pair("nq_open", "nq_open.jsonl")),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(Squad, ScoresAreTheHarnesss) {
  int compared = 0;
  const Json all = golden();
  for (const Json& answer : all["answers"]["coqa"]) {
    const auto text = answer["answer"].get<std::string>();
    const SquadScore score = squad_score(text, answer["targets"].get<std::vector<std::string>>());
    const Json& wanted = answer["scores"][0]["metrics"];
    EXPECT_NEAR(score.em, wanted["em"].get<double>(), 1e-12) << text;
    EXPECT_NEAR(score.f1, wanted["f1"].get<double>(), 1e-12) << text;
    ++compared;
  }
  EXPECT_EQ(compared, 18);
}

TEST(Squad, ByHand) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(squad_words("The cat's  hat, an  A-frame.\tTHE end"), (Words{"cats", "hat", "aframe", "end"}));
  EXPECT_EQ(squad_words("“a” b"), (Words{"“", "”", "b"}));
  EXPECT_EQ(squad_words(" the "), Words{});
  const std::vector<std::string> one = {"red big house"};
  // Two of three words, of an answer of four: P 1/2, R 2/3, F1 = 2 * (1/3) / (7/6) = 4/7.
  EXPECT_NEAR(squad_score("big red old barn", one).f1, 4.0 / 7, 1e-12);
  EXPECT_EQ(squad_score("big red house", one).em, 0);
  EXPECT_NEAR(squad_score("big red house", one).f1, 1, 1e-12);
  // Three people; the best of the others for each left out: (F1 with house) 1, 1, 0.
  const std::vector<std::string> three = {"barn", "shed", "house"};
  EXPECT_NEAR(squad_score("house\nsecond line", three).em, 2.0 / 3, 1e-12);
  const std::vector<std::string> nothing = {"the"};
  EXPECT_EQ(squad_score("", nothing).f1, 1);
}

TEST(PatternTest, FindsAsPythonDoes) {
  using Found = std::vector<std::string>;
  // re.findall of Python 3.11.
  EXPECT_EQ(Pattern("t", "a*").find_all("baac"), (Found{"", "aa", "", ""}));
  EXPECT_EQ(Pattern("t", "(x)|(y)").find_all("ayxb"), (Found{"y", "x"}));
  EXPECT_EQ(Pattern("t", "(x*)(y*)").find_all("q"), (Found{"[invalid]", "[invalid]"}));
  EXPECT_EQ(Pattern("t", R"(\d+)").find_all("1 ２３ é4"), (Found{"1", "２３", "4"}));
  EXPECT_EQ(Pattern("t", R"(\bé\w)").find_all("éa bé éß"), (Found{"éa", "éß"}));
  // re.sub
  EXPECT_EQ(Pattern("t", "a*").replace("baac", "-"), "-b--c-");
  EXPECT_EQ(Pattern("t", R"(\.$)").replace("1.\n", ""), "1\n");
  EXPECT_EQ(Pattern("t", "(?s).*#### ").replace("a\nb #### 1 #### 2", ""), "2");
  EXPECT_EQ(Pattern("t", ".").replace("a\r\nü", ""), "\n");
}

TEST(PatternTest, RefusesWhatItCannotDo) {
  EXPECT_THROW(Pattern("file:1", "(a"), Error);
  // Exponential backtracking ends.
  const Pattern slow("file:1", "(a|aa|a)+$");
  EXPECT_THROW(slow.find_all(std::string(200, 'a') + "b"), Error);
}

TEST(AnswersTest, BytesThatAreNoCharacterAreReplaced) {
  // bytes.decode("utf-8", errors="replace") of Python 3.11.
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a\xff", "a\uFFFD"},         {"\xc3", "\uFFFD"},          {"\xe2\x82", "\uFFFD"},
      {"\xe2\x82(", "\uFFFD("},     {"\xf0\x9f\x98", "\uFFFD"},  {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\x80\x80", "\uFFFD\uFFFD"}, {"\xc0\xaf", "\uFFFD\uFFFD"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(valid_text(bytes), text);
  EXPECT_EQ(valid_text("é"), "é");
}

Items made(const std::string& header, const std::string& item) {
  Items items;
  items.path = "folder/made.jsonl";
  items.header = {-1, "made:1", "", Json::parse(header)};
  items.list.push_back({0, "made:2", "", Json::parse(item)});
  return items;
}

std::string error_of(const std::string& header, const std::string& item = "{}") {
  try {
    const Items items = made(header, item);
    const GenTask task = gen_task(items);
    gen_item(task, items.list[0]);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GenTaskTest, WithoutAHeader) {
  const Items items = made("{}", R"({"prompt":"P","target":"T","cluster":"c"})");
  const GenTask task = gen_task(items);
  EXPECT_EQ(task.name, "made.jsonl");
  EXPECT_EQ(task.until, std::vector<std::string>{"\n"});
  EXPECT_EQ(task.filters.at(0).apply(" x\n"), "x");
  const GenItem item = gen_item(task, items.list[0]);
  EXPECT_EQ(item.prompt, "P");
  EXPECT_EQ(item.targets, std::vector<std::string>{"T"});
  EXPECT_EQ(item.cluster, "c");
}

TEST(GenTaskTest, CodeOfTheTwoSets) {
  const Items human = read_items({"data/humaneval.jsonl", "", 1}),
              mbpp = read_items({"data/mbpp_first250.jsonl", "", 1});
  const GenTask whole = gen_task(human), answer_only = gen_task(mbpp);
  const GenItem first = gen_item(whole, human.list[0]);
  EXPECT_EQ(whole.max_tokens, 1024);
  EXPECT_EQ(first.program_head, first.prompt);
  EXPECT_NE(first.tests.find("\ncheck(has_close_elements)"), std::string::npos);
  EXPECT_TRUE(gen_item(answer_only, mbpp.list[0]).program_head.empty());
  EXPECT_EQ(answer_only.until, std::vector<std::string>{"[DONE]"});
}

TEST(GenTaskTest, WhatIsWrongIsSaid) {
  const std::string kind = R"("task":"t","kind":)";
  EXPECT_NE(error_of("{" + kind + "\"choice\"}").find("\"kind\": expected \"generate\""), std::string::npos);
  EXPECT_NE(error_of(R"({"metric":"bleu"})").find("made:1: \"metric\": expected exact_match"), std::string::npos);
  EXPECT_NE(error_of(R"({"filters":[]})").find("\"filters\": expected a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"filters":[7]})").find("entry 1: expected an object"), std::string::npos);
  EXPECT_NE(error_of(R"({"filters":[{"name":"a","regex":"("}]})").find("expected a regular expression"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"filters":[{"name":"a"},{"name":"a"}]})").find("expected another name"), std::string::npos);
  EXPECT_NE(error_of(R"({"metric":"code","filters":[{"name":"a"}]})").find("belong to the metric"), std::string::npos);
  EXPECT_NE(error_of(R"({"exact_match":{"remove":"x"}})").find("\"remove\": expected a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"max_tokens":0})").find("\"max_tokens\": expected a whole number"), std::string::npos);
  EXPECT_NE(error_of(R"({"program":"all"})").find("\"program\": expected answer"), std::string::npos);
  EXPECT_NE(error_of("{}", R"({"prompt":"p"})").find("made:2: \"target\": expected a text"), std::string::npos);
  EXPECT_NE(error_of("{}", R"({"prompt":"p","targets":[]})").find("\"targets\": expected at least 1"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"metric":"code"})", R"({"prompt":"p"})").find("\"tests\": expected a text"),
            std::string::npos);
}

}  // namespace
}  // namespace pop::app
