// pop+'s record of a prompt: how often each size of score occurred, in integers, so that neither chunks nor threads nor
// cached prefixes can change it (pop-method section 8b). 16 bins per power of two from 2^-32 to 2^32, ends open.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace pop {

class ScoreHistogram {
 public:
  static constexpr int kBins = 1024;

  // scores are magnitudes (no sign bit) or NaN; a NaN falls into the last bin.
  static int bin(float score) {
    return std::clamp(static_cast<int>(std::bit_cast<uint32_t>(score) >> 19) - 1520, 0, kBins - 1);
  }
  static double lower_edge(int bin) {  // of bins 0 .. kBins; bin 0 holds smaller scores too, the last one greater
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bin + 1520) << 19));
  }

  void add(std::span<const float> scores) {
    for (const float s : scores) ++counts_[static_cast<size_t>(bin(s))];
  }
  void add(const ScoreHistogram& other) {
    for (size_t b = 0; b < kBins; ++b) counts_[b] += other.counts_[b];
  }
  void clear() { counts_.fill(0); }
  void set(int bin, uint64_t count) { counts_[static_cast<size_t>(bin)] = count; }  // from a file

  uint64_t count(int bin) const { return counts_[static_cast<size_t>(bin)]; }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const uint64_t c : counts_) sum += c;
    return sum;
  }

  // The v-quantile: 0 if n = round(v N) is 0, else interpolated inside the first bin whose cumulative count reaches n.
  float quantile(double v) const {
    const double n = std::round(v * static_cast<double>(total()));
    if (n == 0) return 0;
    double below = 0;
    int b = 0;
    for (; below + static_cast<double>(count(b)) < n && b < kBins - 1; ++b) below += static_cast<double>(count(b));
    const double low = lower_edge(b), high = lower_edge(b + 1);
    return static_cast<float>(low + (high - low) * (n - below) / static_cast<double>(count(b)));
  }

 private:
  std::array<uint64_t, kBins> counts_ = {};
};

}  // namespace pop
