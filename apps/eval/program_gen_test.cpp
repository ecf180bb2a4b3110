// pop eval gen as a user runs it, on a tiny model whose tokens are bytes: what it says is noise, the same at every run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/program_test.h"

namespace pop::app {
namespace {

Words gen(Words more) {
  more.insert(more.begin(), {"eval", "gen", "-m", kTiny});
  return more;
}

std::string lines(const std::vector<Json>& objects) {
  std::string out;
  for (const Json& object : objects) out += object.dump() + "\n";
  return out;
}

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> out;
  std::istringstream bytes(read_bytes(path));
  for (std::string line; std::getline(bytes, line);) out.push_back(Json::parse(line));
  return out;
}

Json header(Json more) {
  Json out = {{"task", "made"}, {"kind", "generate"}};
  out.update(more);
  return out;
}

Json item(const std::string& prompt, const std::string& target) { return {{"prompt", prompt}, {"target", target}}; }

// What the model says after a prompt, by the other command.
Json said(const std::string& prompt, int tokens) {
  return run_json(tiny("run", {"-p", prompt, "-n", std::to_string(tokens), "--temp", "0", "--ignore-eos"}));
}

TEST(EvalGen, ScoresWhatTheModelSays) {
  Folder folder;
  const Json head = header({{"until", Json::array()}, {"max_tokens", 6}, {"preamble", "Pre "}});
  const std::string first = said("Pre one", 6)["text"], second = said("Pre two", 6)["text"];
  ASSERT_NE(first, second);
  const std::string file = folder.write(
      "items", lines({head, item("one", first), item("two", first), {{"prompt", "two"}, {"targets", {"no", second}}}}));
  const std::string per_item = folder.path("per-item");
  const Json json = run_json(gen({"-f", file, "--per-item", per_item}));
  EXPECT_EQ(json["task"], "made");
  EXPECT_EQ(json["mode"], "generate");
  EXPECT_EQ(json["items"], 3);
  EXPECT_NEAR(json["scores"]["exact_match"], 2.0 / 3, 1e-12);
  EXPECT_LE(json["ci95"]["exact_match"][0], 2.0 / 3);
  EXPECT_EQ(json["truncated"], 3);
  for (const char* key : {"corpus", "corpus_sha256", "bos", "model_sha256", "ratio", "ffn_sparsity",
                          "weights_read_share", "per_item", "prompts_cut"})
    EXPECT_TRUE(json.contains(key)) << key;
  const auto samples = read_lines(per_item);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[1]["doc_id"], 1);
  EXPECT_EQ(samples[1]["exact_match"], 0.0);
  EXPECT_EQ(samples[1]["arguments"]["gen_args_0"]["arg_0"], "Pre two");
  EXPECT_EQ(samples[1]["resps"][0][0], second);
  EXPECT_EQ(samples[1]["finish_reason"], "length");
}

TEST(EvalGen, AStopEndsTheAnswer) {
  Folder folder;
  const std::string prompt = "Lorem ipsum", whole = said(prompt, 10)["text"];
  // The last of a row of equal letters and what follows it: two tokens.
  size_t at = 1;
  while (at < whole.size() && whole[at] == whole[0]) ++at;
  ASSERT_LT(at, whole.size()) << whole;
  const std::string stop = whole.substr(at - 1, 2), expected = whole.substr(0, whole.find(stop));
  const Json head = header({{"until", {"never", stop}}, {"max_tokens", 10}, {"filters", {{{"name", "whole"}}}}});
  const std::string file = folder.write("items", lines({head, item(prompt, whole)}));
  const Json json = run_json(gen({"-f", file, "--per-item", folder.path("p")}));
  EXPECT_EQ(json["truncated"], 0);
  const auto samples = read_lines(folder.path("p"));
  EXPECT_EQ(samples[0]["resps"][0][0], expected);
  EXPECT_EQ(samples[0]["finish_reason"], "stop");
  EXPECT_EQ(json["scores"]["exact_match"], 0.0);
}

TEST(EvalGen, GreedyComparesTokens) {
  Folder folder;
  const std::string target = said("The last word of this", 4)["text"];
  const Json head = header({{"metric", "greedy"}});
  const std::string file = folder.write("items", lines({head, item("The last word of this", target),
                                                        item("The last word of this", target.substr(0, 2) + "zq")}));
  const Json json = run_json(gen({"-f", file, "--per-item", folder.path("p")}));
  const auto samples = read_lines(folder.path("p"));
  EXPECT_EQ(samples[0]["acc"], 1.0);
  EXPECT_EQ(samples[1]["acc"], 0.0);
  EXPECT_EQ(json["scores"]["acc"], 0.5);
  EXPECT_EQ(json["truncated"], 0);
}

TEST(EvalGen, ContinuesWhereItStopped) {
  Folder folder;
  const Json filters = {{{"name", "a"}, {"strip", true}}, {{"name", "b"}, {"regex", "(.)"}}};
  std::vector<Json> all = {header({{"filters", filters}, {"max_tokens", 4}})};
  for (int i = 0; i < 5; ++i) all.push_back(item(fmt::format("Item {}", i), "x"));
  const std::string file = folder.write("items", lines(all)), whole = folder.path("whole"), part = folder.path("part");
  const Json complete = run_json(gen({"-f", file, "--per-item", whole}));
  EXPECT_TRUE(complete["scores"].contains("a") && complete["scores"].contains("b"));
  const std::string bytes = read_bytes(whole);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), '\n'), 10);
  // Two items, one line of the third's two, and a piece of the other.
  size_t at = 0;
  for (int i = 0; i < 5; ++i) at = bytes.find('\n', at) + 1;
  std::ofstream(part, std::ios::binary) << bytes.substr(0, at + 20);
  const Json continued = run_json(gen({"-f", file, "--per-item", part}));
  EXPECT_EQ(read_bytes(part), bytes);
  EXPECT_EQ(continued["scores"], complete["scores"]);
  EXPECT_EQ(continued["weights_read_share"], complete["weights_read_share"]);
  const Outcome other = pop(gen({"-f", file, "--per-item", part, "--max-tokens", "5"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("another run: max_tokens: expected 5, found 4"), std::string::npos) << other.err;
}

// The model's noise stands in a comment.
Json program(const std::string& source, const std::string& tests) {
  return {{"prompt", source + "\n# "}, {"tests", tests}};
}

TEST(EvalGen, ProgramsRunInASandbox) {
  Folder folder;
  const std::string kept = folder.write("kept", "kept");
  const Json head =
      header({{"metric", "code"}, {"program", "prompt+answer"}, {"until", {"\n", "\r"}}, {"max_tokens", 3}});
  const std::string file =
      folder.write("items", lines({head, program("def double(x): return 2 * x", "assert double(4) == 8"),
                                   program("def double(x): return x", "assert double(4) == 8"),
                                   program("import os\nwhile True: os.fork()", "pass"),
                                   program("import os\nos.remove('" + kept + "')", "pass"),
                                   program("print('x' * 10000000)\ninput()", "pass")}));
  const Outcome done = pop(gen({"-f", file, "--json", "--per-item", folder.path("p"), "--csv", folder.path("csv")}));
  if (done.code == 1 && done.err.find("cannot confine") != std::string::npos)
    GTEST_SKIP() << "the system cannot confine a program";
  ASSERT_EQ(done.code, 0) << done.err;
  std::vector<std::string> verdicts;
  for (const Json& line : read_lines(folder.path("p"))) verdicts.push_back(line["verdict"]);
  EXPECT_EQ(verdicts,
            (std::vector<std::string>{"passed", "AssertionError", "PermissionError", "PermissionError", "EOFError"}));
  EXPECT_EQ(read_bytes(kept), "kept");
  const Json json = done.json();
  EXPECT_NEAR(json["scores"]["pass@1"], 0.2, 1e-12);
  EXPECT_NE(json["sandbox"].get<std::string>().find("seccomp"), std::string::npos);
  EXPECT_NE(read_bytes(folder.path("csv")).find("scores_pass@1"), std::string::npos);
}

TEST(EvalGen, ConversationsShareAStory) {
  Folder folder;
  const std::string file = folder.path("coqa");
  ASSERT_EQ(std::system(("scripts/convert-data coqa python/task_fixtures/coqa.jsonl -o " + file).c_str()), 0);
  const Json json = run_json(gen({"-f", file, "--max-tokens", "3", "--per-item", folder.path("p")}));
  EXPECT_EQ(json["task"], "coqa");
  EXPECT_EQ(json["items"], 6);
  EXPECT_EQ(json["clusters"], 2);
  EXPECT_GE(json["scores"]["f1"], json["scores"]["em"]);
  const auto samples = read_lines(folder.path("p"));
  EXPECT_EQ(samples[1]["cluster"], "made-goats");
  EXPECT_EQ(samples[1]["target"], "[\"Bell\",\"the goat Bell\"]");
  EXPECT_NE(samples[1]["arguments"]["gen_args_0"]["arg_0"].get<std::string>().find("A: three\n\nQ: Who is"),
            std::string::npos);
}

TEST(EvalGen, ErrorsNameWhatIsWrong) {
  Folder folder;
  const auto error = [&](const std::vector<Json>& objects, Words more = {}) {
    more.insert(more.begin(), {"-f", folder.write("bad", lines(objects))});
    const Outcome done = pop(gen(more));
    EXPECT_NE(done.code, 0);
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    return done.err;
  };
  EXPECT_NE(error({{{"task", "t"}, {"kind", "choice"}}, item("p", "t")}).find("bad:1: \"kind\""), std::string::npos);
  EXPECT_NE(error({item("p", "t"), {{"prompt", "p"}}}).find("bad:2: \"target\": expected a text, found nothing"),
            std::string::npos);
  EXPECT_NE(error({header({{"metric", "code"}}), program("", "pass")}, {"--python", "/nonexistent"})
                .find("--python /nonexistent"),
            std::string::npos);
  EXPECT_NE(error({item("p", "t")}, {"--max-tokens", "1000000"}).find("leaves no room"), std::string::npos);
  EXPECT_EQ(pop(gen({})).code, 2);
}

}  // namespace
}  // namespace pop::app
