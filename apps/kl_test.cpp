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

}  // namespace
}  // namespace pop::app
