// pop eval as a user runs it, on a tiny model: figures against the NumPy reference (python/make_eval_goldens.py), continuing after
// an interruption, files that are wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/program_test.h"

namespace pop::app {
namespace {

const Json& golden() {
  static const Json json = Json::parse(read_bytes("tests/goldens/eval-tiny.json"));
  return json;
}

Words eval(const std::string& command, Words more) {
  more.insert(more.begin(), {"eval", command, "-m", kTiny, "--activations", "f32", "--kv", "f32"});
  return more;
}

std::string text_file(const Folder& folder) { return folder.write("text", golden()["text"].get<std::string>()); }

void expect_perplexity(const Json& found, const Json& wanted) {
  EXPECT_EQ(found["scored_tokens"], wanted["scored"]);
  const double nll = std::log(wanted["ppl"].get<double>());
  EXPECT_NEAR(found["nll_mean"], nll, 1e-4 * nll);
  EXPECT_NEAR(std::log(found["ppl"].get<double>()), nll, 1e-4 * nll);
  EXPECT_NEAR(found["se"].get<double>() / found["ppl"].get<double>(),
              wanted["se"].get<double>() / wanted["ppl"].get<double>(), 1e-3);
}

TEST(EvalPpl, ConventionsAgreeWithTheReference) {
  Folder folder;
  const std::string text = text_file(folder);
  const Json llama = run_json(eval("ppl", {"-f", text, "--context", "64"}));
  expect_perplexity(llama, golden()["llama_64"]);
  EXPECT_EQ(llama["mode"], "split");
  EXPECT_EQ(llama["chunks"], 3);
  EXPECT_EQ(llama["finish_reason"], "complete");
  for (const char* key : {"corpus", "corpus_sha256", "ids_sha256", "convention", "context", "bos", "model_sha256",
                          "ratio", "ffn_sparsity", "weights_read_share"})
    EXPECT_TRUE(llama.contains(key)) << key;
  expect_perplexity(run_json(eval("ppl", {"-f", text, "--context", "64", "--mode", "prefill"})), golden()["llama_64"]);
  expect_perplexity(run_json(eval("ppl", {"-f", text, "--context", "50", "--convention", "hf-chunk"})),
                    golden()["hf_chunk_50"]);
  const Json rolling = run_json(eval("ppl", {"-f", text, "--context", "60", "--convention", "rolling"}));
  expect_perplexity(rolling, golden()["rolling_60"]);
  const double word = std::log(golden()["rolling_60"]["word_ppl"].get<double>());
  EXPECT_NEAR(std::log(rolling["word_ppl"].get<double>()), word, 1e-4 * word);
  const double bits = std::log2(golden()["rolling_60"]["byte_ppl"].get<double>());
  EXPECT_NEAR(rolling["bits_per_byte"], bits, 1e-4 * bits);
}

TEST(EvalPpl, DocumentsOfALineEach) {
  Folder folder;
  Json line;
  line["text"] = golden()["text"];
  const std::string file = folder.write("lines", line.dump() + "\n" + line.dump() + "\n");
  const Json json = run_json(eval("ppl", {"-f", file, "--lines", "--context", "60", "--convention", "rolling"}));
  EXPECT_EQ(json["scored_tokens"], 2 * golden()["rolling_60"]["scored"].get<int>());
  EXPECT_NEAR(json["nll_mean"], std::log(golden()["rolling_60"]["ppl"].get<double>()), 1e-2);
}

TEST(EvalPpl, ErrorsNameWhatIsWrong) {
  Folder folder;
  const std::string text = text_file(folder);
  const Outcome small = pop(eval("ppl", {"-f", text, "--context", "200"}));
  EXPECT_EQ(small.code, 1);
  EXPECT_NE(small.err.find("expected at least 400 tokens"), std::string::npos) << small.err;
  EXPECT_EQ(pop(eval("ppl", {"-f", text, "--convention", "rolling", "--mode", "split"})).code, 2);
  EXPECT_EQ(pop(eval("ppl", {"-f", text, "--lines"})).code, 2);
  EXPECT_EQ(pop(eval("ppl", {})).code, 2);
}

// Items of the golden file as a task file.
std::string items_file(const Folder& folder) {
  std::string lines = "{\"task\":\"small\",\"kind\":\"choice\"}\n";
  for (const Json& item : golden()["items"]) lines += item.dump() + "\n";
  return folder.write("items.jsonl", lines);
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> out;
  std::istringstream lines(read_bytes(path));
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

TEST(EvalMc, ScoresAgreeWithTheReference) {
  Folder folder;
  const std::string items = items_file(folder);
  for (const char* mode : {"split", "split-1", "prefill"}) {
    const std::string samples = folder.path(std::string(mode) + ".jsonl");
    const Json json = run_json(eval("mc", {"-f", items, "--mode", mode, "--per-item", samples}));
    const std::vector<Json> lines = lines_of(samples);
    const Json& wanted = golden()["results"];
    ASSERT_EQ(lines.size(), wanted.size());
    double acc = 0;
    int tokens = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["doc_id"], i);
      EXPECT_EQ(lines[i]["acc"], wanted[i]["acc"]) << mode << " item " << i;
      EXPECT_EQ(lines[i].contains("acc_norm"), wanted[i].contains("acc_norm"));
      if (wanted[i].contains("acc_norm")) {
        EXPECT_EQ(lines[i]["acc_norm"], wanted[i]["acc_norm"]) << mode << " item " << i;
      }
      acc += wanted[i]["acc"].get<double>();
      for (size_t k = 0; k < wanted[i]["sums"].size(); ++k) {
        const double sum = std::stod(lines[i]["filtered_resps"][k][0].get<std::string>());
        EXPECT_NEAR(sum, wanted[i]["sums"][k], 2e-4 * std::abs(sum)) << mode << " item " << i;
        EXPECT_EQ(lines[i]["filtered_resps"][k][1], wanted[i]["greedy"][k] ? "True" : "False");
        tokens += wanted[i]["tokens"][k].get<int>();
      }
    }
    EXPECT_EQ(json["task"], "small");
    EXPECT_EQ(json["items"], lines.size());
    EXPECT_EQ(json["clusters"], lines.size() - 1);  // two items share one
    EXPECT_NEAR(json["acc"], acc / double(lines.size()), 1e-12);
    EXPECT_TRUE(json["acc_norm"].is_null());  // an item has none
    EXPECT_EQ(json["scored_tokens"], tokens);
    EXPECT_EQ(json["truncated"], 0);
  }
}

// split: the first token of every answer is the prefill's; split-1: of answers after more than one token, it is decode's.
TEST(EvalMc, ModesSayWhatDecodePredicts) {
  Folder folder;
  const std::string items = items_file(folder);
  const auto by_prefill = [&](const char* mode) {
    const Json json = run_json(eval("mc", {"-f", items, "--mode", mode}));
    return json["scored_tokens"].get<int>() - json["decoded_tokens"].get<int>();
  };
  EXPECT_EQ(by_prefill("split"), 2 + 3 + 2 + 2 + 3 + 3 + 2 + 4);
  EXPECT_EQ(by_prefill("split-1"), 2);  // the empty context is one token, which must be prefill
  const Json prefill = run_json(eval("mc", {"-f", items, "--mode", "prefill", "--prune", "pop"}));
  EXPECT_EQ(prefill["decoded_tokens"], 0);
  EXPECT_TRUE(prefill["weights_read_share"].is_null());
}

// Answers of one token share a pass, and their scores are those of answers on their own.
TEST(EvalMc, OneTokenAnswersShareAPass) {
  Folder folder;
  const std::string header = "{\"task\":\"t\",\"kind\":\"choice\",\"delimiter\":\"\"}\n";
  const std::string a = folder.write("a", header + "{\"context\":\"is it?\",\"choices\":[\"n\",\"y\"],\"gold\":1}\n");
  const std::string b = folder.write("b", header + "{\"context\":\"is it?\",\"choices\":[\"n!\",\"y!\"],\"gold\":1}\n");
  run_json(eval("mc", {"-f", a, "--mode", "split-1", "--per-item", folder.path("pa")}));
  run_json(eval("mc", {"-f", b, "--mode", "split-1", "--per-item", folder.path("pb")}));
  EXPECT_EQ(lines_of(folder.path("pa"))[0]["reads"]["tokens"], 1);
  EXPECT_EQ(lines_of(folder.path("pb"))[0]["reads"]["tokens"], 4);
  const auto score = [&](const char* path, int k) {
    return std::stod(lines_of(folder.path(path))[0]["filtered_resps"][size_t(k)][0].get<std::string>());
  };
  EXPECT_NE(score("pa", 0), score("pa", 1));
  EXPECT_GT(score("pa", 0), score("pb", 0));
}

TEST(EvalMc, ALongContextIsCutOnTheLeftAndCounted) {
  Folder folder;
  const std::string end = "and so it goes on";
  const Json item = {{"context", std::string(100, 'x') + end}, {"choices", {"yes", "no"}}, {"gold", 0}};
  const std::string file = folder.write("items", item.dump() + "\n");
  const Json json = run_json(eval("mc", {"-f", file, "--ctx", "12", "--per-item", folder.path("p")}));
  EXPECT_EQ(json["truncated"], 1);
  // 12 inputs: " yes" is 4 tokens, so 9 of the context and 3 of the answer.
  const std::string kept = end.substr(end.size() - 9) + " yes";
  const Json score =
      run_json({"score", "-m", kTiny, "--activations", "f32", "--kv", "f32", "-p", kept, "--split", "9"});
  const double sum = std::stod(lines_of(folder.path("p"))[0]["filtered_resps"][0][0].get<std::string>());
  EXPECT_NEAR(sum, -score["nll_sum"].get<double>(), 1e-9 + 1e-6 * std::abs(sum));
}

TEST(EvalMc, WrongItemsAreOneClearLine) {
  Folder folder;
  const auto error = [&](const std::string& lines) {
    const Outcome done = pop(eval("mc", {"-f", folder.write("x.jsonl", lines)}));
    EXPECT_EQ(done.code, 1) << lines;
    EXPECT_EQ(done.out, "");
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    return done.err;
  };
  const auto expect = [&](const std::string& lines, const std::string& message) {
    const std::string found = error(lines);
    EXPECT_NE(found.find(message), std::string::npos) << found;
  };
  expect("{\"choices\":[\"a\",\"b\"],\"gold\":0}\n", "x.jsonl:1: \"context\": expected a text, found nothing");
  expect("{\"context\":\"q\",\"choices\":[\"a\",\"b\"]}\n",
         "\"gold\": expected a whole number from 0 to 1, found nothing");
  expect("{\"context\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":2}\n",
         "\"gold\": expected a whole number from 0 to 1, found 2");
  expect("{\"context\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":-1}\n", "found -1");
  expect("{\"context\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":\"a\"}\n", "found \"a\"");
  expect("{\"context\":\"q\",\"choices\":[],\"gold\":0}\n", "\"choices\": expected at least 2 texts, found 0");
  expect("{\"context\":\"q\",\"choices\":[\"a\",\"\"],\"gold\":0}\n",
         "\"choices\": entry 2: expected a text that is not empty");
  expect("{\"context\":\"q\",\"choices\":\"ab\",\"gold\":0}\n", "\"choices\": expected a list of texts");
  expect("{\"contexts\":[\"a\",\"b\"],\"gold\":0}\n", "\"ending\": expected a text, found nothing");
  expect("{\"task\":\"t\",\"kind\":\"generate\"}\n{\"context\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":0}\n",
         "\"kind\": expected \"choice\"");
  expect("{\"task\":\"t\",\"kind\":\"choice\"}\n", "expected at least one item");
  expect("{\"context\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":0}\n{\"context\":\n",
         "x.jsonl:2: expected a JSON object");
  expect("", "expected at least one item");
}

// Cut off in the middle of a line, as by a kill: what was whole is kept, and the end is that of an uninterrupted run.
TEST(EvalMc, ContinuesWhatAnInterruptionLeft) {
  Folder folder;
  const std::string items = items_file(folder), whole = folder.path("whole.jsonl"), part = folder.path("part.jsonl");
  const Words options = {"-f", items, "--mode", "split-1", "--prune", "pop", "--ratio", "0.4"};
  const auto with = [&](const std::string& file, Words more) {
    Words words = options;
    words.insert(words.end(), {"--per-item", file});
    words.insert(words.end(), more.begin(), more.end());
    return eval("mc", words);
  };
  Json first = run_json(with(whole, {}));
  const std::string bytes = read_bytes(whole);
  folder.write("part.jsonl", bytes.substr(0, bytes.size() * 6 / 10));
  const Outcome rest = pop(with(part, {"--json"}));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.err.find("of 8 items were there"), std::string::npos) << rest.err;
  EXPECT_EQ(read_bytes(part), bytes);
  Json second = rest.json();
  for (Json* json : {&first, &second}) json->erase("per_item");
  EXPECT_EQ(first, second);
  const Outcome other = pop(with(part, {"--gamma", "0.2"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("of another run: gamma: expected 0.2, found 0.1"), std::string::npos) << other.err;
  // Some of the items only: the figures are of those.
  EXPECT_EQ(run_json(with(part, {"--limit", "3"}))["items"], 3);
}

// A second run of ppl and kl takes every window from the file; the figures stay the same bits.
TEST(EvalPerItem, WindowsAreTakenFromTheFile) {
  Folder folder;
  const std::string text = text_file(folder);
  for (const Words& words : {Words{"ppl", "--context", "64"}, Words{"kl", "--context", "40", "--decode", "20"}}) {
    Words more(words.begin() + 1, words.end());
    const std::string file = folder.path(words[0] + ".jsonl");
    more.insert(more.end(), {"-f", text, "--prune", "pop", "--per-item", file});
    Json first = run_json(eval(words[0], more));
    more.push_back("--json");
    const Outcome again = pop(eval(words[0], more));
    EXPECT_NE(again.err.find("windows were there"), std::string::npos) << again.err;
    EXPECT_EQ(again.json(), first) << words[0];
  }
}

TEST(EvalKl, AllStatistics) {
  Folder folder;
  const Json json = run_json(eval("kl", {"-f", text_file(folder), "--context", "40", "--decode", "40", "--prune", "pop",
                                         "--ratio", "0.4", "--generate", "12"}));
  const Json &kl = json["kl"], &dp = json["delta_p"];
  for (const char* key :
       {"mean", "ci95", "se", "median", "min", "p0.1", "p1", "p5", "p10", "p90", "p95", "p99", "p99.9", "max"})
    EXPECT_TRUE(kl.contains(key)) << key;
  for (const char* key : {"mean", "se", "rms", "rms_se", "p25", "p75"}) EXPECT_TRUE(dp.contains(key)) << key;
  EXPECT_LE(kl["p90"], kl["p95"]);
  EXPECT_NEAR(json["ln_ppl_ratio"]["mean"],
              std::log(json["ppl_pruned"].get<double>() / json["ppl_dense"].get<double>()), 1e-9);
  EXPECT_NEAR(json["ppl_ratio"]["mean"], json["ppl_pruned"].get<double>() / json["ppl_dense"].get<double>(), 1e-9);
  const Json& first = json["first_divergence"];
  EXPECT_EQ(first["generated"], 12);
  EXPECT_LE(first["quartiles"][0], first["median"]);
  ASSERT_EQ(json["by_position"].size(), 2u);
  double weighted = 0;
  for (const Json& range : json["by_position"])
    weighted += range["kl"].get<double>() * (range["to"].get<double>() - range["from"].get<double>() + 1) / 40;
  EXPECT_NEAR(weighted, kl["mean"], 1e-12);
}

// The first divergence, from the answers that `run` gives.
TEST(EvalKl, FirstDivergenceIsThatOfTheAnswers) {
  Folder folder;
  const std::string text = text_file(folder);
  const Json json = run_json(eval("kl", {"-f", text, "--context", "40", "--decode", "20", "--sequences", "1", "--prune",
                                         "pop", "--ratio", "0.4", "--generate", "16"}));
  std::vector<int> ids[2];
  for (int pruned = 0; pruned < 2; ++pruned) {
    Words words = {"run",
                   "-m",
                   kTiny,
                   "--activations",
                   "f32",
                   "--kv",
                   "f32",
                   "-p",
                   golden()["text"].get<std::string>().substr(0, 40),
                   "-n",
                   "16",
                   "--temp",
                   "0",
                   "--ignore-eos"};
    if (pruned) words.insert(words.end(), {"--prune", "pop", "--ratio", "0.4"});
    ids[pruned] = run_json(words)["ids"].get<std::vector<int>>();
  }
  int equal = 0;
  while (equal < 16 && ids[0][size_t(equal)] == ids[1][size_t(equal)]) ++equal;
  EXPECT_EQ(json["first_divergence"]["median"], equal);
  EXPECT_EQ(json["first_divergence"]["never"], equal == 16 ? 1 : 0);
}

// Several ratios in one run: the figures of a run each; windows that are there are not computed again.
TEST(EvalKl, RatiosAreTheRunsOfEach) {
  Folder folder;
  const std::string text = text_file(folder), items = folder.path("items");
  const Words common = {"-f", text, "--context", "40", "--decode", "20", "--prune", "pop", "--per-item"};
  const auto run = [&](Words more) {
    Words words = common;
    words.insert(words.end(), more.begin(), more.end());
    return pop(eval("kl", words));
  };
  const auto without_path = [](Json json) {
    json.erase("per_item");
    return json;
  };
  ASSERT_EQ(run({items, "--ratios", "0.4", "--sequences", "1", "--json"}).code, 0);  // of 0.4 a window is there
  const Outcome both = run({items, "--ratios", "0.2,0.4", "--json"});
  EXPECT_EQ(both.code, 0);
  EXPECT_NE(both.err.find("1 of "), std::string::npos) << both.err;
  std::istringstream lines(both.out);
  for (const std::string ratio : {"0.2", "0.4"}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const Json json = Json::parse(line), alone = run({folder.path("alone" + ratio), "--ratio", ratio, "--json"}).json();
    EXPECT_EQ(without_path(json), without_path(alone));
    EXPECT_EQ(json["per_item"], items + "." + ratio);
  }
  EXPECT_EQ(run({items, "--ratios", "0.2", "--ratio", "0.3"}).code, 2);
  EXPECT_EQ(run({items, "--ratios", "0.2,0.2"}).code, 2);  // both would write one file
  EXPECT_EQ(run({items, "--ratios", "0.2", "--base", "activations=f32"}).code, 2);
}

// Another file as the base: the same file gives what dense gives, another model something else, other tokens an error.
TEST(EvalKl, BaseIsAnotherModel) {
  Folder folder;
  const std::string text = text_file(folder);
  const Words common = {"-f", text, "--context", "40", "--decode", "20", "--base"};
  const auto against = [&](const std::string& base, Words more) {
    Words words = common;
    words.push_back(base);
    words.insert(words.end(), more.begin(), more.end());
    return pop(eval("kl", words));
  };
  const Json same = against(std::string("model=") + kTiny, {"--json"}).json();
  EXPECT_EQ(same["kl"]["max"], 0.0);
  EXPECT_EQ(same["same_top"]["mean"], 1.0);
  const Json pruned = against(std::string("model=") + kTiny, {"--prune", "pop", "--json"}).json();
  EXPECT_EQ(pruned["kl"],
            run_json(eval("kl", {"-f", text, "--context", "40", "--decode", "20", "--prune", "pop"}))["kl"]);
  EXPECT_NE(pruned["base"], "dense");
  const Json other = against("model=tests/goldens/tiny-mistral.gguf", {"--json"}).json();
  EXPECT_GT(other["kl"]["mean"], 0.1);
  // --load-as is of the model alone.
  EXPECT_GT(against(std::string("model=") + kTiny, {"--load-as", "q4_0", "--json"}).json()["kl"]["mean"], 0.0);
  EXPECT_EQ(against("model=", {}).code, 2);
  const Outcome absent = against("model=" + folder.path("absent"), {});
  EXPECT_EQ(absent.code, 1);
}

TEST(EvalCompare, PairsItemsAndCountsFlips) {
  Folder folder;
  std::string a, b;
  // 10 items, acc of a: 1111100000, of b: 1110010000
  const std::string of_a = "1111100000", of_b = "1110010000";
  for (size_t i = 0; i < 10; ++i) {
    const auto line = [&](char acc) {
      return Json{{"doc_id", i},
                  {"filter", "none"},
                  {"metrics", {"acc"}},
                  {"acc", acc - '0'},
                  {"prompt_hash", fmt::format("p{}", i)}}
                 .dump() +
             "\n";
    };
    a += line(of_a[i]);
    b = line(of_b[i]) + b;  // order does not matter
  }
  const std::string file_a = folder.write("a", a), file_b = folder.write("b", b);
  const Json json = run_json({"eval", "compare", file_a, file_b});
  EXPECT_EQ(json["items"], 10);
  EXPECT_EQ(json["metric"], "acc");
  EXPECT_NEAR(json["mean_difference"], -0.1, 1e-12);
  EXPECT_EQ(json["flips"], (Json{{"right_to_wrong", 2}, {"wrong_to_right", 1}}));
  EXPECT_EQ(json["mcnemar_p"], 1.0);  // 2 (1 + 3) / 8
  // Standard error sqrt(0.29 / 10) = 0.170: about -0.1 -+ 0.33, in steps of 0.1
  EXPECT_NEAR(json["ci95"][0], -0.4, 0.11);
  EXPECT_NEAR(json["ci95"][1], 0.2, 0.11);
  const auto error = [&](Words words) {
    words.insert(words.begin(), {"eval", "compare"});
    const Outcome done = pop(words);
    EXPECT_EQ(done.code, 1);
    return done.err;
  };
  const std::string half = folder.write("half", a.substr(0, a.size() / 2));
  EXPECT_NE(error({file_a, half}).find("expected the same items"), std::string::npos);
  EXPECT_EQ(run_json({"eval", "compare", file_a, half, "--partial"})["items"], 5);
  const std::string other =
      folder.write("other", Json{{"doc_id", 0}, {"metrics", {"acc"}}, {"acc", 1}, {"prompt_hash", "q"}}.dump());
  EXPECT_NE(error({file_a, other, "--partial"}).find("expected the same prompt_hash"), std::string::npos);
  EXPECT_NE(error({file_a, file_b, "--metric", "f1"}).find("\"f1\": expected a number, found nothing"),
            std::string::npos);
  EXPECT_NE(error({file_a, folder.write("twice", a + a)}).find("stands there twice"), std::string::npos);
}

// A file of lm-eval's own shape (values as texts, several filters per item) beside one of ours.
TEST(EvalCompare, ReadsLmEvalsSamples) {
  Folder folder;
  const std::string items = items_file(folder), ours = folder.path("ours.jsonl");
  run_json(eval("mc", {"-f", items, "--per-item", ours}));
  std::string theirs;
  for (const Json& line : lines_of(ours))
    for (const char* filter : {"none", "strict"})
      theirs += Json{{"doc_id", line["doc_id"]},
                     {"doc", {{"anything", 1}}},
                     {"target", line["target"]},
                     {"resps", line["resps"]},
                     {"filtered_resps", line["filtered_resps"]},
                     {"filter", filter},
                     {"metrics", {"acc"}},
                     {"doc_hash", "another object's"},
                     {"prompt_hash", line["prompt_hash"]},
                     {"target_hash", line["target_hash"]},
                     {"acc", line["acc"]}}
                    .dump() +
                "\n";
  const std::string file = folder.write("theirs.jsonl", theirs);
  const Outcome open = pop({"eval", "compare", file, ours});
  EXPECT_NE(open.err.find("expected one filter, found none, strict"), std::string::npos) << open.err;
  const Json json = run_json({"eval", "compare", file, ours, "--filter", "none"});
  EXPECT_EQ(json["mean_difference"], 0.0);
  EXPECT_EQ(json["mcnemar_p"], 1.0);
}

TEST(EvalSparsity, PerLayerAndStep) {
  Folder folder;
  const std::string csv = folder.path("ranks.csv");
  const Json json = run_json({"eval", "sparsity", "-m", kTiny, "-f", text_file(folder), "--context", "40", "--decode",
                              "10", "--sequences", "3", "--csv", csv});
  EXPECT_EQ(json["by_layer"].size(), 3u);
  EXPECT_EQ(json["by_step"].size(), 10u);
  EXPECT_EQ(json["sequences"], 3);
  EXPECT_TRUE(json["by_step"][0]["rank_change"].is_null());
  EXPECT_EQ(json["chance"]["top_half_overlap"], 0.5);
  for (const Json& layer : json["by_layer"])
    for (const char* name : {"rank_change", "top_half_overlap_next", "top_half_overlap_prefill"}) {
      EXPECT_GT(layer[name], 0.0);
      EXPECT_LT(layer[name], 1.0);
    }
  const std::string rows = read_bytes(csv);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 3 * 10);
}

TEST(EvalTable, ResultsSideBySide) {
  Folder folder;
  const std::string a = folder.write(
      "a.json", "{\"method\":\"pop\",\"ratio\":0.2,\"kl\":{\"mean\":0.123456789,\"ci95\":[0.1,0.2]},\"extra\":7}\n");
  const std::string b =
      folder.write("b.json", "{\"method\":\"a|b\",\"acc\":0.5}\n{\"method\":\"dense\",\"ratio\":null}\n");
  const Outcome table = pop({"eval", "table", a, b});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(
      table.out,
      "| file | method | ratio | kl_mean | kl_ci95_low | kl_ci95_high | acc |\n|---|---|---|---|---|---|---|\n| " + a +
          " | pop | 0.2 | 0.12346 | 0.1 | 0.2 |  |\n| " + b + " | a\\|b |  |  |  |  | 0.5 |\n| " + b +
          " | dense |  |  |  |  |  |\n");
  const Outcome csv = pop({"eval", "table", a, "--columns", "extra,kl_mean", "--format", "csv"});
  EXPECT_EQ(csv.out, "file,extra,kl_mean\n" + a + ",7,0.123456789\n");
  EXPECT_EQ(pop({"eval", "table", a, "--columns", "nothing"}).code, 1);
  EXPECT_EQ(pop({"eval", "table", folder.write("c", "no\n")}).code, 1);
  EXPECT_EQ(pop({"eval", "table"}).code, 2);
}

}  // namespace
}  // namespace pop::app
