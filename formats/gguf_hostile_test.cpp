// Files as they should not be: the public bug reports of other engines as a table, then every cut and thousands of
// changes of a small file. Each gives an error or a file that can be read, and never takes much memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>

#include "formats/gguf.h"
#include "formats/gguf_test_support.h"
#include "formats/gguf_writer.h"

namespace {
std::atomic<size_t> g_live{0}, g_peak{0};  // bytes from operator new

void* counted_alloc(size_t bytes) {
  void* p = std::malloc(bytes);
  if (p == nullptr) throw std::bad_alloc();
  const size_t live = g_live += malloc_usable_size(p);
  if (live > g_peak) g_peak = live;
  return p;
}

void counted_free(void* p) noexcept {
  if (p != nullptr) g_live -= malloc_usable_size(p);
  std::free(p);
}
}  // namespace

void* operator new(size_t bytes) { return counted_alloc(bytes); }
void* operator new[](size_t bytes) { return counted_alloc(bytes); }
void operator delete(void* p) noexcept { counted_free(p); }
void operator delete[](void* p) noexcept { counted_free(p); }
void operator delete(void* p, size_t) noexcept { counted_free(p); }
void operator delete[](void* p, size_t) noexcept { counted_free(p); }

namespace pop {
namespace {

using test::Bytes;
using test::gguf_head;

constexpr const char* kName = "toy.gguf";

struct Outcome {
  std::string error;  // empty if the file opened
  size_t peak = 0;    // bytes allocated at once while opening
};

// Opens and, if that works, runs `then`. The bytes end where the heap block ends, so that a sanitizer sees any step past.
Outcome open_and(std::span<const uint8_t> file, const std::function<void(const GgufFile&)>& then) {
  const std::vector<uint8_t> bytes(file.begin(), file.end());
  Outcome outcome;
  const size_t before = g_live;
  g_peak = before;
  try {
    const GgufFile opened = GgufFile::from_bytes(bytes, kName);
    outcome.peak = g_peak - before;
    then(opened);
  } catch (const Error& error) {
    outcome.error = error.what();
    outcome.peak = std::max<size_t>(outcome.peak, g_peak - before);
  }
  return outcome;
}

void look(const GgufFile& file) { test::look_at_everything(file); }

// Memory of parsing: what the file's entries need, a small multiple of the file, and the text of one message.
size_t allowed_peak(size_t file_bytes) { return 8192 + 16 * file_bytes; }

struct Case {
  std::string id;
  std::string what;
  Bytes file;
  std::string expected;  // a part of the error; empty: no error
  std::function<void(const GgufFile&)> then = look;
};

Bytes one_tensor(const std::vector<uint64_t>& dims) {
  Bytes b = gguf_head(1, 0);
  b.tensor("w", dims, 0, 0).pad(32, 64);
  return b;
}

Bytes with_alignment(uint32_t alignment) {
  Bytes b = gguf_head(1, 1);
  b.key("general.alignment", GgufType::U32).u32(alignment).tensor("w", {2}, 0, 0).pad(64, 64);
  return b;
}

Bytes toy_model(const std::vector<std::string>& tensors) {
  GgufWriter w;
  w.set_string("general.architecture", "qwen3moe");
  const std::vector<float> values(64, 1.0f);
  for (const std::string& name : tensors) w.add_tensor_f32(name, DType::F32, {2, 32}, values);
  Bytes b;
  b.bytes = w.to_bytes();
  return b;
}

Bytes toy_cut_at(double share) {
  Bytes b = toy_model({"a", "b", "c", "d"});
  b.bytes.resize(static_cast<size_t>(static_cast<double>(b.bytes.size()) * share));
  return b;
}

std::vector<Case> size_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* id, const char* what, Bytes b, const char* expected) {
    cases.push_back({id, what, b, expected});
  };
  const uint64_t big = uint64_t{1} << 32;
  add("G01", "dims wrap to 0", one_tensor({big, big}), "tensor 'w': its dimensions multiply to more than 2^63");
  add("G01", "dims wrap to -2", one_tensor({(uint64_t{1} << 63) - 1, 2}), "tensor 'w': its dimensions multiply");
  add("G01", "one dim above int64", one_tensor({~uint64_t{0}}), "tensor 'w': its dimensions multiply");
  add("G01", "one dim of 2^42+1", one_tensor({(uint64_t{1} << 42) + 1}), "tensor 'w': expected 17592186044420 bytes");
  add("G01", "bytes wrap though elements fit", one_tensor({uint64_t{1} << 62}),
      "tensor 'w': [4611686018427387904] of F32");
  add("G03", "dims [1, 0]", one_tensor({1, 0}), "tensor 'w': one of its dimensions is 0");
  add("G03", "dims [0]", one_tensor({0}), "tensor 'w': one of its dimensions is 0");
  add("G03", "no dims", one_tensor({}), "tensor 'w': expected 1 to 4 dimensions, found 0");
  add("G06", "5 dims", one_tensor({1, 1, 1, 1, 1}), "tensor 'w': expected 1 to 4 dimensions, found 5");
  add("G06", "2^32-1 dims", gguf_head(1, 0).text("w").u32(~0u).pad(32, 64),
      "expected 1 to 4 dimensions, found 4294967295");
  add("G04", "key of 2^48 bytes", gguf_head(0, 1).u64(0xFFFFFFFFFFFF).pad(8, 16), "the file ends in a metadata key");
  add("G04", "string of 2^48 bytes", gguf_head(0, 1).key("k", GgufType::String).u64(0xFFFFFFFFFFFF),
      "metadata key 'k'");
  add("G04", "array of 2^40 bytes", gguf_head(0, 1).key("k", GgufType::Array).u32(0).u64(uint64_t{1} << 40),
      "metadata key 'k': an array of 1099511627776 U8 announced");
  add("G04", "array of 2^61 strings",
      gguf_head(0, 1).key("k", GgufType::Array).u32(8).u64(uint64_t{1} << 61).pad(8, 64),
      "metadata key 'k': an array of 2305843009213693952 String announced");
  add("G04", "2^60 keys", gguf_head(0, uint64_t{1} << 60).pad(8, 64), "1152921504606846976 metadata entries announced");
  add("G04", "2^60 tensors", gguf_head(uint64_t{1} << 60, 0).pad(8, 64), "1152921504606846976 tensors announced");
  add("G04", "name of 2^64-1 bytes", gguf_head(1, 0).u64(~uint64_t{0}).pad(8, 64), "the file ends in a tensor name");
  add("G09", "alignment 0", with_alignment(0),
      "'general.alignment': expected a U32, a power of two from 8 to 65536, found 0");
  add("G09", "alignment 3", with_alignment(3), "found 3");
  add("G09", "alignment 2^30", with_alignment(1u << 30), "found 1073741824");
  add("G09", "alignment of another type",
      gguf_head(1, 1).key("general.alignment", GgufType::U64).u64(32).tensor("w", {2}, 0, 0).pad(32, 64),
      "found 32 (U64)");
  add("G09", "alignment 64", with_alignment(64), "");
  add("G09", "no alignment: 32", gguf_head(1, 0).tensor("w", {2}, 0, 16).pad(32, 64), "a multiple of 32, found 16");
  return cases;
}

std::vector<Case> type_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* id, const char* what, Bytes b, const char* expected) {
    cases.push_back({id, what, b, expected});
  };
  Bytes deep = gguf_head(0, 1).key("k", GgufType::Array);
  for (int i = 0; i < 10000; ++i) deep.u32(9).u64(1);
  add("G06", "arrays 10000 deep", deep, "metadata key 'k': arrays nested more than 8 deep");
  add("G06", "element type 99", gguf_head(0, 1).key("k", GgufType::Array).u32(99).u64(1).pad(8, 8),
      "metadata key 'k': expected a value type from 0 to 12, found 99");
  add("G06", "value type 13", gguf_head(0, 1).text("k").u32(13).u64(1), "expected a value type from 0 to 12, found 13");
  add("G06", "bool 7", gguf_head(0, 1).key("k", GgufType::Bool).put<uint8_t>(7),
      "metadata key 'k': expected a Bool of 0 or 1, found 7");
  add("G06", "bool 7 in an array", gguf_head(0, 1).key("k", GgufType::Array).u32(7).u64(2).raw("\1\7"), "found 7");
  for (uint32_t type = 0; type < kGgufTypeCount; ++type) {
    add("G07", name_of(GgufType{type}), gguf_head(0, 1).key("", GgufType{type}).pad(8, 64),
        "expected a key of 1 to 65535 bytes, found 0");
  }
  add("G07", "key of 65536 bytes", gguf_head(0, 1).key(std::string(65536, 'k'), GgufType::U8).put<uint8_t>(0),
      "found 65536");
  add("G07", "tensor without a name", gguf_head(1, 0).tensor("", {2}, 0, 0).pad(32, 64), "tensor 0: its name is empty");
  add("G11", "only the magic", Bytes().raw("GGUF"), "the file ends in the version");
  add("G11", "wrong magic", Bytes().raw("ABCD").u32(3).u64(0).u64(0),
      "expected a GGUF file (beginning with 'GGUF'), found 'ABCD'");
  add("G11", "version 0", gguf_head(0, 0, 0), "expected GGUF version 2 or 3, found version 0");
  add("G11", "version 1", gguf_head(0, 0, 1), "found version 1");
  add("G11", "version 99", gguf_head(0, 0, 99), "found version 99");
  add("G11", "big-endian", gguf_head(0, 0, 0x03000000), "big-endian");
  add("G11", "other files", Bytes().raw("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer");
  add("G11", "no entries at all", gguf_head(0, 0), "");
  return cases;
}

std::vector<Case> content_cases() {
  std::vector<Case> cases;
  Bytes scores = gguf_head(0, 2).key("tokenizer.ggml.scores", GgufType::Array).u32(0).u64(4).raw("abcd");
  scores.key("tokenizer.ggml.token_type", GgufType::Array).u32(0).u64(4).raw("abcd");
  cases.push_back({"G10", "scores as bytes", scores,
                   "expected an Array of 4 F32, found [97, 98, 99, 100] (Array of 4 U8)",
                   [](const GgufFile& f) { f.get_floats("tokenizer.ggml.scores", 4); }});
  cases.push_back({"G10", "token types as bytes", scores, "expected an Array of 4 I32",
                   [](const GgufFile& f) { f.get_i32s("tokenizer.ggml.token_type", 4); }});
  Bytes few = gguf_head(0, 1).key("tokenizer.ggml.scores", GgufType::Array).u32(6).u64(1).u32(0);
  cases.push_back({"G10", "fewer scores than tokens", few, "expected an Array of 4 F32, found [0] (Array of 1 F32)",
                   [](const GgufFile& f) { f.get_floats("tokenizer.ggml.scores", 4); }});
  cases.push_back({"G13", "cut at 60%", toy_cut_at(0.6), "tensor 'c': expected 256 bytes at offset 512"});
  cases.push_back({"G13", "cut at 99%", toy_cut_at(0.99), "tensor 'd': expected 256 bytes at offset 768"});
  Bytes last = toy_cut_at(1);
  last.bytes.pop_back();
  cases.push_back({"G13", "last byte missing", last, "found only 1023 bytes of data: the file is cut or damaged"});
  cases.push_back({"G14", "only an architecture",
                   gguf_head(0, 1).key("general.architecture", GgufType::String).text("llama"),
                   "toy.gguf: metadata key 'llama.block_count' is missing",
                   [](const GgufFile& f) { f.get_u64("llama.block_count"); }});
  Bytes twice = gguf_head(0, 2).key("llama.context_length", GgufType::U32).u32(7);
  twice.key("llama.context_length", GgufType::U64).u64(8);
  cases.push_back({"G16", "a key twice", twice, "metadata key 'llama.context_length' occurs twice"});
  cases.push_back({"G16", "a tensor twice", gguf_head(2, 0).tensor("w", {2}, 0, 0).tensor("w", {2}, 0, 32).pad(32, 64),
                   "tensor 'w' occurs twice"});
  cases.push_back({"G16", "two tensors at one place",
                   gguf_head(2, 0).tensor("v", {9}, 0, 0).tensor("w", {9}, 0, 32).pad(32, 96),
                   "tensor 'w' overlaps tensor 'v'"});
  cases.push_back({"G16", "an unknown type within a tensor",
                   gguf_head(2, 0).tensor("v", {9}, 0, 0).tensor("w", {9}, 99, 32).pad(32, 96),
                   "tensor 'w' overlaps tensor 'v'"});
  cases.push_back({"G16", "offset beyond everything", gguf_head(1, 0).tensor("w", {2}, 0, ~uint64_t{31}).pad(32, 64),
                   "tensor 'w': expected 8 bytes"});
  cases.push_back({"G16", "rows of part blocks", gguf_head(1, 0).tensor("w", {48, 2}, 2, 0).pad(32, 64),
                   "tensor 'w': expected rows of whole Q4_0 blocks (32 elements), found rows of 48"});
  cases.push_back({"G17", "experts instead of dense tensors", toy_model({"blk.0.ffn_up_exps.weight"}),
                   "tensor 'blk.0.ffn_up.weight' is missing", [](const GgufFile& f) {
                     look(f);
                     f.tensor("blk.0.ffn_up.weight", {2, 32});
                   }});
  cases.push_back({"U06", "no version key, other tensor names", toy_model({"model.layers.0.up"}),
                   "metadata key 'general.quantization_version' is missing", [](const GgufFile& f) {
                     look(f);
                     f.get_u64("general.quantization_version");
                   }});
  return cases;
}

TEST(GgufHostile, PublicCases) {
  std::vector<Case> cases = size_cases();
  for (std::vector<Case> more : {type_cases(), content_cases()}) cases.insert(cases.end(), more.begin(), more.end());
  for (const Case& c : cases) {
    SCOPED_TRACE(c.id + ": " + c.what);
    const Outcome outcome = open_and(c.file.bytes, c.then);
    if (c.expected.empty()) {
      EXPECT_EQ(outcome.error, "");
    } else {
      EXPECT_NE(outcome.error.find(c.expected), std::string::npos) << "found: " << outcome.error;
    }
    EXPECT_LE(outcome.peak, allowed_peak(c.file.bytes.size()));
  }
}

std::vector<uint8_t> rich_file() {  // every value type, nested arrays, four tensors
  std::ifstream in("formats/testdata/package.gguf", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Opens a damaged file: reading everything in it must work, or the error must be one clean line that names the file.
// Returns whether it opened. at, change: say in a failure what was changed.
bool survives(std::span<const uint8_t> bytes, size_t at, uint64_t change) {
  bool opened = false;
  const Outcome outcome = open_and(bytes, [&](const GgufFile& file) {
    opened = true;
    look(file);
  });
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  const bool clean_error =
      outcome.error.empty() ||
      (outcome.error.starts_with("toy.gguf: ") && std::none_of(outcome.error.begin(), outcome.error.end(), is_control));
  EXPECT_TRUE(clean_error && outcome.peak <= allowed_peak(bytes.size()))
      << "byte " << at << ", change " << change << ", " << outcome.peak << " bytes allocated: " << outcome.error;
  return opened;
}

TEST(GgufHostile, EveryCutIsRefused) {
  const std::vector<uint8_t> file = rich_file();
  const GgufFile whole = GgufFile::from_bytes(file, kName);
  size_t needed = 0;  // after the last tensor only padding may be missing
  for (const TensorInfo& t : whole.tensors()) needed = std::max(needed, size_t(t.data - file.data()) + t.bytes);
  ASSERT_GT(needed, file.size() - 64);
  for (size_t size = 0; size <= file.size(); ++size) {
    EXPECT_EQ(survives(std::span(file).first(size), size, 0), size >= needed) << size;
  }
}

TEST(GgufHostile, EveryByteChanged) {
  std::vector<uint8_t> file = rich_file();
  int opened = 0, refused = 0;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int pattern : {1, 2, 4, 8, 16, 32, 64, 128, 0x55, 0xff}) {
      file[at] ^= static_cast<uint8_t>(pattern);
      ++(survives(file, at, uint64_t(pattern)) ? opened : refused);
      file[at] ^= static_cast<uint8_t>(pattern);
    }
  }
  EXPECT_GT(opened, 1000);  // changed values and data are no damage a reader could see
  EXPECT_GT(refused, 1000);
}

TEST(GgufHostile, EveryEightBytesMadeExtreme) {
  const std::vector<uint8_t> file = rich_file();
  constexpr uint64_t kOne = 1;
  const uint64_t extremes[] = {0,          1,          file.size(), kOne << 31, kOne << 32,
                               kOne << 40, kOne << 62, kOne << 63,  ~kOne << 4, ~uint64_t{0}};
  for (size_t at = 0; at + 8 <= file.size(); ++at) {
    for (const uint64_t extreme : extremes) {
      std::vector<uint8_t> changed = file;
      std::memcpy(changed.data() + at, &extreme, sizeof extreme);
      survives(changed, at, extreme);
    }
  }
}

// Files the fuzzer found worth keeping (formats/gguf_fuzz.cpp); one for each new way through the parser.
TEST(GgufHostile, CorpusOfTheFuzzer) {
  int opened = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator("formats/testdata/corpus")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    SCOPED_TRACE(entry.path());
    ++(survives(bytes, 0, 0) ? opened : refused);
  }
  EXPECT_GT(opened, 2);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace pop
