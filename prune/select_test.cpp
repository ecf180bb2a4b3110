#include "prune/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace pop {
namespace {

using List = std::vector<int32_t>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

List to_list(IndexList list) { return List(list.index, list.index + list.count); }

List best_of(TopK& top, std::span<const float> scores, int k) {
  const uint8_t* keep = top.mark(scores, k);
  List list;
  for (int32_t i = 0; i < static_cast<int32_t>(scores.size()); ++i) {
    if (keep[i] != 0) list.push_back(i);
  }
  return list;
}

// The specification, slowly: NaN first, then by score, then by index.
List best_by_sorting(std::span<const float> scores, int k) {
  List order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
    return x > y;
  });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

float draw(std::mt19937& random, int kind) {
  const float uniform = static_cast<float>(random()) * 0x1p-32f;
  switch (kind) {
    case 0: return uniform;
    case 1: return static_cast<float>(random() % 4);  // ties
    case 2:
      return std::ldexp(uniform, static_cast<int>(random() % 300) - 150);  // every size, subnormal and infinite too
    case 3: return 1.f + uniform * 0x1p-10f;                               // equal in the upper bits
    case 4: {
      const uint32_t which = random() % 6;
      return which == 0   ? kNan
             : which == 1 ? kInf
             : which == 2 ? 0.f
             : which == 3 ? -kNan
             : which == 4 ? -0.f
                          : uniform;
    }
    default: return 0.25f;
  }
}

TEST(TopK, ByHand) {
  TopK top(8);
  const std::vector<float> scores = {0.5f, 2.f, 0.5f, 3.f, 0.f, 0.5f};
  EXPECT_EQ(best_of(top, scores, 0), (List{}));
  EXPECT_EQ(best_of(top, scores, 1), (List{3}));
  EXPECT_EQ(best_of(top, scores, 2), (List{1, 3}));
  EXPECT_EQ(best_of(top, scores, 3), (List{0, 1, 3}));  // of the three 0.5 the lowest index
  EXPECT_EQ(best_of(top, scores, 4), (List{0, 1, 2, 3}));
  EXPECT_EQ(best_of(top, scores, 5), (List{0, 1, 2, 3, 5}));
  EXPECT_EQ(best_of(top, scores, 6), (List{0, 1, 2, 3, 4, 5}));
}

TEST(TopK, NanAboveInfinityZerosEqual) {
  TopK top(5);
  EXPECT_EQ(best_of(top, std::vector<float>{1.f, kInf, kNan, 3.f}, 1), (List{2}));
  EXPECT_EQ(best_of(top, std::vector<float>{kInf, kNan, -kNan, kNan}, 2), (List{1, 2}));
  EXPECT_EQ(best_of(top, std::vector<float>{-0.f, 0.f, -0.f}, 2), (List{0, 1}));
}

TEST(TopK, AgreesWithSorting) {
  std::mt19937 random(2);
  TopK top(700);
  std::vector<float> scores;
  for (int round = 0; round < 3000; ++round) {
    const int n = round < 300 ? 1 + round % 5 : 1 + static_cast<int>(random() % 700);
    scores.resize(static_cast<size_t>(n));
    for (float& s : scores) s = draw(random, round % 6);
    const int k = static_cast<int>(random() % static_cast<uint32_t>(n + 1));
    ASSERT_EQ(best_of(top, scores, k), best_by_sorting(scores, k)) << "n " << n << " k " << k << " kind " << round % 6;
  }
}

Partition random_partition(std::mt19937& random, const PartitionSizes& sizes) {
  Partition partition = make_partition(sizes);
  std::vector<uint64_t> ranks(static_cast<size_t>(sizes.f));
  for (float& s : partition.scores) s = draw(random, 0);
  partition_channels(sizes, ranks, partition);
  return partition;
}

// One token's scores of all channels -> the chosen list.
List choose(const PartitionSizes& sizes, const Partition& partition, std::span<const float> token, TopK& top) {
  CandidateSelector selector(sizes);
  selector.assign(partition);
  std::vector<float> scores;
  for (const int32_t c : partition.candidate) scores.push_back(token[static_cast<size_t>(c)]);
  return to_list(selector.choose(scores, top));
}

TEST(CandidateSelector, ByHand) {
  // R = {3, 5}, C = {0, 2, 6, 7}, P = {1, 4}, K = 4: two of C.
  const PartitionSizes sizes = partition_sizes(8, 0.5, 0.5);
  const Partition partition = {.retained = {3, 5}, .candidate = {0, 2, 6, 7}, .pruned = {1, 4}, .scores = {}};
  CandidateSelector selector(sizes);
  selector.assign(partition);
  TopK top(8);
  EXPECT_EQ(selector.to_choose(), 2);
  EXPECT_EQ(to_list(selector.reachable()), (List{0, 2, 3, 5, 6, 7}));
  EXPECT_EQ(to_list(selector.candidates()), (List{0, 2, 6, 7}));
  EXPECT_EQ(to_list(selector.choose(std::vector<float>{1, 2, 3, 4}, top)), (List{3, 5, 6, 7}));
  EXPECT_EQ(to_list(selector.choose(std::vector<float>{9, 0, 0, 0}, top)), (List{0, 2, 3, 5}));
}

TEST(CandidateSelector, KeepsExactlyKAndNoneOfP) {
  std::mt19937 random(3);
  TopK top(400);
  for (int round = 0; round < 1500; ++round) {
    const int f = round < 150 ? 1 + round % 3 : 1 + static_cast<int>(random() % 400);
    const double p = random() % 6 == 0 ? static_cast<double>(random() % 2) : static_cast<double>(random()) * 0x1p-32;
    const double gamma = random() % 6 == 0 ? 0 : static_cast<double>(random()) * 0x1p-31;
    const PartitionSizes sizes = partition_sizes(f, p, gamma);
    const Partition partition = random_partition(random, sizes);
    std::vector<float> token(static_cast<size_t>(f));
    for (float& s : token) s = draw(random, round % 6);

    List expected = partition.retained;
    std::vector<float> scores;
    for (const int32_t c : partition.candidate) scores.push_back(token[static_cast<size_t>(c)]);
    for (const int32_t c : best_by_sorting(scores, sizes.kept - sizes.retained)) {
      expected.push_back(partition.candidate[static_cast<size_t>(c)]);
    }
    std::sort(expected.begin(), expected.end());
    const List chosen = choose(sizes, partition, token, top);
    ASSERT_EQ(static_cast<int>(chosen.size()), sizes.kept);
    ASSERT_EQ(chosen, expected) << "f " << f << " p " << p << " gamma " << gamma;
  }
}

TEST(CandidateSelector, AWiderCandidateRegionNeverLowersTheCapturedScore) {
  std::mt19937 random(4);
  TopK top(300);
  for (int round = 0; round < 300; ++round) {
    const int f = 1 + static_cast<int>(random() % 300);
    const double p = static_cast<double>(random()) * 0x1p-32;
    std::vector<float> prompt(static_cast<size_t>(f)), token(static_cast<size_t>(f));
    for (float& s : prompt) s = draw(random, round % 2);
    for (float& s : token) s = std::floor(draw(random, round % 2) * 0x1p20f);  // integers: sums are exact
    double captured = -1;
    for (const double gamma : {0.0, 0.05, 0.1, 0.3, 0.8, 1.4, 2.0}) {
      const PartitionSizes sizes = partition_sizes(f, p, gamma);
      Partition partition = make_partition(sizes);
      partition.scores = prompt;
      std::vector<uint64_t> ranks(static_cast<size_t>(f));
      partition_channels(sizes, ranks, partition);
      double sum = 0;
      for (const int32_t i : choose(sizes, partition, token, top))
        sum += static_cast<double>(token[static_cast<size_t>(i)]);
      ASSERT_GE(sum, captured) << "f " << f << " p " << p << " gamma " << gamma;
      captured = sum;
    }
  }
}

TEST(SelectBest, ByHandAndBySorting) {
  const auto best = [](std::span<const float> scores, int k) {
    TopK top(static_cast<int>(scores.size()));
    List out(scores.size() + 1);
    out.resize(static_cast<size_t>(select_best(scores, k, top, out.data())));
    return out;
  };
  const std::vector<float> scores = {0.5f, 2.f, 1.f, kNan, 0.f, 1.f};
  EXPECT_EQ(best(scores, 2), (List{1, 3}));
  EXPECT_EQ(best(scores, 3), (List{1, 2, 3}));  // of the two 1.0 the lower index
  EXPECT_EQ(best(scores, 0), List{});
  std::mt19937 random(5);
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> drawn(1 + random() % 200);
    for (float& s : drawn) s = draw(random, round % 6);
    const int k = static_cast<int>(random() % (drawn.size() + 1));
    ASSERT_EQ(best(drawn, k), best_by_sorting(drawn, k));
  }
}

}  // namespace
}  // namespace pop
