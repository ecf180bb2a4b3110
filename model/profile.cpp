#include "model/profile.h"

#include <algorithm>
#include <iterator>

namespace pop {
namespace {

double seconds(PoolTimes::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

const char* part_name(Part part) {
  constexpr const char* kNames[] = {"embed",  "norm", "select",  "qkv",       "attention", "o",    "gate_up", "down",
                                    "router", "head", "observe", "partition", "sampling",  "sync", "other"};
  static_assert(std::size(kNames) == size_t(Part::kCount));
  return kNames[size_t(part)];
}

Stopwatch::~Stopwatch() {
  if (pool_ != nullptr) pool_->watch(nullptr);
}

void Stopwatch::start(ThreadPool& pool, bool log) {
  pool_ = &pool;
  log_ = log;
  if (log) times_.log.resize(size_t(pool.threads()));
  pool.watch(&times_);
  start_ = last_ = Clock::now();
}

void Stopwatch::note(Part part) {
  const Clock::time_point now = Clock::now();
  auto& parts = profile.seconds[size_t(phase_)];
  parts[size_t(part)] += seconds(now - last_ - times_.waited);
  parts[size_t(Part::Sync)] += seconds(times_.waited);
  times_.waited = {};
  if (log_) spans_.push_back({part, phase_, last_, now});
  last_ = now;
}

void Stopwatch::for_each_event(const std::function<void(const Event&)>& visit) const {
  const auto event = [&](const Span& s, int thread, Clock::time_point begin, Clock::time_point end, int pieces) {
    visit({s.part, s.phase, thread, seconds(begin - start_), seconds(end - begin), pieces});
  };
  for (const Span& s : spans_) event(s, 0, s.begin, s.end, 0);
  for (size_t thread = 0; thread < times_.log.size(); ++thread) {
    auto span = spans_.begin();
    for (const PoolTimes::Stretch& stretch : times_.log[thread]) {  // a region lies between two marks of the caller
      while (span != spans_.end() && span->end < stretch.end) ++span;
      if (span == spans_.end()) break;
      Span named = *span;
      if (thread == 0) named.part = Part::Sync;
      event(named, int(thread), stretch.begin, stretch.end, stretch.pieces);
    }
  }
}

}  // namespace pop
