// Statistics of evaluations: means, percentiles, bootstrap intervals, McNemar's test. Everything in float64.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pop::app {

struct Interval {
  double low = 0, high = 0;
};

double mean(std::span<const double> values);  // 0 of none

// Sample variance and covariance, n - 1 below the line; 0 of fewer than two values. a and b are of one length.
double covariance(std::span<const double> a, std::span<const double> b);
double variance(std::span<const double> values);

// Pearson's correlation; 0 where one of the two does not vary.
double correlation(std::span<const double> a, std::span<const double> b);

// Standard error of the mean, sqrt(variance / n).
double standard_error(std::span<const double> values);

// Linear interpolation at share * (n - 1) of the sorted values; values: at least one.
double percentile(std::vector<double> values, double share);
double sorted_percentile(std::span<const double> sorted, double share);

// 95 % interval of the mean by the percentile bootstrap. The values drawn must be independent: items, or means of windows of
// equal length. The same seed gives the same interval. values: at least one.
Interval bootstrap_mean(std::span<const double> values, uint64_t seed, int draws = 2000);

// The same where values share something (a passage, a document): whole clusters are drawn, the mean is over all values of
// those drawn. clusters[i] names the cluster of values[i]; "" is a cluster of its own.
Interval bootstrap_mean(std::span<const double> values, std::span<const std::string> clusters, uint64_t seed,
                        int draws);

// How many different clusters there are.
size_t count_clusters(std::span<const std::string> clusters);

// McNemar's exact test, two-sided: of b + c items that changed, b in one direction. Binomial with 1/2; 1 where none changed.
double mcnemar_exact(int64_t b, int64_t c);

}  // namespace pop::app
