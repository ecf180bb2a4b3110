// The roof: how fast this machine reads memory, measured the way decode reads weights.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace pop::app {

double now();  // seconds, of a clock that never goes back

struct RoofPoint {
  int threads = 0;
  int streams = 0, ahead = 0;  // the fastest pattern: sequences side by side per thread, bytes prefetched ahead
  double bytes_per_s = 0;      // median over the passes
  double spread = 0;           // (max - min) / median of those
};

// A buffer in huge pages where the system gives them, read from end to end again and again.
class Roof {
 public:
  // Larger buffers read no faster or slower: of a larger token this much is read. (Caches of servers reach 0.5 GB.)
  static constexpr size_t kMostBytes = size_t{2} << 30;

  Roof(size_t bytes, const KernelTable& kernels);

  // Tries patterns (1, 2, 4, 8 sequences per thread, prefetched 0, 1 or 4 KiB ahead), each for `seconds`, and keeps the
  // fastest for rate().
  RoofPoint measure(int threads, double seconds = 0.02);
  // One reading with the fastest pattern, bytes per second: the median of at least 3 passes and 50 ms.
  double rate(int threads);
  size_t bytes() const { return buffer_.size(); }

 private:
  std::vector<double> passes(int threads, int streams, int ahead, size_t least, double seconds);

  AlignedBuffer buffer_;
  const KernelTable& kernels_;
  std::map<int, std::unique_ptr<ThreadPool>> pools_;
  std::map<int, RoofPoint> best_;
};

double median(std::vector<double> values);         // values: at least one
double spread(const std::vector<double>& values);  // (max - min) / median; 0 for one value

}  // namespace pop::app
