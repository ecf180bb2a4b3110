// Where the time of a run goes: parts that add up to the wall time, and what every thread did when.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"

namespace pop {

// Prefill computes densely (or as --prefill pruned says) and is observed by the pruning state; decode selects.
enum class Phase : uint8_t { Prefill, Decode };

// Sync: the calling thread had no work left and waited for the others. Partition includes packing. Other: between passes.
enum class Part : uint8_t {
  Embed,
  Norm,
  Select,
  Qkv,
  Attention,
  O,
  GateUp,
  Down,
  Router,  // of a mixture of experts, with the weighted sum of what they give
  Head,    // of a pass
  Observe,
  Partition,
  Sampling,
  Sync,
  Other,
  kCount
};
const char* part_name(Part part);

struct Profile {
  std::array<double, size_t(Part::kCount)> seconds[2]{};  // [Phase]
  std::array<uint64_t, size_t(Part::kCount)> bytes{};     // weights handed to kernels, decode only
};

// Cuts the calling thread's time into parts: each mark says what the time since the mark before was spent on. Until
// start() only selection is timed, because reading the clock hundreds of times a token costs a small model half a percent.
class Stopwatch {
 public:
  Stopwatch() = default;
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Everything is timed from here on; log: and kept for for_each_event.
  void start(ThreadPool& pool, bool log);
  void enter(Phase phase) {
    mark(Part::Other);
    phase_ = phase;
  }
  void mark(Part part) {
    if (pool_ != nullptr) note(part);
  }
  // Around a selection; `before` is what came before it.
  void begin_select(Part before) {
    if (pool_ != nullptr)
      note(before);
    else
      last_ = Clock::now();
  }
  void end_select() { note(Part::Select); }

  // Of the log: what a thread did from second `begin` after start() on. Thread 0 is the caller; its Sync events lie within
  // others. pieces: of the work that a region was cut into, 0 for the caller.
  struct Event {
    Part part;
    Phase phase;
    int thread;
    double begin_s, seconds;
    int pieces;
  };
  void for_each_event(const std::function<void(const Event&)>& visit) const;

  Profile profile;

 private:
  using Clock = PoolTimes::Clock;
  struct Span {
    Part part;
    Phase phase;
    Clock::time_point begin, end;
  };
  void note(Part part);

  ThreadPool* pool_ = nullptr;
  PoolTimes times_;
  Phase phase_ = Phase::Prefill;
  Clock::time_point start_, last_;
  bool log_ = false;
  std::vector<Span> spans_;
};

}  // namespace pop
