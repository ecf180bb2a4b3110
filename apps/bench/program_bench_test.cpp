// What `pop bench` gives back: the JSON of docs/cli.md, on a tiny model.
#include <algorithm>

#include "apps/program_test.h"

namespace pop::app {
namespace {

using Words = std::vector<std::string>;

Json run_json(Words words) {
  words.push_back("--json");
  const Outcome done = pop(words);
  EXPECT_EQ(done.code, 0) << done.err;
  return done.code == 0 ? done.json() : Json::object();
}

void expect_keys(const Json& json, const Words& keys) {
  for (const auto& key : keys) EXPECT_TRUE(json.contains(key)) << key;
}

TEST(Bench, RowsOfDecodeAndPrefill) {
  for (const bool decode : {true, false}) {
    Folder folder;
    const std::string csv = folder.path("rows.csv");
    Words words = {"bench",    decode ? "decode" : "prefill",
                   "-m",       kTiny,
                   "-p",       "24",
                   "--rounds", "1",
                   "--ratios", "0.2,0.4",
                   "--csv",    csv};
    if (decode) words.insert(words.end(), {"-n", "6"});
    const Json json = run_json(words);
    expect_keys(json["machine"], {"cpu", "threads", "isa", "roof_gbps"});
    expect_keys(json["machine"]["roof_gbps"], {"1", "N"});
    ASSERT_EQ(json["rows"].size(), 5u);  // dense has no ratio
    for (const Json& row : json["rows"])
      expect_keys(row, {"name", "type", "n_prompt", "n_gen", "batch", "context", "method", "ratio",
                        "prefill_tokens_per_s", "partition_s", "select_s", "pack_s", "decode_tokens_per_s",
                        "weight_bytes_per_token", "read_gbps", "share_of_roof", "rss_bytes", "runs", "spread"});
    EXPECT_EQ(json["rows"][0]["name"], decode ? "tg6" : "pp24");
    EXPECT_EQ(json["rows"][1]["method"], "pop");
    EXPECT_EQ(json["rows"][2]["ratio"], 0.4);
    const std::string rows = read_bytes(csv);
    EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 6);
  }
  const Json grid = run_json({"bench", "decode", "-m", kTiny, "--methods", "dense,pop:0.3", "-t", "1,2", "--batch",
                              "1,3", "-p", "20", "-n", "4", "--rounds", "1"});
  ASSERT_EQ(grid["rows"].size(), 8u);
  EXPECT_EQ(grid["rows"][7]["threads"], 2);
  EXPECT_EQ(grid["rows"][7]["batch"], 3);
  EXPECT_EQ(grid["rows"][7]["ratio"], 0.3);
  EXPECT_GT(grid["rows"][7]["byte_ideal"], 1.0);
  EXPECT_TRUE(grid["rows"][6]["byte_ideal"].is_null());  // dense is what the others are compared with
  EXPECT_EQ(pop({"bench", "decode", "-m", kTiny, "--methods", "pop:2"}).code, 2);
  EXPECT_EQ(pop({"bench", "decode", "-m", kTiny, "--shape", "llama-2-7b"}).code, 2);
  EXPECT_EQ(pop({"bench", "decode", "--shape", "smollm2-135m", "--type", "q9"}).code, 2);
  const Json kernels = run_json({"bench", "kernels", "--filter", "dot/q4_0/i16/3072x576", "-t", "1"});
  ASSERT_EQ(kernels["rows"].size(), 1u);
  EXPECT_EQ(kernels["rows"][0]["of"], "roof");
  EXPECT_EQ(pop({"bench", "kernels", "--filter", "nothing"}).code, 2);
  const Json roof = run_json({"bench", "roof", "--bytes", "1000000"});
  EXPECT_GT(roof["machine"]["roof_gbps"]["N"], 0.0);
}

}  // namespace
}  // namespace pop::app
