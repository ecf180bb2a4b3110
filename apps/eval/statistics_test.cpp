// Statistics of evaluations against values worked out by hand or by the formula that a test names.
#include "apps/eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pop::app {
namespace {

TEST(Percentile, InterpolatesBetweenRanks) {
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.99), 1 + 3 * 0.99);
  EXPECT_DOUBLE_EQ(percentile({7}, 0.99), 7);
}

TEST(Moments, ByHand) {
  const std::vector<double> a = {1, 2, 4, 5}, b = {2, 1, 5, 4}, constant = {3, 3, 3, 3};
  EXPECT_DOUBLE_EQ(mean(a), 3);
  EXPECT_DOUBLE_EQ(variance(a), 10.0 / 3);        // 4 + 1 + 1 + 4
  EXPECT_DOUBLE_EQ(covariance(a, b), 8.0 / 3);    // 2 + 2 + 2 + 2
  EXPECT_DOUBLE_EQ(correlation(a, b), 8.0 / 10);  // b has the variance of a
  EXPECT_DOUBLE_EQ(standard_error(a), std::sqrt(10.0 / 12));
  EXPECT_EQ(correlation(a, constant), 0);
  EXPECT_EQ(variance(std::vector<double>{2}), 0);
  EXPECT_EQ(mean({}), 0);
}

TEST(Bootstrap, IsSeededAndCoversTheMean) {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(i % 2);  // mean 0.5, standard error of the mean 0.0791
  const Interval a = bootstrap_mean(values, 1);
  // 0.5 -+ 1.96 * 0.0791, in steps of 1/40
  EXPECT_NEAR(a.low, 0.345, 0.03);
  EXPECT_NEAR(a.high, 0.655, 0.03);
  for (double& value : values)
    value += double(&value - values.data()) / 1000;  // so that draws differ in more than steps
  const Interval b = bootstrap_mean(values, 1), again = bootstrap_mean(values, 1), other = bootstrap_mean(values, 2);
  EXPECT_EQ(b.low, again.low);
  EXPECT_EQ(b.high, again.high);
  EXPECT_NE(b.low, other.low);
  const Interval constant = bootstrap_mean(std::vector<double>{0.25, 0.25, 0.25}, 1);
  EXPECT_EQ(constant.low, 0.25);
  EXPECT_EQ(constant.high, 0.25);
}

// 100 clusters of 4 equal values: as wide as 100 values, not as 400. Standard error sqrt(0.25 / 100) = 0.05 and 0.025.
TEST(Bootstrap, DrawsWholeClusters) {
  std::vector<double> values;
  std::vector<std::string> clusters, alone(400);
  for (int i = 0; i < 400; ++i) {
    values.push_back(i / 4 % 2);
    clusters.push_back("passage " + std::to_string(i / 4));
  }
  EXPECT_EQ(count_clusters(clusters), 100u);
  EXPECT_EQ(count_clusters(alone), 400u);
  const Interval together = bootstrap_mean(values, clusters, 1, 10000);
  EXPECT_NEAR(together.high - together.low, 2 * 1.96 * 0.05, 0.015);
  const Interval apart = bootstrap_mean(values, alone, 1, 10000);
  EXPECT_NEAR(apart.high - apart.low, 2 * 1.96 * 0.025, 0.01);
}

// Without clusters it is the plain bootstrap, bit for bit.
TEST(Bootstrap, ClustersOfOneAreItems) {
  const std::vector<double> values = {0, 1, 1, 0, 1, 1, 1};
  const std::vector<std::string> none(values.size());
  const Interval a = bootstrap_mean(values, 7, 500), b = bootstrap_mean(values, none, 7, 500);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
}

TEST(McNemar, ByHand) {
  EXPECT_EQ(mcnemar_exact(0, 0), 1.0);
  EXPECT_NEAR(mcnemar_exact(0, 5), 2.0 / 32, 1e-12);
  EXPECT_NEAR(mcnemar_exact(8, 2), 2.0 * (1 + 10 + 45) / 1024, 1e-12);
  EXPECT_EQ(mcnemar_exact(3, 3), 1.0);
}

// Python: min(1, 2 * sum(math.comb(b + c, i) for i in range(min(b, c) + 1)) / 2 ** (b + c))
TEST(McNemar, OfManyChanges) {
  EXPECT_NEAR(mcnemar_exact(40, 20), 0.01348929373, 1e-10);
  EXPECT_NEAR(mcnemar_exact(20, 40), 0.01348929373, 1e-10);
  EXPECT_NEAR(mcnemar_exact(150, 110), 0.01541558283, 1e-10);
  EXPECT_NEAR(mcnemar_exact(1000, 900), 0.02310884511, 1e-10);
}

}  // namespace
}  // namespace pop::app
