#include "apps/bench/roof.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pop::app {
namespace {

constexpr size_t kLine = 64;
constexpr int kPieces = 8;  // per thread: whoever is free takes the next, as in a decode

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Roof::Roof(size_t bytes, const KernelTable& kernels)
    : buffer_(std::clamp<size_t>(bytes, size_t{1} << 16, kMostBytes)), kernels_(kernels) {
  // Pages that were never written may all be one page of zeros, which would sit in the cache.
  const auto words = buffer_.as<uint64_t>();
  for (size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15ull;
}

std::vector<double> Roof::passes(int threads, int streams, int ahead, size_t least, double seconds) {
  std::unique_ptr<ThreadPool>& pool = pools_[threads];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(threads);
  const int pieces = threads == 1 ? 1 : threads * kPieces;
  const size_t share = buffer_.size() / kLine / size_t(pieces);
  std::atomic<uint64_t> sink{0};
  std::vector<double> rates;
  const double start = now();
  do {
    const double begin = now();
    pool->run(pieces, [&](int piece, int) {
      sink += kernels_.read_lines(buffer_.data() + size_t(piece) * share * kLine, share, streams, ahead);
    });
    rates.push_back(double(share * kLine) * pieces / (now() - begin));
  } while (rates.size() < least || (now() - start < seconds && rates.size() < 10000));
  return rates;
}

RoofPoint Roof::measure(int threads, double seconds) {
  RoofPoint& best = best_[threads];
  best = {threads, 1, 0, 0, 0};
  double fastest = 0;
  for (const int streams : {1, 2, 4, 8})
    for (const int ahead : {0, 1024, 4096}) {
      const double rate = median(passes(threads, streams, ahead, 1, seconds));
      if (rate > fastest) {
        fastest = rate;
        best.streams = streams;
        best.ahead = ahead;
      }
    }
  const std::vector<double> rates = passes(threads, best.streams, best.ahead, 3, seconds);
  best.bytes_per_s = median(rates);
  best.spread = spread(rates);
  return best;
}

double Roof::rate(int threads) {
  if (best_.find(threads) == best_.end()) measure(threads);
  const RoofPoint& best = best_[threads];
  return median(passes(threads, best.streams, best.ahead, 3, 0.05));
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
