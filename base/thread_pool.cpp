#include "base/thread_pool.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"

namespace pop {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Regions follow each other within microseconds while a token is computed, so a worker first spins, then yields (a busy
// neighbour gets its turn), then sleeps in the kernel.
constexpr int kSpins = 2000, kYields = 50;

constexpr uint64_t kClosed = 0xffffffffu;  // as next piece: nothing to take

}  // namespace

// One region is one value of `ticket`: its number in the high 32 bits, the next piece to take in the low 32. A worker
// that comes late to a finished region finds another number and takes nothing, so it never touches a dead body. The
// ticket is closed before body, call and pieces of the next region are written: whoever read any of those finds its claim
// on the old ticket refused.
struct ThreadPool::Impl {
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<uint32_t> region{0};  // what sleepers wait on
  alignas(64) std::atomic<int> done{0};
  std::atomic<int> pieces{0};
  std::atomic<void*> body{nullptr};
  std::atomic<Call> call{nullptr};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  // Takes pieces of region `number` until none is left.
  void work(uint32_t number, int thread) {
    for (;;) {
      uint64_t now = ticket.load(std::memory_order_acquire);
      if (uint32_t(now >> 32) != number) return;
      // Read before the claim: after a successful claim the region cannot end without us. Before it these may be the next
      // region's already, but then (release and acquire) the ticket was closed before them and the claim fails.
      const int count = pieces.load(std::memory_order_acquire);
      void* const what = body.load(std::memory_order_acquire);
      const Call how = call.load(std::memory_order_acquire);
      if (uint32_t(now) >= uint32_t(count)) return;
      const int piece = int(uint32_t(now));
      if (!ticket.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
      how(what, piece, thread);
      done.fetch_add(1, std::memory_order_acq_rel);
    }
  }

  void end() {
    stop.store(true);
    region.fetch_add(1, std::memory_order_release);
    region.notify_all();
    for (auto& worker : workers) worker.join();
  }

  void loop(int thread) {
    uint32_t seen = 0;
    for (;;) {
      int tries = 0;
      uint32_t now;
      while ((now = region.load(std::memory_order_acquire)) == seen) {
        if (tries < kSpins) {
          pause_cpu();
        } else if (tries < kSpins + kYields) {
          std::this_thread::yield();
        } else {
          region.wait(seen, std::memory_order_acquire);
        }
        ++tries;
      }
      if (stop.load(std::memory_order_relaxed)) return;
      seen = now;
      work(now, thread);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()), threads_(threads) {
  if (threads < 1 || threads > 1024) fail("threads: expected 1 to 1024, found {}", threads);
  try {
    for (int t = 1; t < threads; ++t) impl_->workers.emplace_back([this, t] { impl_->loop(t); });
  } catch (const std::exception& e) {  // limits of memory or of threads
    const size_t started = impl_->workers.size() + 1;
    impl_->end();
    fail("threads: expected {}, the system gave {}: {}", threads, started, e.what());
  }
}

ThreadPool::~ThreadPool() { impl_->end(); }

void ThreadPool::run_erased(int pieces, void* body, Call call) {
  if (pieces <= 0) return;
  if (pieces == 1 || threads_ == 1) {
    for (int p = 0; p < pieces; ++p) call(body, p, 0);
    return;
  }
  Impl& s = *impl_;
  const uint32_t number = s.region.load(std::memory_order_relaxed) + 1;
  s.ticket.store(uint64_t(number) << 32 | kClosed, std::memory_order_relaxed);
  s.body.store(body, std::memory_order_release);
  s.call.store(call, std::memory_order_release);
  s.pieces.store(pieces, std::memory_order_release);
  s.done.store(0, std::memory_order_relaxed);
  s.ticket.store(uint64_t(number) << 32, std::memory_order_release);
  s.region.store(number, std::memory_order_release);
  s.region.notify_all();  // costs a system call only while a worker sleeps
  s.work(number, 0);
  for (int tries = 0; s.done.load(std::memory_order_acquire) != pieces; ++tries) {
    if (tries < kSpins)
      pause_cpu();
    else
      std::this_thread::yield();
  }
}

}  // namespace pop
