// Worker threads for short parallel regions (microseconds to milliseconds), several hundred per token.
//
// Which thread takes which piece is left to chance; a region's result must therefore never depend on it: every output
// element is written by exactly one piece, and pieces are fixed by the problem, not by the number of threads.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace pop {

// What a pool notes of its regions while it is watched: --profile and --trace.
struct PoolTimes {
  using Clock = std::chrono::steady_clock;
  struct Stretch {  // of one thread in one region: from its first piece to the end of its last
    Clock::time_point begin, end;
    int pieces;  // 0: the caller waited
  };
  Clock::duration waited{};               // by the caller, with no piece left to take, for other threads to end theirs
  std::vector<std::vector<Stretch>> log;  // [threads], or empty: nothing is logged. Of the caller, its waits only
};

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no worker.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // From here on, `times` is filled; null: nothing is. Not while a region runs.
  void watch(PoolTimes* times);

  // Runs body(piece, thread) for every piece in [0, pieces), on all threads, and returns when all are done.
  // thread in [0, threads()) names private scratch. One region at a time; a body must not throw or start another.
  template <class Body>
  void run(int pieces, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased(pieces, const_cast<void*>(static_cast<const void*>(&body)),
               [](void* b, int piece, int thread) { (*static_cast<Plain*>(b))(piece, thread); });
  }

 private:
  using Call = void (*)(void* body, int piece, int thread);
  void run_erased(int pieces, void* body, Call call);
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int threads_;
};

}  // namespace pop
