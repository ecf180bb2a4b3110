// What the program gives back: JSON shapes of docs/cli.md, files, determinism, Ctrl-C. Most on a tiny model of the goldens.
#include "apps/program_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

namespace pop::app {
namespace {

void expect_keys(const Json& json, const Words& keys) {
  for (const auto& key : keys) EXPECT_TRUE(json.contains(key)) << key;
}

const Words kCommon = {"method",
                       "ratio",
                       "ratio_of",
                       "ffn_sparsity",
                       "gamma",
                       "metric",
                       "norm",
                       "prefill",
                       "isa",
                       "threads",
                       "activations",
                       "kv",
                       "bos",
                       "model_sha256",
                       "version",
                       "weight_bytes_per_token",
                       "weights_read_share",
                       "block_weights_read_share",
                       "selected_share",
                       "realised_ratio",
                       "ffn_reads",
                       "layout"};

TEST(Run, JsonHasTheFieldsOfTheContract) {
  const Json json = run_json(
      tiny("run", {"-p", "abcdef", "-n", "5", "--temp", "0", "--ignore-eos", "--prune", "pop", "--ratio", "0.3"}));
  expect_keys(json, {"text", "ids", "prompt_tokens", "generated_tokens", "finish_reason", "timing", "logits_hash"});
  expect_keys(json, kCommon);
  expect_keys(json["timing"],
              {"load_s", "prefill_s", "partition_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"});
  EXPECT_EQ(json["ids"].size(), 5u);
  EXPECT_EQ(json["prompt_tokens"], 6);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["method"], "pop");
  EXPECT_EQ(json["ratio"], 0.3);
  EXPECT_EQ(json["logits_hash"].get<std::string>().size(), 16u);
  EXPECT_LT(json["weights_read_share"], 1.0);
}

TEST(Run, SameBitsAgainAndWithAnyThreads) {
  const Words words =
      tiny("run", {"-p", "abcdef", "-n", "8", "--temp", "0.9", "--seed", "7", "--ignore-eos", "--prune", "pop"});
  const auto with = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run_json(all);
  };
  const Json first = with({}), again = with({}), threads = with({"-t", "3"}), chunks = with({"--prefill-chunk", "2"});
  for (const Json& other : {again, threads, chunks}) {
    EXPECT_EQ(first["logits_hash"], other["logits_hash"]);
    EXPECT_EQ(first["ids"], other["ids"]);
  }
  // Another seed draws another answer of 8 tokens from 259 that a random model finds about equally likely.
  Words other = words;
  *(std::find(other.begin(), other.end(), "7")) = "8";
  EXPECT_NE(run_json(other)["ids"], first["ids"]);
}

TEST(Run, TextGoesToStdoutAndSpeedToStderr) {
  Words words = tiny("run", {"-p", "abc", "-n", "3", "--temp", "0", "--ignore-eos"});
  const Outcome loud = pop(words);
  EXPECT_NE(loud.err.find("MB of weights per token"), std::string::npos) << loud.err;
  words.push_back("-q");
  const Outcome quiet = pop(words);
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, loud.out);
  EXPECT_TRUE(quiet.out.ends_with("\n"));
}

TEST(Run, PromptsFromFileStdinAndIdsAreTheSame) {
  Folder folder;
  const std::string file = folder.write("prompt ü 漢字.txt", "abc\n");
  const Words rest = {"-n", "2", "--temp", "0", "--ignore-eos", "--json"};
  const auto hash = [&](Words words, const std::string& input) {
    words.insert(words.end(), rest.begin(), rest.end());
    const Outcome done = pop(tiny("run", words), input);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.json()["logits_hash"];
  };
  const Json wanted = hash({"-p", "abc"}, "");
  EXPECT_EQ(hash({"-f", file}, ""), wanted);  // the last newline is not part of a prompt
  EXPECT_EQ(hash({"-"}, "abc\n"), wanted);
  EXPECT_EQ(hash({"--ids", "97, 98 99"}, ""), wanted);
  EXPECT_NE(hash({"-p", "abd"}, ""), wanted);
}

TEST(Run, CtrlCPrintsWhatThereIsAndEndsWith130) {
  if (!std::filesystem::exists(kDefaultModel)) GTEST_SKIP() << kDefaultModel << " is absent";
  const Outcome done =
      pop({"run", "-m", kDefaultModel, "-p", "Once upon a time", "-n", "4000", "--ignore-eos", "-q"}, "", true);
  EXPECT_EQ(done.code, 130);
  EXPECT_GT(done.out.size(), 0u);
  EXPECT_TRUE(done.out.ends_with("\n"));
  EXPECT_EQ(done.err, "");
}

TEST(Tokenize, EscapesOnlyWhenAsked) {
  EXPECT_EQ(pop(tiny("tokenize", {"-p", "a\\nb"})).out, "97,92,110,98\n");
  EXPECT_EQ(pop(tiny("tokenize", {"-e", "-p", "a\\nb\\\\"})).out, "97,10,98,92\n");
  Folder folder;
  const std::string file = folder.write("text", "a\\nb");
  EXPECT_EQ(pop(tiny("tokenize", {"-f", file})).out, "97,92,110,98\n");
  EXPECT_EQ(pop(tiny("tokenize", {"-f", file, "-e"})).out, "97,10,98\n");
  EXPECT_EQ(pop(tiny("tokenize", {"--lines", file})).out, "97,92,110,98\n");
}

TEST(Tokenize, AnyBytesGoThereAndBack) {
  Folder folder;
  const std::string bytes("a\xff\x00\xe6\xbc\xa2\n", 7);
  const std::string file = folder.write("bytes", bytes);
  const Outcome ids = pop(tiny("tokenize", {"-f", file}));
  EXPECT_EQ(ids.out, "97,255,0,230,188,162,10\n");
  EXPECT_EQ(pop(tiny("detokenize", {"-"}), ids.out).out, bytes);
  const Json json = run_json(tiny("tokenize", {"-f", file}));
  EXPECT_EQ(json["ids"], Json({97, 255, 0, 230, 188, 162, 10}));
  EXPECT_EQ(json["text"], std::string("a\xef\xbf\xbd\0\xe6\xbc\xa2\n", 9));  // what is not UTF-8 becomes U+FFFD in JSON
  EXPECT_EQ(json["tokens"].size(), 7u);
}

TEST(Tokenize, OneDocumentPerLine) {
  Folder folder;
  const std::string file = folder.write("lines", "ab\n\nc\n");
  EXPECT_EQ(pop(tiny("tokenize", {"--lines", file})).out, "97,98\n\n99\n");
  EXPECT_EQ(pop(tiny("detokenize", {"--lines", "-"}), "97,98\n\n99\n").out, "ab\n\nc\n");
}

TEST(Model, PathWithBlanksQuotesAndOtherLetters) {
  Folder folder;
  const std::string path = folder.path("ü 漢字 a b'.gguf");
  std::filesystem::copy_file(kTiny, path);
  EXPECT_EQ(pop({"tokenize", "-m", path, "-p", "A"}).out, "65\n");
}

TEST(Model, WithoutTokenizerRunsOnIds) {
  Folder folder;
  std::string bytes = read_bytes(kTiny);
  const std::string key = "tokenizer.ggml.model";
  ASSERT_NE(bytes.find(key), std::string::npos);
  bytes.replace(bytes.find(key), key.size(), "tokenizer.ggml.mode_");
  const std::string path = folder.write("ids.gguf", bytes);
  const auto hash = [](const std::string& model) {
    return run_json({"score", "-m", model, "--ids", "97,98,99"})["logits_hash"];
  };
  EXPECT_EQ(hash(path), hash(kTiny));
  EXPECT_EQ(run_json({"run", "-m", path, "--ids", "97,98", "-n", "3"})["ids"].size(), 3u);
  EXPECT_EQ(run_json({"info", "-m", path})["savings"].size(), run_json({"info", "-m", kTiny})["savings"].size());
  EXPECT_EQ(pop({"score", "-m", path, "--ids", "97,98,99"}).code, 0);
  EXPECT_EQ(pop({"bench", "decode", "-m", path, "-p", "8", "-n", "4", "--rounds", "1"}).code, 0);
  const Outcome text = pop({"run", "-m", path, "-p", "abc"});
  EXPECT_EQ(text.code, 1);
  EXPECT_NE(text.err.find("expected a tokenizer"), std::string::npos) << text.err;
}

TEST(Score, SumsAreThoseOfItsLogprobs) {
  const Json json = run_json(tiny("score", {"-p", "abcdefgh", "--split", "3", "--prune", "pop"}));
  expect_keys(json, {"ids", "split", "logprobs", "nll_sum", "scored", "nll_decode_sum", "scored_decode", "top",
                     "partition", "logits_hash"});
  expect_keys(json, kCommon);
  const Json& logprobs = json["logprobs"];
  ASSERT_EQ(logprobs.size(), 8u);
  EXPECT_TRUE(logprobs[0].is_null());
  double from_split = 0, decode = 0;
  for (size_t i = 3; i < 8; ++i) from_split -= logprobs[i].get<double>();
  for (size_t i = 4; i < 8; ++i) decode -= logprobs[i].get<double>();
  EXPECT_EQ(json["scored"], 5);
  EXPECT_EQ(json["scored_decode"], 4);
  EXPECT_NEAR(json["nll_sum"], from_split, 1e-9);
  EXPECT_NEAR(json["nll_decode_sum"], decode, 1e-9);
  EXPECT_EQ(json["top"].size(), 5u);
  ASSERT_EQ(json["partition"].size(), 3u);  // layers
  for (const Json& part : json["partition"]) {
    expect_keys(part, {"layer", "expert", "retained", "candidate", "pruned", "retained_first"});
    EXPECT_EQ(part["retained"].get<int>() + part["candidate"].get<int>() + part["pruned"].get<int>(), 160);
  }
}

// The score of an empty answer is that of no token, not that of the question.
TEST(Score, NothingIsScoredAfterTheLastToken) {
  const Json whole = run_json(tiny("score", {"-p", "abcd"}));
  EXPECT_EQ(whole["scored"], 3);
  for (const char* split : {"3", "4"}) {
    const Json part = run_json(tiny("score", {"-p", "abcd", "--split", split}));
    EXPECT_EQ(part["logprobs"].size(), 4u);
    EXPECT_EQ(part["scored"], *split == '3' ? 1 : 0);
    EXPECT_EQ(part["nll_sum"], *split == '3' ? -part["logprobs"][3].get<double>() : 0.0);
    EXPECT_EQ(part["scored_decode"], 0);
  }
}

TEST(Score, LinesGiveWhatEachAloneGives) {
  const std::string lines =
      "{\"text\":\"abcdef\",\"split\":2}\n{\"ids\":[1,2,3,4,5,6,7],\"split\":3}\n{\"text\":\"xy\"}\n";
  for (const char* batch : {"1", "3"}) {
    const Outcome done = pop(tiny("score", {"--lines", "-", "--batch", batch, "--prune", "pop+"}), lines);
    ASSERT_EQ(done.code, 0) << done.err;
    std::istringstream out(done.out);
    std::vector<Json> results;
    for (std::string line; std::getline(out, line);) results.push_back(Json::parse(line));
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results[0]["logits_hash"],
              run_json(tiny("score", {"-p", "abcdef", "--split", "2", "--prune", "pop+"}))["logits_hash"]);
    EXPECT_EQ(results[1]["logits_hash"],
              run_json(tiny("score", {"--ids", "1,2,3,4,5,6,7", "--split", "3", "--prune", "pop+"}))["logits_hash"]);
    EXPECT_EQ(results[2]["ids"], Json({120, 121}));
    EXPECT_TRUE(results[2]["weights_read_share"].is_null());  // nothing was decoded
  }
}

// Rows of a .npy file as --dump-logits writes it.
std::vector<std::vector<float>> read_npy(const std::string& path) {
  const std::string bytes = read_bytes(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  size_t rows = 0, width = 0;
  const std::string header = bytes.substr(10, 118);
  EXPECT_EQ(
      std::sscanf(header.c_str(), "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", &rows, &width), 2)
      << header;
  EXPECT_EQ(bytes.size(), 128 + rows * width * 4);
  std::vector<std::vector<float>> out(rows, std::vector<float>(width));
  for (size_t i = 0; i < rows && bytes.size() == 128 + rows * width * 4; ++i)
    std::memcpy(out[i].data(), bytes.data() + 128 + i * width * 4, width * 4);
  return out;
}

TEST(Dump, LogitsAgreeWithTheLogprobs) {
  Folder folder;
  const std::string file = folder.path("logits.npy");
  const Json json = run_json(tiny("score", {"--ids", "10,20,30,40", "--dump-logits", file}));
  const auto logits = read_npy(file);
  ASSERT_EQ(logits.size(), 4u);
  ASSERT_EQ(logits[0].size(), 259u);
  double sum = 0;
  for (const float x : logits[1]) sum += std::exp(double(x));
  EXPECT_NEAR(json["logprobs"][2], logits[1][30] - std::log(sum), 1e-5);
}

TEST(Dump, TraceIsWhatChromeReads) {
  Folder folder;
  const std::string file = folder.path("trace.json");
  const Json json = run_json(
      tiny("run", {"-p", "abcdef", "-n", "5", "--temp", "0", "--ignore-eos", "-t", "2", "--profile", "--trace", file}));
  std::set<std::string> parts;
  for (const Json& part : json["profile"]) {
    expect_keys(part, {"part", "prefill_s", "decode_s", "bytes"});
    parts.insert(part["part"]);
  }
  const Json events = Json::parse(read_bytes(file))["traceEvents"];
  ASSERT_GT(events.size(), 100u);
  for (const Json& event : events) {
    expect_keys(event, {"name", "ph", "pid", "tid", "ts", "dur"});
    EXPECT_EQ(event["ph"], "X");
    EXPECT_EQ(parts.count(event["name"]), 1u) << event["name"];
    EXPECT_LT(event["tid"], 2);
    EXPECT_GE(event["dur"], 0);
  }
}

TEST(Dump, PartitionCoversEveryChannelAndChoicesStayInIt) {
  Folder folder;
  const std::string file = folder.path("partition.jsonl");
  run_json(
      tiny("score", {"-p", "abcdefgh", "--split", "5", "--prune", "pop", "--ratio", "0.3", "--dump-partition", file}));
  std::istringstream lines(read_bytes(file));
  std::vector<Json> partitions(3);
  int choices = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json.contains("R")) {
      expect_keys(json, {"seq", "layer", "expert", "p", "gamma", "C", "P", "scores"});
      std::vector<int> all;
      for (const char* set : {"R", "C", "P"}) all.insert(all.end(), json[set].begin(), json[set].end());
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all.size(), 160u);
      for (int i = 0; i < 160; ++i) EXPECT_EQ(all[i], i);
      EXPECT_EQ(json["scores"].size(), 160u);
      partitions[json["layer"]] = json;
      continue;
    }
    ++choices;
    const Json& partition = partitions[json["layer"]];
    for (const Json& channel : json["chosen"])
      EXPECT_EQ(std::count(partition["P"].begin(), partition["P"].end(), channel), 0);
    EXPECT_GE(json["chosen"].size(), partition["R"].size());
  }
  EXPECT_EQ(choices, 3 * 3);  // decoded tokens times layers
}

TEST(Dump, ColumnsNameTheirSite) {
  Folder folder;
  const std::string file = folder.path("columns.jsonl");
  run_json(
      tiny("score", {"-p", "abcdefgh", "--split", "6", "--prune", "pop+", "--ratio", "0.3", "--dump-partition", file}));
  std::istringstream lines(read_bytes(file));
  int thresholds = 0, choices = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    expect_keys(json, {"seq", "layer", "site"});
    if (json.contains("tau")) {
      expect_keys(json, {"v", "counted"});
      ++thresholds;
    } else {
      expect_keys(json, {"token", "chosen"});
      ++choices;
    }
  }
  EXPECT_EQ(thresholds, 3 * 4);
  EXPECT_EQ(choices, 2 * 3 * 4);
}

TEST(EvalKl, DenseAgainstDenseIsExactlyZero) {
  Folder folder;
  const std::string file = folder.write("text", std::string(400, 'a') + std::string(200, 'b'));
  const Json json =
      run_json({"eval", "kl", "-m", kTiny, "-f", file, "--context", "40", "--decode", "20", "--sequences", "3"});
  expect_keys(json, {"corpus", "corpus_sha256", "mode", "context", "scored_tokens", "sequences", "kl", "same_top",
                     "ppl_dense", "ppl_pruned", "ln_ppl_ratio", "by_position"});
  expect_keys(json, kCommon);
  expect_keys(json["kl"], {"mean", "ci95", "median", "p99", "max"});
  EXPECT_EQ(json["scored_tokens"], 60);
  EXPECT_EQ(json["sequences"], 3);
  EXPECT_EQ(json["kl"]["mean"], 0.0);
  EXPECT_EQ(json["kl"]["max"], 0.0);
  EXPECT_EQ(json["same_top"]["mean"], 1.0);
  EXPECT_EQ(json["ppl_dense"], json["ppl_pruned"]);
  EXPECT_EQ(json["by_position"].size(), 2u);  // 1-16, 17-20
}

// The same figure from the logits that `score` dumps, by the formula.
TEST(EvalKl, IsTheDivergenceOfTheDumpedLogits) {
  Folder folder;
  std::string text;
  for (int i = 0; i < 61; ++i) text += static_cast<char>('A' + i * 7 % 50);
  const std::string file = folder.write("text", text), csv = folder.path("row.csv");
  const Json json = run_json({"eval", "kl", "-m", kTiny, "-f", file, "--context", "40", "--decode", "20", "--prune",
                              "pop", "--ratio", "0.4", "--csv", csv});
  EXPECT_EQ(json["sequences"], 1);
  const std::string window = folder.write("window", text.substr(0, 60));
  std::vector<std::vector<float>> logits[2];
  for (int pruned = 0; pruned < 2; ++pruned) {
    const std::string dump = folder.path("logits.npy");
    Words words = tiny("score", {"-f", window, "--split", "40", "--dump-logits", dump});
    if (pruned) words.insert(words.end(), {"--prune", "pop", "--ratio", "0.4"});
    run_json(words);
    logits[pruned] = read_npy(dump);
    ASSERT_EQ(logits[pruned].size(), 60u);
  }
  double kl = 0, nll = 0;
  for (size_t t = 40; t < 60; ++t) {
    double sums[2] = {};
    for (int which = 0; which < 2; ++which)
      for (const float x : logits[which][t]) sums[which] += std::exp(double(x));
    for (size_t v = 0; v < 259; ++v) {
      const double p = std::exp(double(logits[0][t][v])) / sums[0], q = std::exp(double(logits[1][t][v])) / sums[1];
      kl += p * std::log(p / q) / 20;
    }
    nll -= (logits[1][t][static_cast<unsigned char>(text[t + 1])] - std::log(sums[1])) / 20;
  }
  EXPECT_GT(kl, 1e-4);
  EXPECT_NEAR(json["kl"]["mean"], kl, 1e-6 * kl + 1e-9);
  EXPECT_NEAR(std::log(json["ppl_pruned"].get<double>()), nll, 1e-6);
  const std::string rows = read_bytes(csv);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2);
  EXPECT_NE(rows.find("kl_mean"), std::string::npos);
}

TEST(EvalKl, ModesAndShortTexts) {
  Folder folder;
  const std::string file = folder.write("text", std::string(90, 'q'));
  const Words base = {"eval", "kl", "-m", kTiny, "-f", file, "--context", "20", "--decode", "10"};
  const auto with = [&](const Words& more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_EQ(run_json(with({"--mode", "prefill", "--prune", "pop"}))["kl"]["max"], 0.0);  // no decode, nothing pruned
  EXPECT_GT(run_json(with({"--mode", "prefill", "--prune", "pop", "--prefill", "pruned"}))["kl"]["mean"], 0.0);
  const Json arithmetic = run_json(with({"--base", "activations=f32", "--activations", "i8"}));
  EXPECT_GT(arithmetic["kl"]["mean"], 0.0);
  const Outcome short_text = pop(with({"--context", "80"}));
  EXPECT_EQ(short_text.code, 2);  // given twice
  const Outcome too_short = pop({"eval", "kl", "-m", kTiny, "-f", file, "--context", "80", "--decode", "10"});
  EXPECT_EQ(too_short.code, 1);
  EXPECT_NE(too_short.err.find("at least 91 tokens"), std::string::npos) << too_short.err;
}

TEST(Lists, MethodsAndInfo) {
  const Json methods = run_json({"methods"});
  std::vector<std::string> names;
  for (const Json& method : methods["methods"]) {
    expect_keys(method, {"name", "summary", "source", "needs", "selects", "count", "options"});
    names.push_back(method["name"]);
  }
  for (const char* name : {"dense", "pop", "pop+", "fixed", "full", "random"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  const Json info = run_json({"info", "-m", kTiny});
  EXPECT_EQ(info["layers"], 3);
  EXPECT_EQ(info["f"], 160);
  EXPECT_EQ(info["vocab"], 259);
  expect_keys(info["bytes_per_token"], {"attention", "ffn", "head"});
  EXPECT_GE(info["savings"].size(), 2u);
}

TEST(Demo, ThreeAnswersAndTheirDivergence) {
  const Json json = run_json({"demo", "-m", kTiny, "-n", "6"});
  expect_keys(json, {"prompt", "dense", "pruned", "plus", "kl", "kl_plus", "speedup", "speedup_plus"});
  expect_keys(json, kCommon);
  expect_keys(json["kl"], {"mean", "max", "same_top", "tokens"});
  EXPECT_EQ(json["dense"]["method"], "dense");
  EXPECT_EQ(json["pruned"]["method"], "pop");
  EXPECT_EQ(json["plus"]["method"], "pop+");
  EXPECT_GT(json["kl"]["mean"], 0.0);
}

TEST(Demo, TextStaysWithinEightyColumns) {
  const Outcome done = pop({"demo", "-m", kTiny, "-n", "6", "-p", "What is the answer?"});
  EXPECT_EQ(done.code, 0) << done.err;
  for (const char* part : {"dense", "pop, ratio 0.2", "pop+", "MB/token", "How to read it", "Try next"})
    EXPECT_NE(done.out.find(part), std::string::npos) << part;
  if (!std::filesystem::exists(kDefaultModel)) GTEST_SKIP() << kDefaultModel << " is absent";
  std::istringstream lines(pop({"demo", "-m", kDefaultModel, "-n", "8"}).out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }), 80) << line;
}

TEST(Chat, CommandsAndAnswers) {
  if (!std::filesystem::exists(kDefaultModel)) GTEST_SKIP() << kDefaultModel << " is absent";
  const Outcome done =
      pop({"chat", "-m", kDefaultModel, "-n", "4", "--temp", "0"},
          "/stats\nSay yes.\n/prune pop 0.3\nAgain.\n/stats\n/prune pop 7\n/rest\n/reset\n/dense\nBye");
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 3) << done.out;  // three answers, a line each
  for (const char* part :
       {"no answer yet", "pop, ratio 0.3", "of dense", "found '7'", "did you mean /reset?", "forgotten"})
    EXPECT_NE(done.err.find(part), std::string::npos) << part << "\n" << done.err;
}

}  // namespace
}  // namespace pop::app
