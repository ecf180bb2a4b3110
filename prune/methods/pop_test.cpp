// pop, fixed, full and random against the formulas of pop-method, evaluated here in float64 from the weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "prune/partition.h"
#include "prune/registry.h"
#include "prune/toy_model.h"

namespace pop {
namespace {

using List = std::vector<int32_t>;

List list_of(const Selection& s) { return List(s.list.index, s.list.index + s.list.count); }

double aggregate(Norm norm, double sum, double term) {
  return norm == Norm::Max ? std::max(sum, term) : norm == Norm::One ? sum + term : sum + term * term;
}

// pop-method section 3 over the tokens [begin, end) of a layer.
std::vector<double> formula(Metric metric, Norm norm, const LayerWeights& w, SiteInputs& inputs, int layer, int begin,
                            int end) {
  const auto d = static_cast<size_t>(w.ffns[0].gate_up.cols), f = static_cast<size_t>(w.ffns[0].down.cols);
  const Site site = metric == Metric::Down ? Site::Down : Site::GateUp;
  std::vector<double> squares(metric == Metric::Down ? f : d);
  for (int t = begin; t < end; ++t) {
    const std::span<float> x = inputs.at(site, layer, t);
    for (size_t i = 0; i < x.size(); ++i) squares[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  std::vector<double> scores(f);
  std::vector<float> a(std::max(d, f)), b(d);
  if (metric == Metric::Down) {
    for (int j = 0; j < w.ffns[0].down.rows; ++j) {
      read_row(w.ffns[0].down, j, a.data());
      for (size_t i = 0; i < f; ++i) scores[i] = aggregate(norm, scores[i], std::abs(static_cast<double>(a[i])));
    }
    for (size_t i = 0; i < f; ++i) {
      scores[i] = std::sqrt(squares[i]) * (norm == Norm::Two ? std::sqrt(scores[i]) : scores[i]);
    }
    return scores;
  }
  for (size_t i = 0; i < f; ++i) {
    read_row(w.ffns[0].gate_up, static_cast<int>(2 * i), a.data());
    read_row(w.ffns[0].gate_up, static_cast<int>(2 * i + 1), b.data());
    for (size_t k = 0; k < d; ++k) {
      const double weight = std::abs(static_cast<double>(a[k])) + std::abs(static_cast<double>(b[k]));
      scores[i] = aggregate(norm, scores[i], weight * std::sqrt(squares[k]));
    }
    if (norm == Norm::Two) scores[i] = std::sqrt(scores[i]);
  }
  return scores;
}

// The k of `among` with the greatest scores. Random weights leave no ties.
List best(const std::vector<double>& scores, List among, int k) {
  std::sort(among.begin(), among.end(),
            [&](int32_t a, int32_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  among.resize(static_cast<size_t>(k));
  std::sort(among.begin(), among.end());
  return among;
}

List everything(int f) {
  List all(static_cast<size_t>(f));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

List joined(List a, const List& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  return a;
}

struct Case {
  PruneOptions options;
  Metric metric, decode_metric;
  Norm norm, decode_norm;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* method : {"pop", "fixed", "full"}) {
    for (const double p : {0.2667, 0.5333}) {
      PruneOptions o;
      o.method = method;
      o.ffn_sparsity = p;
      all.push_back({o, Metric::Down, Metric::Down, Norm::Two, Norm::Two});
      o.metric = Metric::GateUp;
      all.push_back({o, Metric::GateUp, Metric::GateUp, Norm::Max, Norm::Max});
      for (const Norm norm : {Norm::One, Norm::Two, Norm::Max}) {
        o.norm = norm;
        all.push_back({o, Metric::GateUp, Metric::GateUp, norm, norm});
        o.metric = Metric::Down;
        all.push_back({o, Metric::Down, Metric::Down, norm, norm});
        o.metric = Metric::GateUp;
      }
      if (std::string_view(method) == "fixed") continue;
      o.norm.reset();
      o.decode_metric = Metric::Down;
      all.push_back({o, Metric::GateUp, Metric::Down, Norm::Max, Norm::Two});
      o.metric.reset();
      o.decode_metric = Metric::GateUp;
      all.push_back({o, Metric::Down, Metric::GateUp, Norm::Two, Norm::Max});
    }
  }
  return all;
}

TEST(Pop, PartitionAndChoiceAreTheFormulas) {
  const int prompt = 17, f = 151;
  ThreadPool pool(2);
  for (const Layout layout : {Layout::Rows, Layout::Columns}) {
    const ToyModel model(2, 24, f, 16, 8, 41, layout);
    const PolicyContext context = model.context(pool);
    SiteInputs inputs(model, prompt + 4, 42);
    for (Case c : cases()) {
      for (const double gamma : {0.1, 0.3}) {
        if (c.options.method == "pop") c.options.gamma = gamma;
        const std::unique_ptr<Policy> policy = make_policy(c.options, context);
        const PartitionSizes sizes = partition_sizes(f, policy->plan().ffn_sparsity, policy->plan().gamma);
        const auto state = policy->begin();
        inputs.prefill(*state, 0, prompt, 5);
        state->partition();
        for (int layer = 0; layer < 2; ++layer) {
          const LayerWeights& w = context.layers[static_cast<size_t>(layer)];
          const std::vector<double> scores = formula(c.metric, c.norm, w, inputs, layer, 0, prompt);
          const Partition& part = *state->ffn_partition(layer);
          for (size_t i = 0; i < scores.size(); ++i) ASSERT_NEAR(part.scores[i], scores[i], 1e-5 * scores[i]);
          const List reachable = best(scores, everything(f), sizes.retained + sizes.candidate);
          ASSERT_EQ(part.retained, best(scores, everything(f), sizes.retained));
          ASSERT_EQ(joined(part.retained, part.candidate), reachable);
          for (int t = prompt; t < prompt + 4; ++t) {
            ASSERT_EQ(list_of(state->select(Site::GateUp, layer, inputs.at(Site::GateUp, layer, t), t)), reachable);
            const std::vector<double> token = formula(c.decode_metric, c.decode_norm, w, inputs, layer, t, t + 1);
            ASSERT_EQ(list_of(state->select(Site::Down, layer, inputs.at(Site::Down, layer, t), t)),
                      joined(part.retained, best(token, part.candidate, sizes.kept - sizes.retained)));
          }
        }
      }
    }
  }
}

TEST(Pop, OnlySelectedChannelsOfHAreRead) {  // h is not computed elsewhere
  const ToyModel model(1, 24, 151, 16, 8, 43);
  ThreadPool pool(1);
  PruneOptions options;
  options.method = "pop";
  options.gamma = 0.5;
  const std::unique_ptr<Policy> policy = make_policy(options, model.context(pool));
  SiteInputs inputs(model, 10, 44);
  const auto state = policy->begin();
  inputs.prefill(*state, 0, 9, 9);
  state->partition();
  const std::span<float> h = inputs.at(Site::Down, 0, 9);
  state->select(Site::GateUp, 0, inputs.at(Site::GateUp, 0, 9), 9);
  const List before = list_of(state->select(Site::Down, 0, h, 9));
  for (const int32_t i : state->ffn_partition(0)->pruned) h[static_cast<size_t>(i)] = std::nanf("");
  EXPECT_EQ(list_of(state->select(Site::Down, 0, h, 9)), before);
}

TEST(Pop, PrunedPrefillUsesTheKBestByGateUp) {
  const int f = 151, prompt = 9;
  const ToyModel model(2, 24, f, 16, 8, 45);
  ThreadPool pool(2);
  const PolicyContext context = model.context(pool);
  SiteInputs inputs(model, prompt, 46);
  for (const char* method : {"pop", "fixed", "full"}) {
    PruneOptions options;
    options.method = method;
    const std::unique_ptr<Policy> dense_prefill = make_policy(options, context);
    options.prefill_pruned = true;
    const std::unique_ptr<Policy> policy = make_policy(options, context);
    EXPECT_EQ(policy->plan().prefill, "pruned");
    EXPECT_EQ(policy->plan().metric, "gate-up");
    const int kept = kept_channels(f, policy->plan().ffn_sparsity);
    const auto state = policy->begin(), dense = dense_prefill->begin();
    EXPECT_THROW(state->select_prefill(Site::GateUp, 0), std::exception);
    inputs.prefill(*state, 0, prompt, 4);
    for (int layer = 0; layer < 2; ++layer) {
      const LayerWeights& w = context.layers[static_cast<size_t>(layer)];
      const List expected = best(formula(Metric::GateUp, Norm::Max, w, inputs, layer, 0, prompt), everything(f), kept);
      const Selection up = state->select_prefill(Site::GateUp, layer), down = state->select_prefill(Site::Down, layer);
      EXPECT_EQ(up.kind, Selection::Kind::Rows);
      EXPECT_EQ(list_of(up), expected);
      EXPECT_EQ(down.kind, Selection::Kind::Columns);
      EXPECT_TRUE(down.zero_rest);
      EXPECT_EQ(list_of(down), expected);
      EXPECT_EQ(state->select_prefill(Site::Qkv, layer).kind, Selection::Kind::Full);
      EXPECT_EQ(dense->select_prefill(Site::GateUp, layer).kind, Selection::Kind::Full);
    }
    state->partition();  // and decode goes on from the same statistics
    EXPECT_EQ(list_of(state->select(Site::Down, 1, inputs.at(Site::Down, 1, 0), prompt)).size(),
              static_cast<size_t>(kept));
  }
}

TEST(Pop, PlansSayWhatTheOptionsCameTo) {
  const ToyModel model(2, 24, 48, 24, 8, 47);  // A = 24 * (24 + 8 + 8 + 24) = 1536, F = 3 * 24 * 48 = 3456
  ThreadPool pool(1);
  PruneOptions options;
  options.method = "pop";
  PrunePlan plan = make_policy(options, model.context(pool))->plan();
  EXPECT_EQ(plan.method, "pop");
  EXPECT_EQ(plan.ratio, 0.2);
  EXPECT_NEAR(plan.ffn_sparsity, 0.2 * 4992 / 3456, 1e-12);
  EXPECT_EQ(plan.gamma, 0.1);
  EXPECT_EQ(plan.metric, "down");
  EXPECT_EQ(plan.decode_metric, "down");
  EXPECT_EQ(plan.norm, "2");
  EXPECT_EQ(plan.prefill, "dense");
  options.decode_metric = Metric::GateUp;
  options.ffn_sparsity = 0.5;
  plan = make_policy(options, model.context(pool))->plan();
  EXPECT_NEAR(plan.ratio, 0.5 * 3456 / 4992, 1e-12);
  EXPECT_EQ(plan.decode_metric, "gate-up");
  EXPECT_EQ(plan.norm, "2, max");
  options = {};
  options.method = "fixed";
  plan = make_policy(options, model.context(pool))->plan();
  EXPECT_EQ(plan.gamma, 0);
  EXPECT_EQ(plan.decode_metric, "");
}

class RandomMasks : public ::testing::Test {
 protected:
  List mask(uint64_t seed, RandomEvery every, int layer, int position) {
    PruneOptions options;
    options.method = "random";
    options.ffn_sparsity = 0.3;
    options.seed = seed;
    options.random_every = every;
    const auto policy = make_policy(options, model_.context(pool_));
    const auto state = policy->begin();
    state->partition();
    return list_of(state->select(Site::GateUp, layer, {}, position));
  }
  ToyModel model_{2, 8, 100, 8, 8, 48};
  ThreadPool pool_{1};
};

TEST_F(RandomMasks, RestOnSeedLayerAndPositionAlone) {
  const List base = mask(1, RandomEvery::Sequence, 0, 5);
  EXPECT_EQ(base.size(), 70u);
  EXPECT_EQ(mask(1, RandomEvery::Sequence, 0, 5), base);
  EXPECT_EQ(mask(1, RandomEvery::Sequence, 0, 6), base);
  EXPECT_NE(mask(2, RandomEvery::Sequence, 0, 5), base);
  EXPECT_NE(mask(1, RandomEvery::Sequence, 1, 5), base);
  const List token = mask(1, RandomEvery::Token, 0, 5);
  EXPECT_EQ(mask(1, RandomEvery::Token, 0, 5), token);
  EXPECT_NE(mask(1, RandomEvery::Token, 0, 6), token);
  EXPECT_NE(mask(2, RandomEvery::Token, 0, 5), token);
  EXPECT_NE(mask(1, RandomEvery::Token, 1, 5), token);
}

TEST_F(RandomMasks, EveryChannelIsAsLikely) {
  PruneOptions options;
  options.method = "random";
  options.ffn_sparsity = 0.3;
  options.random_every = RandomEvery::Token;
  const auto policy = make_policy(options, model_.context(pool_));
  const auto state = policy->begin();
  std::vector<int> kept(100);
  for (int position = 0; position < 2000; ++position) {
    for (const int32_t i : list_of(state->select(Site::Down, 1, {}, position))) ++kept[static_cast<size_t>(i)];
  }
  for (const int count : kept) EXPECT_NEAR(count, 1400, 103);  // 5 deviations of sqrt(2000 * 0.7 * 0.3) = 20.5
}

}  // namespace
}  // namespace pop
