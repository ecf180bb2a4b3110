// Local pruning on an example worked by hand (/shared/design/baselines.md, 9.5) and by what least squares must satisfy; the search on
// tables whose best entry is known.
#include "prune/repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/select.h"
#include "prune/level_search.h"
#include "prune/toy_model.h"

namespace pop {
namespace {

using List = std::vector<int32_t>;

GramMatrix gram_of(const std::vector<std::vector<float>>& tokens, ThreadPool& pool) {
  GramMatrix gram(static_cast<int>(tokens[0].size()), select_kernels("auto"));
  for (const std::vector<float>& h : tokens) gram.add(h.data(), 1, h.size(), pool);
  return gram;
}

TEST(Repair, WorkedExample) {  // H = 2 0 0 / 0 1 .5 / 0 .5 1, W_down = 1 1 2, no damping
  ThreadPool pool(2);
  std::deque<AlignedBuffer> memory;
  const Matrix down = make_matrix(memory, Layout::Columns, 1, 3, 1, {1, 1, 2});
  const GramMatrix gram = gram_of({{1, 0, 0}, {1, 0, 0}, {0, 1, 0.5f}, {0, 0, std::sqrt(0.75f)}}, pool);
  ChannelRemoval removal(gram, down, pool, 0);
  const std::vector<double> scores = removal.scores(), expected = {3, 2.375, 6.5};
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(scores[k], expected[k], 1e-6);
  removal.remove(1);
  EXPECT_EQ(removal.kept(), (List{0, 2}));
  const std::vector<double> repaired = {1, 0, 2.5};
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(removal.columns()[k], repaired[k], 1e-6);
}

// Tokens and a W_down of a layer with f = 150, more than one block of the factorisation.
struct Layer {
  static constexpr size_t kF = 150, kD = 5, kTokens = 400;
  explicit Layer(uint32_t seed = 1) {
    std::mt19937 random(seed);
    h = normal_floats(random, kTokens * kF);
    for (size_t t = 0; t < kTokens; ++t) {
      h[t * kF + 7] = h[t * kF + 3];  // always alike
      h[t * kF + 20] = 0;             // dead
      h[t * kF + 11] *= 0.01f;
    }
    w = normal_floats(random, kD * kF);
  }
  ChannelRemoval removal(ThreadPool& pool, double damping) {
    GramMatrix gram(int{kF}, select_kernels("auto"));
    gram.add(h.data(), int{kTokens}, kF, pool);
    return {gram, make_matrix(memory, Layout::Columns, int{kD}, int{kF}, 1, w), pool, damping};
  }
  // Squared error of `columns` : [f, d] over the tokens, in double.
  double error(std::span<const double> columns) const {
    double sum = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t j = 0; j < kD; ++j) {
        double difference = 0;
        for (size_t k = 0; k < kF; ++k)
          difference += double(h[t * kF + k]) * (double(w[j * kF + k]) - columns[k * kD + j]);
        sum += difference * difference;
      }
    }
    return sum;
  }
  std::vector<float> h, w;  // [tokens, f], [d, f]
  std::deque<AlignedBuffer> memory;
};

TEST(Repair, WhatIsKeptIsTheLeastSquaresSolution) {
  ThreadPool pool(2);
  Layer layer;
  constexpr double kDamping = 1e-9;  // two channels are alike: without any there is no inverse
  ChannelRemoval removal = layer.removal(pool, kDamping);
  for (const int count : {1, 9, 70}) removal.remove(count);
  ASSERT_EQ(removal.kept().size(), Layer::kF - 80);
  const double best = layer.error(removal.columns());

  std::vector<double> truncated(Layer::kF * Layer::kD);
  for (const int32_t k : removal.kept())
    for (size_t j = 0; j < Layer::kD; ++j)
      truncated[size_t(k) * Layer::kD + j] = double(layer.w[j * Layer::kF + size_t(k)]);
  EXPECT_LT(best, layer.error(truncated));
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {  // no step in any direction helps
    std::vector<double> other(removal.columns().begin(), removal.columns().end());
    for (const int32_t k : removal.kept())
      for (size_t j = 0; j < Layer::kD; ++j)
        other[size_t(k) * Layer::kD + j] += 1e-3 * double(normal_floats(random, 1)[0]);
    EXPECT_GT(layer.error(other), best);
  }
}

TEST(Repair, DeadChannelsGoFirstAndTwinsTakeOver) {
  ThreadPool pool(2);
  Layer layer;
  ChannelRemoval removal = layer.removal(pool, 1e-9);
  removal.remove(1);
  EXPECT_EQ(std::count(removal.kept().begin(), removal.kept().end(), 20), 0);
  // When one of two that are always alike goes, its weights move to the other.
  std::vector<double> before;
  const auto stays = [&](size_t k) { return std::count(removal.kept().begin(), removal.kept().end(), int32_t(k)) > 0; };
  while (stays(3) && stays(7)) {
    before.assign(removal.columns().begin(), removal.columns().end());
    removal.remove(1);
  }
  const size_t other = stays(3) ? 3 : 7;
  ASSERT_TRUE(stays(other));
  for (size_t j = 0; j < Layer::kD; ++j) {
    const double both = before[3 * Layer::kD + j] + before[7 * Layer::kD + j];
    EXPECT_NEAR(removal.columns()[other * Layer::kD + j], both, 1e-4);
  }
}

TEST(Repair, EverythingMayGo) {
  ThreadPool pool(1);
  Layer layer;
  ChannelRemoval removal = layer.removal(pool, ChannelRemoval::kDamping);
  removal.remove(0);
  EXPECT_EQ(removal.kept().size(), Layer::kF);
  removal.remove(1000);
  EXPECT_TRUE(removal.kept().empty());
  EXPECT_TRUE(std::all_of(removal.columns().begin(), removal.columns().end(), [](double v) { return v == 0; }));
}

TEST(Repair, ThreadsChangeNoBit) {
  std::vector<std::vector<double>> columns;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    Layer layer;
    ChannelRemoval removal = layer.removal(pool, ChannelRemoval::kDamping);
    for (int i = 0; i < 3; ++i) removal.remove(25);
    columns.emplace_back(removal.columns().begin(), removal.columns().end());
  }
  EXPECT_EQ(columns[0], columns[1]);
}

// Each layer's loss by level alone: the best is found by trying all.
LevelSearch over_table(const std::vector<std::vector<double>>& table, int lowest, std::vector<Levels>* seen = nullptr) {
  LevelSearch search{.offspring = 12, .generations = 30};
  search.loss = [=](int, std::span<const Levels> candidates) {
    std::vector<double> losses;
    for (const Levels& levels : candidates) {
      if (seen != nullptr) seen->push_back(levels);
      double sum = 0;
      for (size_t l = 0; l < levels.size(); ++l) sum += table[l][size_t(levels[l] - lowest)];
      losses.push_back(sum);
    }
    return losses;
  };
  return search;
}

const std::vector<std::vector<double>> kTable = {
    {5, 1, 0, 2, 9}, {0, 1, 2, 3, 4}, {9, 6, 3, 1, 0}, {2, 2, 2, 2, 2}};  // levels -2 .. 2

TEST(LevelSearch, FindsTheBestOfATable) {
  const std::vector<LevelRange> ranges(4, {-2, 2});
  double best = 1e9;
  for (int a = 0; a < 5; ++a)
    for (int b = 0; b < 5; ++b)
      for (int c = 0; c < 5; ++c)
        for (int d = 0; d < 5; ++d)
          if (a + b + c + d == 8)
            best = std::min(best,
                            kTable[0][size_t(a)] + kTable[1][size_t(b)] + kTable[2][size_t(c)] + kTable[3][size_t(d)]);
  std::vector<Levels> seen;
  LevelSearch search = over_table(kTable, -2, &seen);
  std::vector<double> losses;
  search.on_generation = [&](int, double loss, const Levels&) { losses.push_back(loss); };
  const Levels found = search.run(ranges);
  double loss = 0;
  for (size_t l = 0; l < 4; ++l) loss += kTable[l][size_t(found[l] + 2)];
  EXPECT_EQ(loss, best);
  EXPECT_TRUE(std::is_sorted(losses.rbegin(), losses.rend())) << "a parent was lost";
  for (const Levels& levels : seen) {
    EXPECT_EQ(std::accumulate(levels.begin(), levels.end(), 0), 0);
    for (const int level : levels) EXPECT_LE(std::abs(level), 2);
  }
  EXPECT_EQ(over_table(kTable, -2).run(ranges), found) << "same seed, same answer";
}

TEST(LevelSearch, OfEqualsTheParentStays) {
  const std::vector<std::vector<double>> flat(4, std::vector<double>(5, 1.0));
  EXPECT_EQ(over_table(flat, -2).run(std::vector<LevelRange>(4, {-2, 2})), Levels(4));
}

TEST(LevelSearch, EndsWhereNothingCanMove) {
  EXPECT_EQ(over_table(kTable, -2).run(std::vector<LevelRange>(4, {0, 0})), Levels(4));
  EXPECT_EQ(over_table(kTable, -2).run(std::vector<LevelRange>{{0, 1}, {0, 1}, {0, 0}, {0, 0}}), Levels(4));
  EXPECT_EQ(over_table({kTable[0]}, -2).run(std::vector<LevelRange>{{-2, 2}}), Levels(1));
}

}  // namespace
}  // namespace pop
