// What the program says about itself, and how it answers what it cannot do.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "apps/program_test.h"

namespace pop::app {
namespace {

const std::vector<Words> kCommands = {{"demo"},
                                      {"run"},
                                      {"chat"},
                                      {"score"},
                                      {"info"},
                                      {"tokenize"},
                                      {"detokenize"},
                                      {"methods"},
                                      {"convert"},
                                      {"eval"},
                                      {"eval", "kl"},
                                      {"bench"},
                                      {"help"},
                                      {"bench", "roof"},
                                      {"bench", "decode"},
                                      {"bench", "prefill"},
                                      {"bench", "kernels"},
                                      {"bench", "write"}};

TEST(Help, OfEveryCommandHasOptionsAndTwoExamplesInEightyColumns) {
  for (Words words : kCommands) {
    words.push_back("--help");
    const Outcome done = pop(words);
    EXPECT_EQ(done.code, 0) << words[0];
    EXPECT_EQ(done.err, "");
    EXPECT_NE(done.out.find("Usage: "), std::string::npos) << words[0];
    int examples = 0;
    std::istringstream lines(done.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << words[0] << ": " << line;
      if (line.starts_with("  pop ")) ++examples;
    }
    EXPECT_GE(examples, 2) << words[0];
  }
}

// A renaming in the source must not reach the reader: no word written as our types are, but for names that are.
TEST(Help, SpeaksOfNoTypes) {
  std::vector<Words> commands = kCommands;
  for (const char* name : {"ppl", "mc", "gen", "compare", "sparsity", "table"}) commands.push_back({"eval", name});
  commands.push_back({"calibrate"});
  for (Words words : commands) {
    words.push_back("--help");
    const std::string text = pop(words).out;
    const std::regex type("[A-Z][a-z]+[A-Z][a-z]+[A-Za-z]*");
    for (std::sregex_iterator at(text.begin(), text.end(), type), end; at != end; ++at)
      EXPECT_TRUE(at->str() == "HumanEval" || at->str() == "LongRoPE") << at->str() << "\n" << text;
  }
}

TEST(Help, ListsEveryCommand) {
  const std::string text = pop({"--help"}).out;
  for (const Words& words : kCommands)
    if (words.size() == 1) {
      EXPECT_NE(text.find("\n  " + words[0] + " "), std::string::npos) << words[0];
    }
}

TEST(Help, PruningFitsAScreenAndExplainsTheWords) {
  const Outcome done = pop({"help", "pruning"});
  EXPECT_EQ(done.code, 0);
  EXPECT_LE(std::count(done.out.begin(), done.out.end(), '\n'), 40);
  for (const char* word : {"--ratio", "--gamma", "--metric"}) EXPECT_NE(done.out.find(word), std::string::npos);
}

TEST(Help, OfACommandIsItsPage) {
  for (const char* command : {"run", "chat", "methods"})
    EXPECT_EQ(pop({"help", command}).out, pop({command, "--help"}).out) << command;
  EXPECT_EQ(pop({"help"}).out, pop({"--help"}).out);
}

TEST(Version, NamesBuildAndInstructionSets) {
  const Outcome done = pop({"--version"});
  EXPECT_EQ(done.code, 0);
  for (const char* word : {"pop ", "commit ", "scalar"}) EXPECT_NE(done.out.find(word), std::string::npos) << word;
}

// One line on stderr, nothing on stdout.
void expect_error(const Words& words, int code, const std::string& part, const std::string& input = "") {
  const Outcome done = pop(words, input);
  std::string shown;
  for (const auto& word : words) shown += word + " ";
  EXPECT_EQ(done.code, code) << shown << done.err;
  EXPECT_EQ(done.out, "") << shown;
  EXPECT_TRUE(done.err.starts_with("pop: ")) << shown << done.err;
  EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << shown << done.err;
  EXPECT_NE(done.err.find(part), std::string::npos) << shown << done.err;
}

TEST(Usage, UnknownWordsSuggestTheNearest) {
  expect_error({"rnu"}, 2, "the nearest is run");
  expect_error({"run", "--prnue", "pop", "-p", "x"}, 2, "the nearest is --prune");
  expect_error({"run", "-p", "x", "--prune", "popp"}, 2, "the nearest is pop");
  expect_error({"eval", "k"}, 2, "unknown command 'k'");
  expect_error({"bench", "decode", "roof"}, 2, "unknown argument 'roof'");
  expect_error({"help", "prunin"}, 2, "the nearest is pruning");
  expect_error({"bench", "decode", "-m", kTiny, "--methods", "dens"}, 2, "the nearest is dense");
  expect_error({"rnu", "--help"}, 2, "the nearest is run");
  expect_error({}, 2, "no command");
}

TEST(Usage, ValuesAreChecked) {
  for (const char* ratio : {"nan", "-0.1", "1.5", "inf", "0.2x", ""})
    expect_error({"run", "-p", "x", "--prune", "pop", "--ratio", ratio}, 2, "from 0 to 1");
  expect_error({"run", "-p", "x", "--gamma", "2.1", "--prune", "pop"}, 2, "from 0 to 2");
  expect_error({"run", "-p", "x", "--threads", "0"}, 2, "--threads");
  expect_error({"run", "-p", "x", "--seed", "-1"}, 2, "--seed");
  expect_error({"run", "-p", "x", "-n", "1e9"}, 2, "--max-tokens");
  expect_error({"run", "-p", "x", "--ctx", "99999999999999999999"}, 2, "--ctx");
  expect_error({"run", "-p", "x", "--kv", "f64"}, 2, "f32, f16, bf16");
  expect_error({"run", "-p", "x", "--ratio"}, 2, "expected a value");
  expect_error({"run", "-p", "x", "--prune", "pop", "--ratio", "0.2", "--ffn-sparsity", "0.3"}, 2, "exclude");
  expect_error({"run", "-p", "x", "--ratio", "0.2"}, 2, "--prune pop");
  expect_error({"run", "-p", "x", "-n", "1", "-n", "2"}, 2, "--max-tokens: expected once");
  expect_error({"run", "-p", "x", "-m", ""}, 2, "--model");
  expect_error({"run"}, 2, "found none");
  expect_error({"run", "-p", "a", "-f", "b"}, 2, "found several");
  expect_error({"run", "word"}, 2, "'word'");
  expect_error({"run", "--chat", "--ids", "1"}, 2, "--ids");
  expect_error({"run", "-p", "x", "--stop", ""}, 2, "--stop");
  expect_error({"eval", "kl", "-m", kTiny}, 2, "-f FILE");
  expect_error({"eval", "kl", "-m", kTiny, "-f", kTiny, "--base", "f16"}, 2, "activations=f32");
  expect_error({"score", "-p", "x", "--lines", "y"}, 2, "--lines");
}

TEST(Input, WhatIsWrongIsNamed) {
  const Words tiny = {"run", "-m", kTiny};
  const auto with = [&](Words more) {
    Words words = tiny;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_error({"run", "-m", "/nonexistent/model.gguf", "-p", "x"}, 1, "/nonexistent/model.gguf");
  expect_error({"run", "-m", "apps/CMakeLists.txt", "-p", "x"}, 1, "apps/CMakeLists.txt");
  expect_error(with({"-f", "/nonexistent/prompt"}), 1, "/nonexistent/prompt");
  expect_error(with({"-f", "apps"}), 1, "folder");
  expect_error(with({"-p", ""}), 1, "prompt");
  expect_error(with({"--ids", "1,999"}), 1, "999");
  expect_error(with({"--ids", "1,-2"}), 1, "-2");
  expect_error(with({"--ids", "1,x"}), 1, "'x'");
  for (const char* list : {"1,,2", ",1", "1,", "1, ,2", ","}) expect_error(with({"--ids", list}), 1, "each comma");
  expect_error(with({"-f", "/dev/zero"}), 1, "/dev/zero: expected at most 256 MiB");
  expect_error(with({"-p", "much too long", "--ctx", "5"}), 1, "at most 5");
  expect_error(with({"-p", "much too long", "--ctx", "5"}), 1, "found 13");
  expect_error(with({"-p", "x", "--isa", "pdp11"}), 1, "pdp11");
  expect_error(with({"-p", "x", "--prune", "pop", "--ratio", "0.99"}), 1, "largest");
  expect_error(with({"-p", "x", "--prune", "fixed", "--gamma", "0.2"}), 1, "--gamma");
  expect_error(with({"-p", "x", "--chat"}), 1, "template");
  expect_error(with({"-p", "x", "--dump-logits", "/nonexistent/x.npy"}), 1, "/nonexistent/x.npy");
  expect_error({"detokenize", "-m", kTiny, "--ids", "9999"}, 1, "9999");
  expect_error({"score", "-m", kTiny, "-p", "abc", "--split", "4"}, 1, "--split");
}

TEST(Input, MessagesCannotSteerTheTerminal) {
  expect_error({"run", "-m", "a\x1b[31mb\nc", "-p", "x"}, 1, "a\\x1b[31mb c: cannot open");
}

TEST(Input, LinesAreHostile) {
  const Words words = {"score", "-m", kTiny, "--lines", "-"};
  const std::string good = "{\"text\":\"abc\"}\n";
  expect_error(words, 1, "standard input:2:", good + "nonsense\n");
  expect_error(words, 1, "standard input:3:", good + "\n{\"ids\":[1,2.5]}\n");
  expect_error(words, 1, ":1: \"ids\"", "{\"ids\":[1,99999999999999999999]}\n");
  expect_error(words, 1, ":1: \"ids\"", "{\"ids\":[-1]}\n");
  expect_error(words, 1, ":1: \"ids\"", "{\"ids\":{\"a\":1}}\n");
  expect_error(words, 1, "at least one token", "{\"ids\":[]}\n");
  expect_error(words, 1, "\"text\"", "{\"text\":7}\n");
  expect_error(words, 1, "both", "{\"text\":\"a\",\"ids\":[1]}\n");
  expect_error(words, 1, "\"split\"", "{\"text\":\"abc\",\"split\":4}\n");
  expect_error(words, 1, "\"split\"", "{\"text\":\"abc\",\"split\":0}\n");
  expect_error(words, 1, "\"split\"", "{\"text\":\"abc\",\"split\":18446744073709551615}\n");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  expect_error(words, 1, "JSON", deep + "\n");
  expect_error(words, 1, "found array", "{\"ids\":[" + deep + "]}\n");
  expect_error(words, 1, "found array", "{\"ids\":[1],\"split\":" + deep + "}\n");
  expect_error(words, 1, "at most 512", "{\"text\":\"" + std::string(600, 'a') + "\"}\n");
}

// The program's exit code with these redirections, as a shell writes them.
int with_streams(const std::string& arguments, const std::string& redirections) {
  return WEXITSTATUS(std::system(("'" POP_PROGRAM "' " + arguments + " " + redirections).c_str()));
}

TEST(Streams, NobodyListensToStderr) {
  const std::string run = std::string("run -m ") + kTiny + " -p ab -n 3 --temp 0 ";
  for (const char* stream : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(with_streams(run, std::string(">/dev/null ") + stream), 0) << stream;
    EXPECT_EQ(with_streams("nonsense", stream), 2) << stream;
  }
  EXPECT_EQ(with_streams(run, "<&- >&- 2>&-"), 1);
}

TEST(Streams, WhatCannotBePrintedIsAnError) {
  const std::string tiny = std::string("-m ") + kTiny;
  for (const char* command : {"run --help", "--help", "--version", "help pruning", "methods --json"})
    for (const char* stream : {">&-", ">/dev/full"})
      EXPECT_EQ(with_streams(command, std::string(stream) + " 2>/dev/null"), 1) << command << " " << stream;
  Folder folder;
  const std::string dump = folder.path("logits.npy");
  EXPECT_EQ(with_streams("score " + tiny + " -p abc --dump-logits " + dump, ">&- 2>/dev/null"), 1);
  EXPECT_EQ(read_bytes(dump).size(), 128u + 3 * 259 * 4);  // and nothing of the result in the dump
  const Outcome full =
      pop({"score", "-m", kTiny, "-p", "abc", "--split", "1", "--prune", "pop", "--dump-partition", "/dev/full"});
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("/dev/full: could not be written"), std::string::npos) << full.err;
}

}  // namespace
}  // namespace pop::app
