// Worker threads for short parallel regions (microseconds to milliseconds), several hundred per token.
//
// Which thread takes which piece is left to chance; a region's result must therefore never depend on it: every output
// element is written by exactly one piece, and pieces are fixed by the problem, not by the number of threads.
#pragma once
#include <cstddef>
#include <memory>
#include <type_traits>

namespace pop {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no worker.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

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
