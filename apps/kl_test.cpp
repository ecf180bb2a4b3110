// The statistics of eval kl and demo against values worked out by hand.
#include "apps/eval/kl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pop::app {
namespace {

TEST(Divergence, ByHand) {
  // base (1/4, 3/4), other (1/2, 1/2): 1/4 ln(1/2) + 3/4 ln(3/2)
  const float base[] = {0.0f, std::log(3.0f)}, other[] = {5.0f, 5.0f};
  const TokenDivergence d = diverge(base, other, 1);
  EXPECT_NEAR(d.kl, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_NEAR(d.nll_base, -std::log(0.75), 1e-7);
  EXPECT_NEAR(d.nll_other, -std::log(0.5), 1e-12);
  EXPECT_FALSE(d.same_top);  // of equal scores the lower id comes first
}

TEST(Divergence, EqualLogitsGiveExactlyZero) {
  const float logits[] = {-3.5f, 0.25f, 17.0f, 16.9f, -std::numeric_limits<float>::infinity()};
  const TokenDivergence d = diverge(logits, logits, 2);
  EXPECT_EQ(d.kl, 0.0);
  EXPECT_TRUE(d.same_top);
  EXPECT_EQ(d.nll_base, d.nll_other);
}

TEST(Divergence, DirectionIsBaseToOther) {
  const float base[] = {0.0f, 10.0f}, other[] = {0.0f, -10.0f};
  const double p = 1 / (1 + std::exp(10.0));  // of token 0 in base, of token 1 in other
  EXPECT_NEAR(diverge(base, other, 0).kl, p * std::log(p / (1 - p)) + (1 - p) * std::log((1 - p) / p), 1e-9);
}

TEST(Percentile, InterpolatesBetweenRanks) {
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.99), 1 + 3 * 0.99);
  EXPECT_DOUBLE_EQ(percentile({7}, 0.99), 7);
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

}  // namespace
}  // namespace pop::app
