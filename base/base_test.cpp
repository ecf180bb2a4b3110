#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/read_ahead.h"
#include "base/thread_pool.h"

namespace pop {
namespace {

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = f16_to_f32(uint16_t(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      ASSERT_EQ(f32_to_f16(f), h);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {                          // hand-computed
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);             // a tie goes to the even 1.0
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);  // just above it
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);  // overflows to infinity
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);  // a tie between 0 and the least subnormal
  EXPECT_EQ(f32_to_f16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1.8p-8f), 0x3f81);
  EXPECT_EQ(f16_to_f32(0x3555), 0.333251953125f);
}

TEST(Hash, KnownVectors) {  // XXH64 and SHA-256 of the empty input and of "abc", from their specifications
  StreamHash h;
  EXPECT_EQ(h.hex(), "ef46db3751d8e999");
  h.update_bytes("abc", 3);
  EXPECT_EQ(h.hex(), "44bc2cf5ad770999");
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(ThreadPool, EveryPieceOnceForAnyCount) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int pieces = 0; pieces < 200; ++pieces) {
      std::vector<std::atomic<int>> hits(size_t(pieces) + 1);
      std::atomic<bool> bad_thread{false};
      pool.run(pieces, [&](int piece, int thread) {
        hits[size_t(piece)].fetch_add(1);
        if (thread < 0 || thread >= threads) bad_thread = true;
      });
      for (int p = 0; p < pieces; ++p) ASSERT_EQ(hits[size_t(p)].load(), 1);
      EXPECT_EQ(hits[size_t(pieces)].load(), 0);
      EXPECT_FALSE(bad_thread);
    }
  }
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-3), Error);
}

// A small region, then at once a larger one: a worker that is still leaving the first must take no piece of it by the
// count of the second. (It once did: a piece ran twice, and the caller waited for ever.)
TEST(ThreadPool, RegionsOfChangingSizeFollowEachOther) {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    for (int region = 0; region < 30000; ++region) {
      const int pieces = region % 2 == 0 ? 2 : 7;
      std::array<std::atomic<int>, 8> hits{};
      pool.run(pieces, [&](int piece, int) { hits[size_t(piece)].fetch_add(1, std::memory_order_relaxed); });
      for (int p = 0; p < 8; ++p) ASSERT_EQ(hits[size_t(p)].load(), p < pieces ? 1 : 0) << "region " << region;
    }
  }
}

TEST(ThreadPool, MorePiecesThanOneRegionHolds) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> hits(200000);
  pool.run(int(hits.size()), [&](int piece, int) { hits[size_t(piece)].fetch_add(1, std::memory_order_relaxed); });
  for (const auto& count : hits) ASSERT_EQ(count.load(), 1);
}

// Pauses in which workers fall asleep, and pieces so slow that the caller does.
TEST(ThreadPool, WakesWhoSleeps) {
  using std::chrono::milliseconds;
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    for (int region = 0; region < 30; ++region) {
      std::atomic<int> hits{0};
      pool.run(4, [&](int piece, int thread) {
        if (piece == 3 || thread != 0) std::this_thread::sleep_for(milliseconds(1));
        hits.fetch_add(1);
      });
      ASSERT_EQ(hits.load(), 4);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
}

TEST(ThreadPool, NotesWhatItsThreadsDid) {
  ThreadPool pool(2);
  PoolTimes times;
  times.log.resize(2);
  pool.watch(&times);
  std::atomic<int> elsewhere{0};
  for (int region = 0; region < 100; ++region)
    pool.run(8, [&](int, int thread) {
      elsewhere += thread;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
  pool.watch(nullptr);
  pool.run(8, [](int, int) {});
  int noted = 0;
  for (const PoolTimes::Stretch& s : times.log[1]) {
    noted += s.pieces;
    EXPECT_LE(s.begin, s.end);
  }
  EXPECT_EQ(noted, elsewhere.load());
  PoolTimes::Clock::duration waits{};
  for (const PoolTimes::Stretch& s : times.log[0]) waits += s.end - s.begin;
  EXPECT_EQ(waits, times.waited);
}

// A sanitizer needs more address space than this test leaves.
#if defined(__has_feature)
#define POP_HAS_FEATURE(x) __has_feature(x)
#else
#define POP_HAS_FEATURE(x) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !POP_HAS_FEATURE(address_sanitizer) && \
    !POP_HAS_FEATURE(thread_sanitizer) && !POP_HAS_FEATURE(memory_sanitizer)
// In a child of its own, whose memory does not hold the stacks of so many threads.
TEST(ThreadPoolDeathTest, MoreThreadsThanTheSystemGives) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto start = [] {
    const rlimit limit = {size_t(1) << 30, size_t(1) << 30};
    setrlimit(RLIMIT_AS, &limit);
    try {
      ThreadPool pool(1024);
    } catch (const Error& e) {
      _exit(std::string(e.what()).find("expected 1024") != std::string::npos ? 7 : 1);
    }
    _exit(0);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(7), "");
}
#endif

TEST(AlignedBuffer, AlignedZeroedAndMovable) {
  for (const size_t bytes : {size_t(1), size_t(4096), size_t(3) << 20}) {
    AlignedBuffer buffer(bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    for (size_t i = 0; i < bytes; i += 777) ASSERT_EQ(buffer.data()[i], 0);
    uint8_t* const where = buffer.data();
    AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.data(), where);
    EXPECT_EQ(moved.size(), bytes);
  }
  EXPECT_THROW(AlignedBuffer(size_t(1) << 60), Error);
}

TEST(MappedFile, ErrorsNameTheFile) {
  for (const char* path : {"/nonexistent/model.gguf", "/", "/dev/null"}) {
    try {
      MappedFile file(path);
      FAIL() << path;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
    }
  }
}

TEST(MappedFile, APipeIsRefusedAtOnce) {
  const std::string path = testing::TempDir() + "mapped_file_pipe." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(MappedFile{path}, Error);
  std::remove(path.c_str());
}

TEST(Printable, EscapesWhatATerminalMustNotSee) {
  EXPECT_EQ(printable("a\x1b[31m\xff\n"), "a\\x1b[31m\\xff\\x0a");
  EXPECT_EQ(printable("h\xc3\xa9"), "h\xc3\xa9");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

TEST(MappedFile, AdviceChangesNoValue) {
  const std::string path = testing::TempDir() + "mapped_file_advice." + std::to_string(getpid());
  std::vector<uint8_t> expected(3'000'000);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = uint8_t(i * 7 + i / 256);
  std::FILE* out = std::fopen(path.c_str(), "wb");
  ASSERT_EQ(std::fwrite(expected.data(), 1, expected.size(), out), expected.size());
  std::fclose(out);
  const MappedFile file(path);
  const auto equal = [&] { return std::equal(expected.begin(), expected.end(), file.bytes().begin()); };
  {
    ReadAhead ahead({{&file, file.bytes().first(1'000'001)}, {&file, file.bytes().subspan(1'000'001)}});
    for (size_t at = 0; at < expected.size(); at += 500'000) {
      const auto part = file.bytes().subspan(at, 500'000);
      file.fault_in(part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + std::ptrdiff_t(at)));
      file.release(part);
      ahead.advance(part.size());
    }
  }
  EXPECT_TRUE(equal());
  file.release(file.bytes());
  const std::vector<uint8_t> elsewhere(10000, 3);
  file.release(elsewhere);  // not of this file: left alone
  EXPECT_EQ(elsewhere, std::vector<uint8_t>(10000, 3));
  EXPECT_TRUE(equal());
  std::remove(path.c_str());
}

TEST(ReadAhead, EndsWhenNobodyAdvances) {
  const MappedFile file("tests/goldens/tiny-q4_1.gguf");
  const std::vector<FilePart> parts(10000, FilePart{&file, file.bytes()});  // far more than it may read ahead
  const ReadAhead ahead(parts);
}

TEST(Cpu, AtLeastOne) { EXPECT_GE(usable_cpus(), 1); }

TEST(Cpu, TheAffinityMaskCounts) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before) && CPU_COUNT(&one) == 0) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// A file system of control groups, as a folder.
class ControlGroups {
 public:
  ControlGroups() : root_(testing::TempDir() + "cgroups." + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
  }
  ~ControlGroups() { std::filesystem::remove_all(root_); }
  ControlGroups& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return *this;
  }
  double quota() const { return cgroup_cpu_quota(root_); }

 private:
  std::string root_;
};

TEST(Cgroup, NoLimitIsInfinite) {
  EXPECT_EQ(ControlGroups().quota(), INFINITY);
  EXPECT_EQ(
      ControlGroups().write("/proc/self/cgroup", "0::/\n").write("/sys/fs/cgroup/cpu.max", "max 100000\n").quota(),
      INFINITY);
  EXPECT_EQ(ControlGroups()
                .write("/proc/self/cgroup", "4:cpu,cpuacct:/\n")
                .write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
                .write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
                .quota(),
            INFINITY);
}

TEST(Cgroup, Version2TakesTheLeastOfAllAbove) {
  ControlGroups groups;
  groups.write("/proc/self/cgroup", "0::/outer/inner/self\n")
      .write("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n")
      .write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n")
      .write("/sys/fs/cgroup/outer/inner/self/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(groups.quota(), 1.5);
  groups.write("/sys/fs/cgroup/outer/inner/self/cpu.max", "25000 50000\n");
  EXPECT_DOUBLE_EQ(groups.quota(), 0.5);
}

TEST(Cgroup, InsideAContainerThePathNamesNothing) {
  ControlGroups groups;
  groups.write("/proc/self/cgroup", "0::/host/docker-1234\n").write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(groups.quota(), 3);
}

TEST(Cgroup, Version1TakesTheLeastOfAllAbove) {
  for (const char* controllers : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
    ControlGroups groups;
    const std::string mount = std::string("/sys/fs/cgroup/") + controllers;
    groups.write("/proc/self/cgroup", std::string("5:memory:/\n2:") + controllers + ":/a/b\n0::/\n")
        .write(mount + "/a/b/cpu.cfs_quota_us", "200000\n")
        .write(mount + "/a/b/cpu.cfs_period_us", "100000\n")
        .write(mount + "/a/cpu.cfs_quota_us", "50000\n")
        .write(mount + "/a/cpu.cfs_period_us", "40000\n")
        .write(mount + "/cpu.cfs_quota_us", "-1\n")
        .write(mount + "/cpu.cfs_period_us", "100000\n");
    EXPECT_DOUBLE_EQ(groups.quota(), 1.25) << controllers;
  }
}

TEST(Cgroup, BothVersionsAtOnceAndNonsense) {
  ControlGroups groups;
  groups.write("/proc/self/cgroup", "1:cpu:/g\n0::/g\nnonsense\n")
      .write("/sys/fs/cgroup/cpu/g/cpu.cfs_quota_us", "300000\n")
      .write("/sys/fs/cgroup/cpu/g/cpu.cfs_period_us", "100000\n")
      .write("/sys/fs/cgroup/unified/g/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(groups.quota(), 2);
  for (const char* text : {"", "x y", "0 0", "-5 100", "100", "1e3"}) {
    groups.write("/sys/fs/cgroup/unified/g/cpu.max", text);
    EXPECT_DOUBLE_EQ(groups.quota(), 3) << text;
  }
}

}  // namespace
}  // namespace pop
