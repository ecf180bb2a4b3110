// The roof: how fast this machine reads memory, measured the way decode reads weights.
#pragma once
#include <cstddef>
#include <vector>

#include "base/aligned_buffer.h"

namespace pop::app {

struct RoofPoint {
  int threads = 0;
  int streams = 0;         // sequential streams per thread that were fastest
  double bytes_per_s = 0;  // median over the rounds of that number of streams
  double spread = 0;       // (max - min) / median of those
};

// A buffer in huge pages where the system gives them, read from end to end again and again.
class Roof {
 public:
  explicit Roof(size_t bytes);
  // The best of 1, 2, 4 and 8 streams per thread, each over at least `seconds`.
  RoofPoint measure(int threads, double seconds = 0.15) const;
  size_t bytes() const { return buffer_.size(); }

 private:
  AlignedBuffer buffer_;
};

double median(std::vector<double> values);         // values: at least one
double spread(const std::vector<double>& values);  // (max - min) / median; 0 for one value

}  // namespace pop::app
