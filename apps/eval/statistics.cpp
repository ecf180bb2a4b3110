#include "apps/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace pop::app {
namespace {

// SplitMix64: a few lines that give the same numbers everywhere, which the distributions of <random> do not promise.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Sums over the members of every cluster, in the order of their first members.
struct ClusterSums {
  std::vector<double> sums, counts;
};

ClusterSums sum_clusters(std::span<const double> values, std::span<const std::string> clusters) {
  ClusterSums out;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < values.size(); ++i) {
    size_t place = out.sums.size();
    if (!clusters[i].empty()) place = places.emplace(clusters[i], place).first->second;
    if (place == out.sums.size()) {
      out.sums.push_back(0);
      out.counts.push_back(0);
    }
    out.sums[place] += values[i];
    out.counts[place] += 1;
  }
  return out;
}

}  // namespace

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

double covariance(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2) return 0;
  const double mean_a = mean(a), mean_b = mean(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - mean_a) * (b[i] - mean_b);
  return sum / double(a.size() - 1);
}

double variance(std::span<const double> values) { return covariance(values, values); }

double correlation(std::span<const double> a, std::span<const double> b) {
  const double scale = std::sqrt(variance(a) * variance(b));
  return scale > 0 ? covariance(a, b) / scale : 0;
}

double standard_error(std::span<const double> values) {
  return values.empty() ? 0 : std::sqrt(variance(values) / double(values.size()));
}

double sorted_percentile(std::span<const double> sorted, double share) {
  const double place = share * double(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - double(below)) * (sorted[above] - sorted[below]);
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return sorted_percentile(values, share);
}

Interval bootstrap_mean(std::span<const double> values, uint64_t seed, int draws) {
  std::vector<double> means;
  for (int draw = 0; draw < draws; ++draw) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[next_random(seed) % values.size()];
    means.push_back(sum / double(values.size()));
  }
  return {percentile(means, 0.025), percentile(means, 0.975)};
}

Interval bootstrap_mean(std::span<const double> values, std::span<const std::string> clusters, uint64_t seed,
                        int draws) {
  const ClusterSums all = sum_clusters(values, clusters);
  const size_t count = all.sums.size();
  std::vector<double> means;
  for (int draw = 0; draw < draws; ++draw) {
    double sum = 0, members = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t place = next_random(seed) % count;
      sum += all.sums[place];
      members += all.counts[place];
    }
    means.push_back(sum / members);
  }
  return {percentile(means, 0.025), percentile(means, 0.975)};
}

size_t count_clusters(std::span<const std::string> clusters) {
  const std::vector<double> ones(clusters.size(), 1.0);
  return sum_clusters(ones, clusters).sums.size();
}

double mcnemar_exact(int64_t b, int64_t c) {
  const int64_t n = b + c;
  double tail = 0;
  for (int64_t i = 0; i <= std::min(b, c); ++i)
    tail += std::exp(std::lgamma(double(n) + 1) - std::lgamma(double(i) + 1) - std::lgamma(double(n - i) + 1) -
                     double(n) * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

}  // namespace pop::app
