#include "base/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/futex.h"

namespace pop {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Regions follow each other within microseconds while a token is computed, so who waits first spins; then it sleeps in the
// kernel. It must not spin for long nor yield: beside a busy neighbour a waiting thread that sleeps gives its CPU to
// the thread it waits for (which the neighbour has displaced), one that spins only loses its share of the machine.
constexpr std::chrono::microseconds kSpin(50);
constexpr int kPausesPerLook = 16;  // at the clock

int current_cpu() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

// Moves the calling thread off `cpu` if its affinity mask allows another; the mask stays as it was.
void leave_cpu([[maybe_unused]] int cpu) {
#if defined(__linux__)
  cpu_set_t mask, others;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
  others = mask;
  CPU_CLR(size_t(cpu), &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof mask, &mask);
#endif
}

// A worker woken while all CPUs are busy often lands on the caller's and displaces it: both then share one CPU, and the
// neighbour has the other alone. Such a worker moves over, at most this often.
constexpr std::chrono::milliseconds kMoveEvery(1);

// True as soon as ready() is; false if it is not within kSpin.
template <class Ready>
bool spin_until(const Ready& ready) {
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      pause_cpu();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// The pieces of one region that one thread has first call on: it takes them from the front, in order, so that what it
// prefetches is its own; threads without work take from the back. One word: the region's number in the high half,
// then the first piece left and the end.
struct alignas(64) Share {
  std::atomic<uint64_t> word{0};
};
constexpr uint64_t share_word(uint32_t region, int begin, int end) {
  return uint64_t(region) << 32 | uint64_t(begin) << 16 | uint64_t(end);
}
constexpr uint32_t region_of(uint64_t word) { return uint32_t(word >> 32); }
constexpr int begin_of(uint64_t word) { return int(word >> 16 & 0xffff); }
constexpr int end_of(uint64_t word) { return int(word & 0xffff); }
constexpr int kMostPieces = 0xffff;

}  // namespace

// A worker that comes late to a finished region finds its shares empty or of another number and takes nothing, so it never
// touches a dead body. Body, call and pieces of the next region are written before its shares: whoever read them
// together with an older share finds its claim on that share refused.
struct ThreadPool::Impl {
  alignas(64) std::atomic<uint32_t> region{0};  // what sleeping workers wait on
  alignas(64) std::atomic<uint32_t> done{0};    // pieces; what the sleeping caller waits on
  std::atomic<bool> caller_sleeps{false};
  alignas(64) std::atomic<int> asleep{0};  // workers
  std::atomic<int> pieces{0}, first{0};
  std::atomic<void*> body{nullptr};
  std::atomic<Call> call{nullptr};
  std::atomic<PoolTimes*> times{nullptr};
  std::atomic<int> caller_cpu{-1};
  std::atomic<bool> stop{false};
  std::vector<Share> shares;  // as many as CPUs can work on: more threads than CPUs sleep on
  std::vector<std::thread> workers;

  // Takes pieces of region `number` until none is left.
  void work(uint32_t number, int thread) {
    PoolTimes* log = nullptr;  // null as well: nothing is logged
    PoolTimes::Clock::time_point begin;
    int taken = 0;
    for (size_t k = 0; k < shares.size(); ++k) {
      std::atomic<uint64_t>& share = shares[(size_t(thread) + k) % shares.size()].word;
      uint64_t now = share.load(std::memory_order_acquire);
      while (region_of(now) == number && begin_of(now) < end_of(now)) {
        void* const what = body.load(std::memory_order_acquire);
        const Call how = call.load(std::memory_order_acquire);
        const int piece = first.load(std::memory_order_acquire) + (k == 0 ? begin_of(now) : end_of(now) - 1);
        if (!share.compare_exchange_weak(now, k == 0 ? now + (1 << 16) : now - 1, std::memory_order_acq_rel)) continue;
        if (taken++ == 0 && thread != 0) {  // only now is the region, hence what is noted of it, sure to live
          log = times.load(std::memory_order_relaxed);
          if (log != nullptr && log->log.empty()) log = nullptr;
          if (log != nullptr) begin = PoolTimes::Clock::now();
        }
        how(what, piece, thread);
        now = share.load(std::memory_order_acquire);
      }
    }
    if (taken == 0) return;
    // Before the pieces count as done: afterwards the caller may read the log.
    if (log != nullptr) log->log[size_t(thread)].push_back({begin, PoolTimes::Clock::now(), taken});
    const auto all = uint32_t(pieces.load(std::memory_order_acquire));
    // Sequentially consistent with caller_sleeps: either the caller sees all pieces done, or we see that it sleeps.
    if (done.fetch_add(uint32_t(taken)) + uint32_t(taken) == all && caller_sleeps.load()) futex_wake(done, 1);
  }

  // The caller has no piece left to take.
  void wait_for(uint32_t count) {
    const auto complete = [&] { return done.load(std::memory_order_acquire) == count; };
    if (complete()) return;
    PoolTimes* const note = times.load(std::memory_order_relaxed);
    const auto begin = note != nullptr ? PoolTimes::Clock::now() : PoolTimes::Clock::time_point{};
    if (!spin_until(complete)) {
      caller_sleeps.store(true);
      for (uint32_t seen; (seen = done.load()) != count;) futex_wait(done, seen);
      caller_sleeps.store(false, std::memory_order_relaxed);
    }
    if (note == nullptr) return;
    const auto end = PoolTimes::Clock::now();
    note->waited += end - begin;
    if (!note->log.empty()) note->log[0].push_back({begin, end, 0});
  }

  void run(int first_piece, int count, void* what, Call how) {
    const uint32_t number = region.load(std::memory_order_relaxed) + 1;
    body.store(what, std::memory_order_release);
    call.store(how, std::memory_order_release);
    first.store(first_piece, std::memory_order_release);
    pieces.store(count, std::memory_order_release);
    done.store(0, std::memory_order_relaxed);
    const auto n = int(shares.size());
    for (int i = 0; i < n; ++i)
      shares[size_t(i)].word.store(share_word(number, int(int64_t(count) * i / n), int(int64_t(count) * (i + 1) / n)),
                                   std::memory_order_release);
    caller_cpu.store(current_cpu(), std::memory_order_relaxed);
    region.store(number);
    wake_workers();
    work(number, 0);
    wait_for(uint32_t(count));
  }

  void wake_workers() {
    const int sleeping = asleep.load(), awake = int(workers.size()) - sleeping, wanted = int(shares.size()) - 1;
    if (sleeping > 0 && awake < wanted) futex_wake(region, wanted - awake);
  }

  void end() {
    stop.store(true);
    region.fetch_add(1);
    futex_wake(region, int(workers.size()));
    for (auto& worker : workers) worker.join();
  }

  void move_off_caller(std::chrono::steady_clock::time_point& moved) {
    const int cpu = current_cpu();
    if (cpu < 0 || cpu != caller_cpu.load(std::memory_order_relaxed) || shares.size() < 2) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - moved < kMoveEvery) return;
    moved = now;
    leave_cpu(cpu);
  }

  void loop(int thread) {
    std::chrono::steady_clock::time_point moved{};
    for (uint32_t seen = 0;;) {
      const auto opened = [&] { return region.load(std::memory_order_acquire) != seen; };
      if (!spin_until(opened)) {
        // Sequentially consistent with `region`: either we see the new region, or its caller sees that we sleep.
        asleep.fetch_add(1);
        while (region.load() == seen) futex_wait(region, seen);
        asleep.fetch_sub(1);
      }
      if (stop.load(std::memory_order_relaxed)) return;
      seen = region.load(std::memory_order_acquire);
      move_off_caller(moved);
      work(seen, thread);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()), threads_(threads) {
  if (threads < 1 || threads > 1024) fail("threads: expected 1 to 1024, found {}", threads);
  impl_->shares = std::vector<Share>(size_t(std::min(threads, usable_cpus())));
  try {
    for (int t = 1; t < threads; ++t) impl_->workers.emplace_back([this, t] { impl_->loop(t); });
  } catch (const std::exception& e) {  // limits of memory or of threads
    const size_t started = impl_->workers.size() + 1;
    impl_->end();
    fail("threads: expected {}, the system gave {}: {}", threads, started, e.what());
  }
}

ThreadPool::~ThreadPool() { impl_->end(); }

void ThreadPool::watch(PoolTimes* times) { impl_->times.store(times, std::memory_order_relaxed); }

void ThreadPool::run_erased(int pieces, void* body, Call call) {
  if (pieces == 1 || threads_ == 1) {
    for (int p = 0; p < pieces; ++p) call(body, p, 0);
    return;
  }
  for (int first = 0; first < pieces; first += kMostPieces)
    impl_->run(first, std::min(pieces - first, kMostPieces), body, call);
}

}  // namespace pop
