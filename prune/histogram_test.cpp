#include "prune/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace pop {
namespace {

TEST(ScoreHistogram, BinsByHand) {  // bits of 1.0 are 0x3f800000; >> 19 is 2032; - 1520 is 512
  EXPECT_EQ(ScoreHistogram::bin(1.f), 512);
  EXPECT_EQ(ScoreHistogram::bin(std::nextafter(1.0625f, 0.f)), 512);  // 1 + 1/16
  EXPECT_EQ(ScoreHistogram::bin(1.0625f), 513);
  EXPECT_EQ(ScoreHistogram::bin(2.f), 528);
  EXPECT_EQ(ScoreHistogram::bin(std::nextafter(1.f, 0.f)), 511);
  EXPECT_EQ(ScoreHistogram::bin(0x1p-32f), 0);
  EXPECT_EQ(ScoreHistogram::bin(0x1.1p-32f), 1);
  EXPECT_EQ(ScoreHistogram::bin(std::nextafter(0x1p32f, 0.f)), 1023);
}

TEST(ScoreHistogram, EndsAreOpen) {
  EXPECT_EQ(ScoreHistogram::bin(0.f), 0);
  EXPECT_EQ(ScoreHistogram::bin(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(ScoreHistogram::bin(std::nextafter(0x1p-32f, 0.f)), 0);
  EXPECT_EQ(ScoreHistogram::bin(0x1p32f), 1023);
  EXPECT_EQ(ScoreHistogram::bin(std::numeric_limits<float>::infinity()), 1023);
  EXPECT_EQ(ScoreHistogram::bin(std::numeric_limits<float>::quiet_NaN()), 1023);
  EXPECT_EQ(ScoreHistogram::bin(-std::numeric_limits<float>::quiet_NaN()), 1023);
}

TEST(ScoreHistogram, EveryBinBeginsAtItsEdge) {
  for (int b = 1; b < ScoreHistogram::kBins; ++b) {
    const auto edge = static_cast<float>(ScoreHistogram::lower_edge(b));
    ASSERT_EQ(ScoreHistogram::bin(edge), b);
    ASSERT_EQ(ScoreHistogram::bin(std::nextafter(edge, 0.f)), b - 1);
  }
}

TEST(ScoreHistogram, QuantileByHand) {
  ScoreHistogram h;
  h.add(std::vector<float>{1.f, 1.f, 1.01f, 1.02f, 2.f, 2.f, 2.f, 2.f, 2.f, 2.f});  // 4 in [1, 1.0625), 6 in [2, 2.125)
  EXPECT_EQ(h.total(), 10u);
  EXPECT_EQ(h.quantile(0), 0.f);
  EXPECT_EQ(h.quantile(0.04), 0.f);              // round(0.4) = 0
  EXPECT_EQ(h.quantile(0.05), 1.015625f);        // round(0.5) = 1: 1 + 0.0625 * 1/4
  EXPECT_EQ(h.quantile(0.2), 1.03125f);          // 1 + 0.0625 * 2/4
  EXPECT_EQ(h.quantile(0.4), 1.0625f);           // n = 4 is reached in the first bin, at its end
  EXPECT_FLOAT_EQ(h.quantile(0.5), 2.0208333f);  // 2 + 0.125 * 1/6
  EXPECT_EQ(h.quantile(0.7), 2.0625f);           // 2 + 0.125 * 3/6
  EXPECT_EQ(h.quantile(1), 2.125f);
  EXPECT_EQ(ScoreHistogram().quantile(0.5), 0.f);
}

TEST(ScoreHistogram, SumsOfPartsAreTheWhole) {
  std::mt19937 random(6);
  std::vector<float> scores(5000);
  for (float& s : scores) s = std::ldexp(static_cast<float>(random()), -static_cast<int>(random() % 80));
  ScoreHistogram whole, parts;
  whole.add(scores);
  for (size_t begin = 0; begin < scores.size(); begin += 7) {
    ScoreHistogram part;
    part.add(std::span(scores).subspan(begin, std::min<size_t>(7, scores.size() - begin)));
    parts.add(part);
  }
  for (int b = 0; b < ScoreHistogram::kBins; ++b) ASSERT_EQ(whole.count(b), parts.count(b));
}

TEST(ScoreHistogram, ShareBelowTauIsWithinHalfAPercentOfV) {  // N >= 10,000 (pop-method section 9)
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> scores(20000);
  for (float& s : scores) s = std::fabs(normal(random));
  ScoreHistogram h;
  h.add(scores);
  for (const double v : {0.05, 0.175, 0.2, 0.375, 0.5, 0.8, 0.95}) {
    const float tau = h.quantile(v);
    const auto below = std::count_if(scores.begin(), scores.end(), [&](float s) { return s < tau; });
    EXPECT_NEAR(static_cast<double>(below) / static_cast<double>(scores.size()), v, 0.005);
  }
}

}  // namespace
}  // namespace pop
