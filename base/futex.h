// Sleeping until a number changes. std::atomic::wait of libstdc++ 12 calls sched_yield first, which beside a busy neighbour
// costs a whole time slice.
#pragma once
#include <atomic>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pop {

// Returns when `number` may no longer be `seen`: at once if it is not, else after a wake. May return early.
inline void futex_wait(std::atomic<uint32_t>& number, uint32_t seen) {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&number), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
#else
  number.wait(seen, std::memory_order_acquire);
#endif
}

// Wakes up to `count` threads that sleep on `number`.
inline void futex_wake(std::atomic<uint32_t>& number, int count) {
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&number), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
#else
  (void)count;
  number.notify_all();
#endif
}

}  // namespace pop
