// Loading: the cache file of re-laid weights survives whatever may happen to it, and a process never holds the weights twice.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "base/hash.h"
#include "base/sanitizer.h"
#include "engine/pop.h"
#include "tests/toy_model.h"

namespace pop {
namespace {

namespace fs = std::filesystem;
constexpr const char* kTiny = "tests/goldens/tiny-q4_1.gguf";

std::string hash_of(Engine& engine) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  return engine.session({.method = "pop"})->generate(prompt, {.max_tokens = 6, .ignore_eos = true}).logits_hash;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The one cache file in a folder, "" if there is none; anything else in it is a failure.
std::string cache_in(const std::string& folder) {
  std::string found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_TRUE(found.empty() && entry.path().extension() == ".weights") << entry.path();
    found = entry.path().string();
  }
  return found;
}

// The tiny model's metadata with other sizes, and random weights of `type`.
std::string random_model(const std::string& path, DType type, int layers, int d, int f) {
  const GgufFile source(kTiny);
  GgufWriter writer;
  for (const GgufKey& key : source.keys()) {
    if (key.name == "llama.block_count")
      writer.set_u32(key.name, uint32_t(layers));
    else if (key.name == "llama.embedding_length")
      writer.set_u32(key.name, uint32_t(d));
    else if (key.name == "llama.feed_forward_length")
      writer.set_u32(key.name, uint32_t(f));
    else if (key.name == "llama.rope.dimension_count")
      writer.set_u32(key.name, uint32_t(d / 4));
    else
      writer.set_payload(key.name, key.value.type(), key.value.bytes());
  }
  std::mt19937 random(1);
  std::vector<float> values(size_t(d) * size_t(f));
  for (float& v : values) v = (float(random() % 2001) - 1000) * 1e-5f;
  const auto add = [&](const std::string& name, DType t, const std::vector<int64_t>& shape) {
    size_t count = 1;
    for (const int64_t n : shape) count *= size_t(n);
    writer.add_tensor_f32(name, t, shape, std::span(values).first(count));
  };
  add("token_embd.weight", type, {259, d});
  add("output_norm.weight", DType::F32, {d});
  for (int l = 0; l < layers; ++l) {
    const std::string b = "blk." + std::to_string(l) + ".";
    for (const char* name : {"attn_norm.weight", "ffn_norm.weight"}) add(b + name, DType::F32, {d});
    for (const char* name : {"attn_q.weight", "attn_output.weight"}) add(b + name, type, {d, d});
    for (const char* name : {"attn_k.weight", "attn_v.weight"}) add(b + name, type, {d / 2, d});
    for (const char* name : {"ffn_gate.weight", "ffn_up.weight"}) add(b + name, type, {f, d});
    add(b + "ffn_down.weight", type, {d, f});
  }
  writer.write(path);
  return path;
}

// Runs body in a process of its own; returns waitpid's status. The peak of its memory counts from its start.
int in_child(const std::function<void()>& body, int kill_after_us = -1) {
  const pid_t child = fork();
  if (child == 0) {
    if (const int fd = open("/proc/self/clear_refs", O_WRONLY); fd >= 0) {
      static_cast<void>(!write(fd, "5", 1));
      close(fd);
    }
    try {
      body();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  if (kill_after_us >= 0) {
    usleep(useconds_t(kill_after_us));
    kill(child, SIGKILL);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Cache, GivesTheSameBits) {
  const test::TemporaryFolder folder;
  int number = 0;
  for (const DType type : {DType::Q4_1, DType::Q8_0, DType::BF16})
    for (const char* layout : {"auto", "rows", "columns"}) {
      const std::string cache = folder.path() + "/cache" + std::to_string(number++);
      const EngineOptions options{.model = test::requantised(kTiny, type, folder.path()), .layout = layout};
      EngineOptions cached = options;
      cached.cache = cache + "/deeper";
      Engine plain(options), first(cached), second(cached);
      EXPECT_FALSE(plain.info().from_cache || first.info().from_cache);
      EXPECT_TRUE(second.info().from_cache) << layout;
      EXPECT_TRUE(first.info().warnings.empty());
      EXPECT_EQ(hash_of(first), hash_of(plain));
      EXPECT_EQ(hash_of(second), hash_of(plain));
    }
}

class CacheFile : public testing::Test {
 protected:
  CacheFile() : model_(folder_.path() + "/model.gguf"), cache_(folder_.path() + "/cache") {
    fs::copy_file(kTiny, model_);
    Engine engine({.model = model_, .cache = cache_});
    hash_ = hash_of(engine);
    path_ = cache_in(cache_);
    good_ = bytes_of(path_);
  }
  // A start with the cache as it is now: never used if it is not as it was written, and then written anew.
  void expect_rewritten(const std::string& what) {
    Engine engine({.model = model_, .cache = cache_});
    EXPECT_FALSE(engine.info().from_cache) << what;
    EXPECT_TRUE(engine.info().warnings.empty()) << what;
    EXPECT_EQ(hash_of(engine), hash_) << what;
    Engine again({.model = model_, .cache = cache_});
    EXPECT_TRUE(again.info().from_cache) << what;
    EXPECT_EQ(hash_of(again), hash_) << what;
    EXPECT_EQ(cache_in(cache_), path_);
  }
  test::TemporaryFolder folder_;
  std::string model_, cache_, path_, good_, hash_;
};

TEST_F(CacheFile, OneWrongByteAnywhereIsSeen) {
  std::mt19937 random(3);
  std::vector<size_t> places = {0,  8,  12, 16,  24,   60,
                                88, 90, 96, 103, 4096, good_.size() - 1};  // header, sums, weights
  for (int i = 0; i < 20; ++i) places.push_back(4096 + random() % (good_.size() - 4096));
  for (const size_t place : places) {
    std::string bad = good_;
    bad[place] = char(bad[place] ^ 0x10);
    write_bytes(path_, bad);
    expect_rewritten("byte " + std::to_string(place));
  }
}

TEST_F(CacheFile, CutOrLongerIsSeen) {
  for (const size_t size : {size_t(0), size_t(1), size_t(7), size_t(50), size_t(4096), good_.size() - 1}) {
    write_bytes(path_, good_.substr(0, size));
    expect_rewritten("cut to " + std::to_string(size));
  }
  write_bytes(path_, good_ + "x");
  expect_rewritten("one byte more");
}

TEST_F(CacheFile, AnotherVersionIsReplaced) {
  std::string other = good_;
  other[8] = char(other[8] + 1);  // the version; with a checksum that fits, so that nothing else is wrong
  const size_t head = 88 + 8 * ((good_.size() - 4096 + (4 << 20) - 1) >> 22);
  const uint64_t sum = checksum({reinterpret_cast<const uint8_t*>(other.data()), head});
  ASSERT_EQ(std::memcmp(good_.data() + head, &sum, 8) == 0, false);
  std::memcpy(other.data() + head, &sum, 8);
  write_bytes(path_, other);
  expect_rewritten("version");
}

TEST_F(CacheFile, WhereNothingCanBeWrittenTheRunGoesOn) {
  write_bytes(folder_.path() + "/file", "x");
  Engine engine({.model = model_, .cache = folder_.path() + "/file/cache"});
  ASSERT_EQ(engine.info().warnings.size(), 1u);
  EXPECT_NE(engine.info().warnings[0].find("--cache: " + folder_.path() + "/file/cache"), std::string::npos);
  EXPECT_EQ(hash_of(engine), hash_);
}

// No room, said by a limit on the size of files: the same error path as a full disk.
TEST_F(CacheFile, AFullDiskIsOneWarning) {
  const std::string other = folder_.path() + "/full";
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    Engine engine({.model = model_, .threads = 1, .cache = other});
    const auto& warnings = engine.info().warnings;
    if (warnings.size() != 1 || warnings[0].find("expected room for") == std::string::npos) _exit(2);
    if (hash_of(engine) != hash_) _exit(3);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cache_in(other), "") << "nothing half written is left";
}

class BigModel : public testing::Test {
 protected:
  BigModel()
      : model_(random_model(folder_.path() + "/big.gguf", DType::BF16, 4, 512, 4096)),
        cache_(folder_.path() + "/cache") {
    fs::create_directory(cache_);
  }
  void load() const { Engine({.model = model_, .threads = 2, .context = 64, .cache = cache_}); }
  test::TemporaryFolder folder_;
  std::string model_, cache_;
};

// Wherever the writer is killed there is the whole file or none, and the next writer removes what was left.
TEST_F(BigModel, AKilledWriterLeavesNothingThatCounts) {
  std::mt19937 random(5);
  int killed = 0, half_written = 0;
  std::string hash;
  for (int round = 0; round < 25; ++round) {
    if (round % 5 == 0) fs::remove_all(cache_), fs::create_directory(cache_);
    const int status = in_child([&] { load(); }, int(random() % 120000));
    killed += WIFSIGNALED(status);
    for (const auto& entry : fs::directory_iterator(cache_)) half_written += entry.path().extension() != ".weights";
    if (round % 5 != 4) continue;
    Engine engine({.model = model_, .context = 64, .cache = cache_});
    const std::string now = hash_of(engine);
    if (hash.empty()) hash = now;
    EXPECT_EQ(now, hash) << round;
    if (!engine.info().from_cache) {
      EXPECT_NE(cache_in(cache_), "") << "and nothing else is there";
    }
  }
  EXPECT_GT(killed, 0);
  RecordProperty("half_written", half_written);
}

// Same size, same first MiB and same times: the sample of the tensors tells. Same bytes at another time: not trusted either.
TEST_F(BigModel, AChangedModelIsNotTakenForTheOldOne) {
  load();
  const std::string path = cache_in(cache_);
  struct stat before {};
  ASSERT_EQ(stat(model_.c_str(), &before), 0);
  std::string bytes = bytes_of(model_);
  size_t place = 0;
  {
    const GgufFile file(model_);
    place = size_t(file.tensor("blk.1.ffn_down.weight").data.data() - file.files()[0].bytes().data()) + 100;
  }
  ASSERT_GT(place, size_t(1) << 20);
  bytes[place] = char(bytes[place] ^ 1);
  const auto from_cache = [&] { return Engine({.model = model_, .context = 64, .cache = cache_}).info().from_cache; };
  EXPECT_TRUE(from_cache());
  write_bytes(model_, bytes);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, model_.c_str(), times, 0), 0);
  EXPECT_FALSE(from_cache());
  EXPECT_TRUE(from_cache());
  ASSERT_EQ(utimensat(AT_FDCWD, model_.c_str(), nullptr, 0), 0);
  EXPECT_FALSE(from_cache());
  EXPECT_EQ(cache_in(cache_), path) << "one file per model and layout, replaced";
}

TEST_F(BigModel, WritersAtOnceDoNotDisturbEachOther) {
  for (int round = 0; round < 3; ++round) {
    fs::remove_all(cache_), fs::create_directory(cache_);
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        try {
          Engine engine({.model = model_, .threads = 1, .context = 64, .cache = cache_});
          for (const std::string& warning : engine.info().warnings) std::fprintf(stderr, "%s\n", warning.c_str());
          _exit(engine.info().warnings.empty() ? 0 : 2);
        } catch (...) {
          _exit(1);
        }
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    EXPECT_NE(cache_in(cache_), "");
    EXPECT_TRUE(Engine({.model = model_, .context = 64, .cache = cache_}).info().from_cache);
  }
}

TEST_F(BigModel, ProgressGoesUpToTheWhole) {
  std::vector<uint64_t> seen;
  uint64_t all = 0;
  EngineOptions options{.model = model_, .context = 64};
  options.on_load = [&](uint64_t done, uint64_t total) {
    seen.push_back(done);
    all = total;
  };
  Engine engine(options);
  ASSERT_GE(seen.size(), 2u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), all);
  EXPECT_GT(all, engine.info().file_bytes * 9 / 10);
}

// Peak of a process that loads (VmHWM), in bytes.
uint64_t peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

TEST(Memory, TheWeightsAreHeldOnce) {
  if constexpr (kAddressSanitizer) return;  // its own memory would be measured
  const test::TemporaryFolder folder;
  for (const DType type : {DType::Q8_0, DType::BF16}) {
    const std::string model = random_model(folder.path() + "/m.gguf", type, 6, 1024, 6144);
    const uint64_t file = fs::file_size(model);
    ASSERT_GT(file, uint64_t(100) << 20);
    const int status = in_child([&] {
      const uint64_t before = peak();
      Engine engine({.model = model, .threads = 2, .context = 64});
      // What does not grow with the file: the part of it in work, the vocabulary, stacks, the last huge page.
      const double most = 1.05 * double(file) + (32 << 20);
      if (double(peak() - before) > most) {
        fprintf(stderr, "peak %.1f MB of a file of %.1f MB\n", double(peak() - before) / 1e6, double(file) / 1e6);
        _exit(4);
      }
    });
    EXPECT_EQ(status, 0) << traits(type).name;
  }
}

TEST(TextOnly, ReadsNoWeights) {
  const test::TemporaryFolder folder;
  const std::string model = random_model(folder.path() + "/m.gguf", DType::F32, 4, 512, 4096);
  const int status = in_child([&] {
    const uint64_t before = peak();
    const Engine engine({.model = model, .text_only = true});
    if (engine.decode(engine.encode("Hello")) != "Hello") _exit(2);
    if (!kAddressSanitizer && peak() - before > fs::file_size(model) / 2) _exit(3);
  });
  EXPECT_EQ(status, 0);
  Engine engine({.model = model, .text_only = true});
  EXPECT_THROW(engine.session(), Exception);
}

}  // namespace
}  // namespace pop
