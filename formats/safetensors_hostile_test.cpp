// Safetensors files as they should not be: the public bug reports of other engines as a table, then every cut and thousands of
// changes of a small file. And folders whose index and files do not agree.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "formats/hf_folder.h"
#include "formats/safetensors_test_support.h"

namespace pop {
namespace {

using test::safetensors;

// Opens, reads everything; the error, or "". The bytes end where the heap block ends, so that a sanitizer sees a step past.
std::string open_and_read(std::span<const uint8_t> file) {
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  try {
    static volatile uint64_t sum = 0;
    sum = sum + test::look_at_everything(parse_safetensors(bytes, "toy.safetensors"));
    return "";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("toy.safetensors: ")) << error.what();
    return error.what();
  }
}

std::string one(const std::string& tensor) { return "{\"w\":{" + tensor + "}}"; }
std::string f32(const std::string& shape, const std::string& offsets) {
  return one("\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]");
}

const std::string kPair = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                          R"("a":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}}  )";

TEST(Safetensors, ReadsWhatIsRight) {
  const std::vector<uint8_t> bytes = safetensors(kPair, 20);
  const std::vector<TensorInfo> tensors = parse_safetensors(bytes, "toy");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type, DType::F32);
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(tensors[0].data - bytes.data(), int64_t(8 + kPair.size() + 12));
  EXPECT_EQ(tensors[0].bytes, 8u);
  EXPECT_EQ(tensors[1].type, DType::BF16);
  EXPECT_EQ(open_and_read(bytes), "");
  // Scalars, empty tensors and types that no model of ours has are of the format too.
  EXPECT_EQ(open_and_read(safetensors(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                                      R"("e":{"dtype":"F16","shape":[0,4],"data_offsets":[8,8]}})",
                                      8)),
            "");
  EXPECT_EQ(open_and_read(safetensors("{}", 0)), "");
}

TEST(Safetensors, RefusesWhatIsWrong) {
  struct Case {
    const char* expected;
    std::vector<uint8_t> file;
  };
  const std::vector<Case> cases = {
      {"only 3 bytes", {1, 0, 0}},
      {"found the length 18446744073709551615", {255, 255, 255, 255, 255, 255, 255, 255, 123, 125}},
      {"found the length 200000000", safetensors("{}", 0, 200'000'000)},
      {"found the length 3", safetensors("{}", 0, 3)},
      {"expected a JSON object", safetensors("", 0)},
      {"expected a JSON object", safetensors("[]", 0)},
      {"Git LFS pointer", {'v', 'e', 'r', 's', 'i', 'o', 'n', ' ', 'h'}},
      {"expected JSON, found at byte", safetensors("{\"w\":", 0)},
      {"expected JSON, found at byte", safetensors("{} x", 0)},
      {"expected JSON, found at byte", safetensors("{\"\xff\":1}", 0)},
      {"expected an object of dtype", safetensors("{\"w\":[[[[[[[[", 0)},
      {"data_offsets: expected two integers >= 0, found 0 numbers", safetensors(f32("2", ""), 8)},
      {"found 1 numbers", safetensors(f32("2", "8"), 8)},
      {"found one number more", safetensors(f32("2", "0,8,8"), 8)},
      {"found data_offsets 8 to 0", safetensors(f32("2", "8,0"), 8)},
      {"expected 8 bytes for [2] of F32, found data_offsets 0 to 1", safetensors(f32("2", "0,1"), 8)},
      {"more than 2^64 bytes", safetensors(f32("8589934592,8589934592", "0,8"), 8)},
      {"more than 2^64 bytes", safetensors(f32("0,18446744073709551615", "0,0"), 0)},
      {"shape: expected at most 8 integers >= 0, found a negative number", safetensors(f32("-1", "0,8"), 8)},
      {"found a number that is no integer", safetensors(f32("2.0", "0,8"), 8)},
      {"found a number that is no integer", safetensors(f32("36893488147419103232", "0,8"), 8)},
      {"found one number more", safetensors(f32("1,1,1,1,1,1,1,1,2", "0,8"), 8)},
      {"tensor 'w': dtype: expected F32, F16, BF16",
       safetensors(one(R"("dtype":"F7","shape":[2],"data_offsets":[0,8])"), 8)},
      {"field 'dtype' occurs twice",
       safetensors(one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8)},
      {"field 'more' is none of", safetensors(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)"), 8)},
      {"expected dtype, shape and data_offsets, found less", safetensors(one(R"("dtype":"F32","shape":[2])"), 8)},
      {"tensor 'w' occurs twice", safetensors(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                              R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                              8)},
      {"overlaps another", safetensors(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                       R"("v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                       8)},
      {"expected no bytes between tensors, found 4 before tensor 'w'", safetensors(f32("1", "4,8"), 8)},
      {"found 3 more bytes", safetensors(f32("2", "0,8"), 11)},
      {"the file is cut or damaged", safetensors(f32("2", "0,8"), 7)},
      {"__metadata__: expected strings alone", safetensors(R"({"__metadata__":{"a":1}})", 0)},
      {"__metadata__: expected strings alone, found an object", safetensors(R"({"__metadata__":{"a":{}}})", 0)},
      {"'__metadata__' occurs twice", safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0)},
      {"tensor 'w'", safetensors(R"({"w":"x"})", 0)},
  };
  for (const Case& c : cases) {
    const std::string error = open_and_read(c.file);
    EXPECT_NE(error.find(c.expected), std::string::npos) << c.expected << "\n" << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(Safetensors, CutsAndChangesNeverCrash) {
  const std::vector<uint8_t> whole = safetensors(kPair, 20);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(open_and_read({whole.data(), size}), "") << size;
  uint32_t random = 1;
  const auto next = [&](size_t below) { return size_t((random = random * 1664525u + 1013904223u) >> 8) % below; };
  int opened = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> changed = whole;
    for (size_t n = next(3); n < 3; ++n) changed[next(changed.size())] = uint8_t(next(256));
    opened += open_and_read(changed).empty();
  }
  EXPECT_GT(opened, 100);
}

// A deep nesting, in a header and in a configuration: refused without recursion.
TEST(Safetensors, DeepNesting) {
  EXPECT_NE(open_and_read(safetensors("{\"w\":" + std::string(1 << 20, '['), 0)), "");
  EXPECT_THROW(JsonObject::parse("{\"a\":" + std::string(1 << 20, '['), "config.json"), Error);
  EXPECT_THROW(JsonObject::parse("{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}", "config.json"), Error);
  EXPECT_NO_THROW(JsonObject::parse("{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}", "config.json"));
}

class Folder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << text;
  }
  void write(const std::string& name, const std::vector<uint8_t>& bytes) {
    write(name, std::string(bytes.begin(), bytes.end()));
  }
  void index(const std::string& map) { write("model.safetensors.index.json", "{\"weight_map\":" + map + "}"); }
  std::string error() {
    try {
      const HfFolder opened(folder_.path());
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  void expect(const std::string& part) {
    const std::string found = error();
    EXPECT_NE(found.find(part), std::string::npos) << part << "\n" << found;
    EXPECT_TRUE(found.starts_with(folder_.path())) << found;
  }
  test::TemporaryFolder folder_;
};

TEST_F(Folder, SingleFile) {
  expect("expected a model folder with config.json, found none");
  write("config.json", "{\"eos_token_id\":[5,7]}");
  expect("expected model.safetensors or model.safetensors.index.json, found neither");
  write("pytorch_model.bin", "x");
  expect("found pytorch_model.bin");
  write("model.safetensors", safetensors(kPair, 20));
  EXPECT_EQ(error(), "");
  EXPECT_EQ(HfFolder(folder_.path() + "//").end_ids(), (std::vector<int32_t>{5, 7}));
  EXPECT_EQ(HfFolder(folder_.path() + "//").path(), folder_.path());
  write("generation_config.json", "{\"eos_token_id\":3}");
  const HfFolder opened(folder_.path());
  EXPECT_EQ(opened.end_ids(), (std::vector<int32_t>{3, 5, 7}));
  EXPECT_EQ(opened.tensor("b", {2, 3}).type, DType::BF16);
  EXPECT_THROW(opened.tensor("b", {3, 2}), Error);
  EXPECT_THROW(opened.tensor("c"), Error);
  EXPECT_EQ(opened.tensor_bytes(), 20u);
  write("config.json", "{\"eos_token_id\":3,\"vocab_size\":4}");
  EXPECT_EQ(HfFolder(folder_.path()).end_ids(), (std::vector<int32_t>{3}));
  write("config.json", "{\"eos_token_id\":3,\"vocab_size\":3}");
  expect("generation_config.json: eos_token_id: expected an integer from 0 to 2, found 3");
  write("generation_config.json", "{}");
  expect("/config.json: eos_token_id: expected an integer from 0 to 2, found 3");
  write("config.json", "[1]");
  expect("config.json: expected a JSON object, found [1]");
  write("config.json", "{\"a\":");
  expect("config.json: expected JSON");
  write("config.json", "{\"eos_token_id\":\"x\"}");
  write("generation_config.json", "{\"eos_token_id\":[1,-1]}");
  expect("eos_token_id: expected integers from 0");
}

// The hub's cache is a folder of links to files that lie elsewhere; a name in an index that leads elsewhere is none of it.
TEST_F(Folder, LinksAreFollowed) {
  namespace fs = std::filesystem;
  const test::TemporaryFolder blobs;
  const std::string a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::create_symlink(blobs.path() + "/" + name, folder_.path() + "/" + name);
    expect(std::string(name) == "config.json" ? "expected a model folder with config.json" : "found neither");
    const std::vector<uint8_t> weights = safetensors(a, 4);
    std::ofstream(blobs.path() + "/" + name, std::ios::binary)
        << (std::string(name) == "config.json" ? "{}" : std::string(weights.begin(), weights.end()));
  }
  EXPECT_EQ(error(), "");
}

TEST_F(Folder, Sharded) {
  write("config.json", "{}");
  const std::string a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                    b = R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
  write("x-1.safetensors", safetensors(a, 4));
  index(R"({"a":"x-1.safetensors","b":"x-2.safetensors"})");
  expect("missing: x-2.safetensors (an incomplete download?)");
  write("x-2.safetensors", safetensors(b, 4));
  EXPECT_EQ(error(), "");
  EXPECT_EQ(HfFolder(folder_.path()).tensors().size(), 2u);
  EXPECT_EQ(HfFolder(folder_.path()).file_bytes(), 16 + a.size() + b.size() + 8);
  for (const char* name : {"../x-1.safetensors", "/etc/hostname", "/x.safetensors", "sub/x.safetensors", "x", "",
                           ".safetensors", "x\\u0000.safetensors", "x\\u007f.safetensors", "x\\u001b.safetensors"}) {
    index(std::string(R"({"a":"x-1.safetensors","b":")") + name + "\"}");
    expect("weight_map.b: expected the name of a .safetensors file in the folder");
  }
  index(R"({"a":"x-1.safetensors","b":1})");
  expect("weight_map.b");
  index(R"({"a":"x-1.safetensors"})");
  EXPECT_EQ(error(), "");  // the other file is nobody's
  index(R"({"a":"x-1.safetensors","b":"x-1.safetensors"})");
  expect("expected the 2 tensors that the index names, found 1");
  index(R"({"a":"x-2.safetensors","b":"x-1.safetensors"})");
  expect("expected it in the index under this file, found it under another");
  index(R"({"c":"x-1.safetensors"})");
  expect("found it not there");
  write("model.safetensors.index.json", "{}");
  expect("weight_map: expected an object");
}

}  // namespace
}  // namespace pop
