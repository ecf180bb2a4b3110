// What a user sees of loading a model and of stopping a run: warnings, errors, the cache file, Ctrl-C.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "apps/program_test.h"

namespace pop::app {
namespace {

TEST(Run, AContextBeyondTheTrainedOneIsAWarning) {
  const Outcome done = pop(tiny("run", {"-p", "abc", "-n", "1", "-c", "513"}));
  EXPECT_EQ(done.code, 0);
  EXPECT_NE(done.err.find("pop: warning: --ctx: 513 tokens, but the model was trained on 512"), std::string::npos)
      << done.err;
  EXPECT_EQ(pop(tiny("run", {"-p", "abc", "-n", "1", "-c", "512"})).err.find("warning"), std::string::npos);
}

TEST(Run, AVocabularySizeThatContradictsTheEmbeddingIsAnError) {
  std::string bytes = read_bytes(kTiny);
  const std::string key = "llama.vocab_size";
  const size_t value = bytes.find(key) + key.size() + 4;  // after the type
  ASSERT_EQ(uint8_t(bytes[value]) | uint8_t(bytes[value + 1]) << 8, 259);
  bytes[value] = char(4);
  Folder folder;
  const Outcome done = pop({"run", "-m", folder.write("m.gguf", bytes), "-p", "abc"});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("llama.vocab_size: expected 259, the rows of tensor token_embd.weight, found 260"),
            std::string::npos)
      << done.err;
}

TEST(Run, ACacheFileChangesNoResultAndIsNamedInInfo) {
  Folder folder;
  const Words rest = {"-p", "abc", "-n", "4", "--temp", "0", "--ignore-eos", "--prune", "pop"};
  Words cached = rest;
  cached.insert(cached.end(), {"--cache", folder.path("cache")});
  const Json plain = run_json(tiny("run", rest));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run_json(tiny("run", cached))["logits_hash"], plain["logits_hash"]);
  EXPECT_EQ(run_json(tiny("info", {"--cache", folder.path("cache")}))["from_cache"], true);
  EXPECT_EQ(run_json(tiny("info", {}))["from_cache"], false);
}

// The first line comes out, Ctrl-C follows: the second line says that it was not finished.
TEST(Score, CtrlCPrintsWhatThereIs) {
  Folder folder;
  const std::string longer = "\"" + std::string(500, 'x') + "\"";
  std::string lines = "{\"text\":\"abc\"}\n";
  for (int i = 0; i < 400; ++i) lines += "{\"text\":" + longer + ",\"split\":2}\n";
  const Outcome done = pop(tiny("score", {"--lines", folder.write("lines", lines)}), "", true);
  EXPECT_EQ(done.code, 130);
  const size_t last = done.out.rfind('\n', done.out.size() - 2);
  const Json json = Json::parse(done.out.substr(last == std::string::npos ? 0 : last + 1));
  EXPECT_EQ(json["finish_reason"], "interrupted");
  EXPECT_EQ(json["ids"].size(), 500u);
  EXPECT_TRUE(json["logprobs"][499].is_null());
  EXPECT_EQ(Json::parse(done.out.substr(0, done.out.find('\n')))["finish_reason"], "complete");
}

// Ctrl-C would stop the answer and ask for the next line; this ends the conversation, with what was said.
TEST(Chat, ASignalToEndEndsIt) {
  if (!std::filesystem::exists(kDefaultModel)) GTEST_SKIP() << kDefaultModel << " is absent";
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += "Tell me a long story.\n";
  const auto wrote = [](const std::string& out) {
    std::error_code missing;
    return std::filesystem::file_size(out, missing) > 0 && !missing;
  };
  for (const int signal : {SIGTERM, SIGHUP}) {
    const Outcome done = pop_signalled({"chat", "-m", kDefaultModel, "-n", "2000"}, lines, signal, wrote);
    EXPECT_EQ(done.code, 128 + signal) << done.err;
    EXPECT_NE(done.err.find("(stopped)"), std::string::npos) << done.err;
    EXPECT_TRUE(done.out.ends_with("\n"));
  }
}

}  // namespace
}  // namespace pop::app
