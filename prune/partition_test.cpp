#include "prune/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"

namespace pop {
namespace {

using List = std::vector<int32_t>;

Partition partition_of(std::vector<float> scores, double p, double gamma) {
  const PartitionSizes sizes = partition_sizes(static_cast<int>(scores.size()), p, gamma);
  Partition partition = make_partition(sizes);
  partition.scores = std::move(scores);
  std::vector<uint64_t> ranks(partition.scores.size());
  partition_channels(sizes, ranks, partition);
  return partition;
}

TEST(PartitionSizes, RoundsHalvesAwayFromZero) {
  EXPECT_EQ(kept_channels(5, 0.5), 2);    // round(2.5) = 3 go
  EXPECT_EQ(kept_channels(10, 0.25), 7);  // round(2.5) = 3 go, not the even 2
  EXPECT_EQ(kept_channels(10, 0.24), 8);  // round(2.4) = 2
  EXPECT_EQ(kept_channels(1, 0.5), 0);    // round(0.5) = 1
  EXPECT_EQ(kept_channels(1, 0.49), 1);
  // p = 0.375, gamma = 0.25, f = 10: lo = 0.25 -> 2.5 -> 3, hi = 0.5 -> 5, round(3.75) = 4.
  const PartitionSizes s = partition_sizes(10, 0.375, 0.25);
  EXPECT_EQ(s.pruned, 3);
  EXPECT_EQ(s.candidate, 2);
  EXPECT_EQ(s.retained, 5);
  EXPECT_EQ(s.kept, 6);
}

TEST(PartitionSizes, DefaultModelAtRatio20Percent) {
  // f = 1536, p = 0.2667: p f = 409.65 -> 410, K = 1126.
  // gamma 0.1: lo f = 0.2167 * 1536 = 332.85 -> 333, hi f = 0.3167 * 1536 = 486.45 -> 486.
  const PartitionSizes narrow = partition_sizes(1536, 0.2667, 0.1);
  EXPECT_EQ(narrow.kept, 1126);
  EXPECT_EQ(narrow.pruned, 333);
  EXPECT_EQ(narrow.candidate, 153);
  EXPECT_EQ(narrow.retained, 1050);
  // gamma 0.3: lo f = 0.1167 * 1536 = 179.25 -> 179, hi f = 0.4167 * 1536 = 640.05 -> 640.
  const PartitionSizes wide = partition_sizes(1536, 0.2667, 0.3);
  EXPECT_EQ(wide.kept, 1126);
  EXPECT_EQ(wide.pruned, 179);
  EXPECT_EQ(wide.candidate, 461);
  EXPECT_EQ(wide.retained, 896);
}

TEST(PartitionSizes, BordersStopAtTheEnds) {
  const PartitionSizes none = partition_sizes(100, 0.0, 0.1);  // lo = 0, hi = 0.05
  EXPECT_EQ(none.pruned, 0);
  EXPECT_EQ(none.candidate, 5);
  EXPECT_EQ(none.kept, 100);
  const PartitionSizes all = partition_sizes(100, 1.0, 0.1);  // lo = 0.95, hi = 1
  EXPECT_EQ(all.pruned, 95);
  EXPECT_EQ(all.candidate, 5);
  EXPECT_EQ(all.kept, 0);
  const PartitionSizes full = partition_sizes(100, 0.3, 1.4);  // 2 max(p, 1 - p)
  EXPECT_EQ(full.candidate, 100);
  EXPECT_EQ(full.kept, 70);
}

TEST(PartitionSizes, RefusesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(partition_sizes(0, 0.5, 0.1), Error);
  EXPECT_THROW(partition_sizes(10, -0.01, 0.1), Error);
  EXPECT_THROW(partition_sizes(10, 1.01, 0.1), Error);
  EXPECT_THROW(partition_sizes(10, nan, 0.1), Error);
  EXPECT_THROW(partition_sizes(10, 0.5, -0.1), Error);
  EXPECT_THROW(partition_sizes(10, 0.5, 2.01), Error);
  EXPECT_THROW(partition_sizes(10, 0.5, nan), Error);
}

TEST(Partition, ByHand) {
  // Ascending: 0.1 (4), 0.2 (1), 0.5 (7), 0.7 (0), 0.8 (6), 1 (2), 2 (5), 3 (3). p = 0.5, gamma = 0.5, f = 8: P 2, C 4,
  // R 2.
  const Partition part = partition_of({0.7f, 0.2f, 1.f, 3.f, 0.1f, 2.f, 0.8f, 0.5f}, 0.5, 0.5);
  EXPECT_EQ(part.pruned, (List{1, 4}));
  EXPECT_EQ(part.candidate, (List{0, 2, 6, 7}));
  EXPECT_EQ(part.retained, (List{3, 5}));
}

TEST(Partition, OfEqualScoresTheLowerIndexIsKept) {
  const Partition equal = partition_of(std::vector<float>(8, 1.f), 0.5, 0.5);
  EXPECT_EQ(equal.pruned, (List{6, 7}));
  EXPECT_EQ(equal.candidate, (List{2, 3, 4, 5}));
  EXPECT_EQ(equal.retained, (List{0, 1}));
  const Partition zeros = partition_of({0.f, -0.f, 0.f, -0.f}, 0.5, 0);  // -0 equals 0
  EXPECT_EQ(zeros.retained, (List{0, 1}));
}

TEST(Partition, NanCountsAboveInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(partition_of({1.f, nan, inf, 2.f}, 0.75, 0).retained, (List{1}));
  EXPECT_EQ(partition_of({1.f, nan, inf, 2.f}, 0.5, 0).retained, (List{1, 2}));
  EXPECT_EQ(partition_of({nan, -nan, nan, nan}, 0.5, 0).retained, (List{0, 1}));  // all NaNs are equal
}

// Against a stable sort, over shapes that are a multiple of nothing and scores with many ties.
TEST(Partition, RandomShapesAgreeWithSorting) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const int f = round < 200 ? 1 + round % 3 : 1 + static_cast<int>(random() % 300);
    const double p = random() % 5 == 0 ? static_cast<double>(random() % 2) : static_cast<double>(random()) * 0x1p-32;
    const double gamma = random() % 5 == 0 ? 0 : static_cast<double>(random()) * 0x1p-31;
    std::vector<float> scores(static_cast<size_t>(f));
    const uint32_t values = random() % 2 == 0 ? 5 : 1u << 30;
    for (float& s : scores) s = static_cast<float>(random() % values);
    const Partition part = partition_of(scores, p, gamma);
    const PartitionSizes s = partition_sizes(f, p, gamma);

    ASSERT_EQ(s.pruned + s.candidate + s.retained, f);
    ASSERT_LE(s.retained, s.kept);
    ASSERT_LE(s.kept, s.retained + s.candidate);
    ASSERT_EQ(s.pruned, static_cast<int>(std::floor(std::max(0.0, p - gamma / 2) * f + 0.5)));
    ASSERT_EQ(s.retained, f - static_cast<int>(std::floor(std::min(1.0, p + gamma / 2) * f + 0.5)));

    List ranked(static_cast<size_t>(f));
    std::iota(ranked.rbegin(), ranked.rend(), 0);
    std::stable_sort(ranked.begin(), ranked.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] < scores[static_cast<size_t>(b)];
    });
    const auto sorted = [&](int begin, int end) {
      List list(ranked.begin() + begin, ranked.begin() + end);
      std::sort(list.begin(), list.end());
      return list;
    };
    ASSERT_EQ(part.pruned, sorted(0, s.pruned));
    ASSERT_EQ(part.candidate, sorted(s.pruned, f - s.retained));
    ASSERT_EQ(part.retained, sorted(f - s.retained, f));
  }
}

}  // namespace
}  // namespace pop
