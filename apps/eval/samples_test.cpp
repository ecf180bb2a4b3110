// Files of items and of per-item results: what is read, what is refused, what an interruption leaves.
#include "apps/eval/samples.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace pop::app {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "pop-samples-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ostringstream bytes;
    bytes << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
    return bytes.str();
  }

 private:
  std::filesystem::path folder_;
};

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

using ItemsFile = Files;
using Samples = Files;

TEST_F(ItemsFile, AHeaderIsNoItem) {
  const std::string file = write("items", "{\"task\":\"t\",\"kind\":\"choice\"}\n{\"a\":1}\n{\"a\":2}\n");
  const Items first = read_items({file, "", 1});
  ASSERT_EQ(first.list.size(), 1u);
  EXPECT_EQ(first.list[0].id, 0);
  EXPECT_EQ(first.list[0].where, file + ":2");
  EXPECT_EQ(first.list[0].json["a"], 1);
  EXPECT_EQ(text_field(first.header, "task"), "t");
  // Only the first line can be one, and only with both fields.
  const Items none = read_items({write("plain", "{\"task\":\"t\"}\n{\"task\":\"t\",\"kind\":\"choice\"}\n"), "", 0});
  EXPECT_EQ(none.list.size(), 2u);
  EXPECT_TRUE(none.header.json.empty());
}

TEST_F(ItemsFile, PlacesCountLinesThatAreNotBlank) {
  const std::string file = write("items", "{\"a\":1}\n\n  \r\n{\"a\":2}\r\n{\"a\":3}");
  const Items all = read_items({file, "", 0});
  ASSERT_EQ(all.list.size(), 3u);
  EXPECT_EQ(all.list[1].id, 1);
  EXPECT_EQ(all.list[1].where, file + ":4");
  EXPECT_EQ(all.list[2].json["a"], 3);
  // printf '{"a":1}' | sha256sum
  EXPECT_EQ(all.list[0].hash, "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862");
  EXPECT_EQ(read_items({file, "", 2}).list.size(), 2u);
  const Items some = read_items({file, write("ids", "2, 0"), 0});
  ASSERT_EQ(some.list.size(), 2u);
  EXPECT_EQ(some.list[0].id, 0);
  EXPECT_EQ(some.list[1].id, 2);
  EXPECT_EQ(some.sha256, all.sha256);
}

TEST_F(ItemsFile, WhatIsWrongIsSaidWithItsLine) {
  const auto error = [&](const std::string& bytes) {
    return error_of([&] { read_items({write("x", bytes), "", 0}); });
  };
  EXPECT_NE(error("{\"a\":1}\n[1]\n").find("x:2: expected a JSON object, found '[1]'"), std::string::npos);
  EXPECT_NE(error("{\"a\":1\n").find("x:1: expected a JSON object"), std::string::npos);
  EXPECT_NE(error("\n\n").find("expected at least one item"), std::string::npos);
  EXPECT_NE(error(std::string("{\"a\":\"\xff\"}\n")).find("x:1: expected a JSON object"), std::string::npos);
  const std::string file = write("y", "{}\n"), ids = write("ids", "0 5");
  EXPECT_NE(error_of([&] {
              read_items({file, ids, 0});
            }).find("expected item 5 (--items), found 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_items({path("absent"), "", 0}); }).find("cannot be opened"), std::string::npos);
}

TEST_F(ItemsFile, Fields) {
  const std::string line =
      "{\"t\":\"x\",\"empty\":\"\",\"n\":3,\"big\":18446744073709551615,\"b\":true,\"l\":[\"p\",\"q\"],\"bad\":[\"p\","
      "\"\"]}";
  const Item item = read_items({write("x", line), "", 0}).list[0];
  EXPECT_EQ(text_field(item, "t"), "x");
  EXPECT_EQ(text_field(item, "empty", true), "");
  EXPECT_EQ(int_field(item, "n", 0, 3), 3);
  EXPECT_TRUE(bool_field(item, "b"));
  EXPECT_EQ(text_list(item, "l", 2), (std::vector<std::string>{"p", "q"}));
  const auto ends = [&](const std::string& end, auto action) {
    const std::string error = error_of(action);
    EXPECT_TRUE(error.ends_with(end) && error.find("x:1: ") != std::string::npos) << error;
  };
  ends("\"empty\": expected a text that is not empty, found \"\"", [&] { text_field(item, "empty"); });
  ends("\"absent\": expected a text, found nothing", [&] { text_field(item, "absent"); });
  ends("\"t\": expected true or false, found \"x\"", [&] { bool_field(item, "t"); });
  ends("\"n\": expected a whole number from 0 to 2, found 3", [&] { int_field(item, "n", 0, 2); });
  ends("\"big\": expected a whole number from 0 to 2, found 18446744073709551615",
       [&] { int_field(item, "big", 0, 2); });
  ends("\"l\": expected at least 3 texts, found 2", [&] { text_list(item, "l", 3); });
  ends("\"bad\": entry 2: expected a text that is not empty, found \"\"", [&] { text_list(item, "bad"); });
  ends("\"n\": expected a list of texts, found 3", [&] { text_list(item, "n"); });
}

Sample sample(int64_t id, const std::string& filter = "none", double score = 1) {
  Sample out;
  out.doc_id = id;
  out.doc_hash = "d";
  out.prompt = "prompt";
  out.target = "1";
  out.filter = filter;
  out.arguments = Json::array({Json::array({"prompt", " a"}), Json::array({"prompt", " b"})});
  out.resps = Json::array({Json::array({Json::array({-1.5, true})}), Json::array({Json::array({-2.5, false})})});
  out.metrics["acc"] = score;
  out.reads = {.tokens = 2, .weight_bytes_per_token = 10.0 * double(id + 1), .weights_read_share = 0.5};
  return out;
}

TEST_F(Samples, HaveTheShapeOfLmEval) {
  SampleFile file(path("s"), {{"mode", "split"}});
  file.add({sample(3)});
  const Json line = Json::parse(read("s"));
  EXPECT_EQ(line["doc_id"], 3);
  EXPECT_EQ(line["resps"], Json::parse(R"([[["-1.5","True"]],[["-2.5","False"]]])"));
  EXPECT_EQ(line["arguments"]["gen_args_1"]["arg_1"], " b");
  EXPECT_EQ(line["metrics"], Json::parse(R"(["acc"])"));
  EXPECT_EQ(line["acc"], 1.0);
  EXPECT_EQ(line["filter"], "none");
  // printf prompt | sha256sum
  EXPECT_EQ(line["prompt_hash"], "cf07194ee232eb531e15f690000d19846dea69cf05504782658afcfacb9228a2");
  EXPECT_EQ(line["run"]["mode"], "split");
}

TEST_F(Samples, AreContinuedWithTheSameRunOnly) {
  const Json run = {{"mode", "split"}, {"ratio", 0.2}};
  { SampleFile(path("s"), run).add({sample(0)}); }
  {
    SampleFile file(path("s"), run);
    EXPECT_TRUE(file.has(0));
    EXPECT_FALSE(file.has(1));
    file.add({sample(1, "none", 0)});
  }
  const std::vector<int64_t> ids = read_items({write("items", "{}\n{}\n{}\n"), "", 0}).ids();
  const SampleFile file(path("s"), run);
  EXPECT_EQ(metric_values(file, ids, "acc"), (std::vector<double>{1, 0}));
  EXPECT_EQ(file.reads(ids).tokens, 4u);
  EXPECT_DOUBLE_EQ(file.reads(ids).weight_bytes_per_token, 15);
  const std::string error = error_of([&] { SampleFile(path("s"), {{"mode", "split"}, {"ratio", 0.4}}); });
  EXPECT_NE(error.find("s:1: the results there are of another run: ratio: expected 0.4, found 0.2"), std::string::npos)
      << error;
}

// Whatever was being written when the program ended is cut off, whole items stay.
TEST_F(Samples, WhatAnInterruptionLeftIsCutOff) {
  const Json run = {{"mode", "split"}};
  {
    SampleFile file(path("s"), run, 2);
    for (const int64_t id : {0, 1}) file.add({sample(id, "strict"), sample(id, "flexible")});
  }
  const std::string whole = read("s");
  const size_t first_item = whole.find('\n', whole.find('\n') + 1) + 1;
  for (size_t cut = first_item; cut < whole.size(); cut += 97) {
    write("s", whole.substr(0, cut));
    SampleFile file(path("s"), run, 2);
    EXPECT_TRUE(file.has(0));
    EXPECT_FALSE(file.has(1));
    EXPECT_EQ(read("s").size(), first_item);
  }
  write("s", "no json\n");
  EXPECT_NE(error_of([&] { SampleFile(path("s"), run, 2); }).find("expected a line of per-item results"),
            std::string::npos);
  write("s", whole + whole);
  EXPECT_NE(error_of([&] { SampleFile(path("s"), run, 2); }).find("twice"), std::string::npos);
}

}  // namespace
}  // namespace pop::app
