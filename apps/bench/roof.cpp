#include "apps/bench/roof.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace pop::app {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Reads `streams` equal parts of the words side by side, a cache line of each in turn; the sum keeps the reads alive.
uint64_t read_streams(std::span<const uint64_t> words, int streams) {
  constexpr size_t kLine = 8;
  const size_t part = words.size() / size_t(streams) / kLine * kLine;
  uint64_t sums[kLine] = {};
  for (size_t at = 0; at + kLine <= part; at += kLine)
    for (int s = 0; s < streams; ++s) {
      const uint64_t* line = words.data() + size_t(s) * part + at;
      for (size_t k = 0; k < kLine; ++k) sums[k] += line[k];
    }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

}  // namespace

Roof::Roof(size_t bytes) : buffer_(bytes) {
  buffer_.touch();
  // Pages that were never written may all be one page of zeros, which would sit in the cache.
  const auto words = buffer_.as<uint64_t>();
  for (size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15ull;
}

RoofPoint Roof::measure(int threads, double seconds) const {
  ThreadPool pool(threads);
  const auto words = buffer_.as<uint64_t>();
  const size_t share = words.size() / size_t(threads) / 512 * 512;
  std::atomic<uint64_t> sink{0};
  RoofPoint best;
  best.threads = threads;
  for (const int streams : {1, 2, 4, 8}) {
    std::vector<double> rates;
    const double start = now();
    while (rates.size() < 3 || now() - start < seconds) {
      const double begin = now();
      pool.run(threads, [&](int piece, int) {
        sink += read_streams(std::span<const uint64_t>(words).subspan(size_t(piece) * share, share), streams);
      });
      rates.push_back(double(share) * threads * sizeof(uint64_t) / (now() - begin));
      if (rates.size() > 10000) break;
    }
    const double rate = median(rates);
    if (rate > best.bytes_per_s) best = {threads, streams, rate, spread(rates)};
  }
  return best;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double middle = median(values);
  return middle > 0 ? (*high - *low) / middle : 0;
}

}  // namespace pop::app
