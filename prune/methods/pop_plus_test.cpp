// pop+ against pop-method section 8b, evaluated here from the weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "prune/allocation.h"
#include "prune/budget.h"
#include "prune/byte_ideal.h"
#include "prune/partition.h"
#include "prune/registry.h"
#include "prune/toy_model.h"

namespace pop {
namespace {

using List = std::vector<int32_t>;

// Its first form, one level at every site; how the default spreads it is budget_test's.
PruneOptions plus(double ratio) {
  PruneOptions options;
  options.method = "pop+";
  options.ratio = ratio;
  options.plus_rule = PlusRule::Prompt;
  return options;
}

// c_k of a site.
std::vector<float> column_norms_of(const LayerWeights& w, Site site) {
  const std::vector<Matrix> stacks[kSites] = {{w.q, w.k, w.v}, {w.o}, {w.ffns[0].gate_up}, {w.ffns[0].down}};
  const std::vector<Matrix>& stack = stacks[static_cast<int>(site)];
  std::vector<double> squares(static_cast<size_t>(stack.front().cols));
  std::vector<float> row(squares.size()), norms(squares.size());
  for (const Matrix& m : stack) {
    for (int r = 0; r < m.rows; ++r) {
      read_row(m, r, row.data());
      for (size_t c = 0; c < row.size(); ++c) squares[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    }
  }
  for (size_t c = 0; c < norms.size(); ++c) norms[c] = static_cast<float>(std::sqrt(squares[c]));
  return norms;
}

std::vector<float> scores_of(const std::vector<float>& norms, std::span<const float> x) {
  std::vector<float> scores(norms.size());
  for (size_t k = 0; k < scores.size(); ++k) scores[k] = std::fabs(x[k]) * norms[k];
  return scores;
}

// The v-quantile of all scores, slowly: the bin holding the n-th smallest score, and how far n goes into it.
double quantile(const std::vector<float>& all, double v) {
  std::array<int, 1024> counts{};
  for (const float s : all) ++counts[std::clamp(int(std::bit_cast<uint32_t>(s) >> 19) - 1520, 0, 1023)];
  const double n = std::floor(v * static_cast<double>(all.size()) + 0.5);
  if (n == 0) return 0;
  double below = 0;
  for (size_t b = 0; b < counts.size(); ++b) {
    if (below + counts[b] >= n) {
      // 16 bins per power of two, the first at 2^-32.
      const double octave = std::ldexp(1.0, static_cast<int>(b / 16) - 32);
      return octave * (1 + static_cast<double>(b % 16) / 16 + (n - below) / counts[b] / 16);
    }
    below += counts[b];
  }
  return 0;
}

TEST(PopPlus, ThresholdsAndColumnsAreTheFormulas) {
  const int prompt = 21;
  ThreadPool pool(2);
  for (const Layout layout : {Layout::Rows, Layout::Columns}) {
    const ToyModel model(2, 47, 130, 33, 9, 51, layout);
    const PolicyContext context = model.context(pool);
    SiteInputs inputs(model, prompt + 5, 52);
    for (const double ratio : {0.0, 0.2, 0.4, 0.95}) {
      const std::unique_ptr<Policy> policy = make_policy(plus(ratio), context);
      EXPECT_EQ(policy->plan().level, ratio);
      const auto state = policy->begin();
      inputs.prefill(*state, 0, prompt, 6);
      state->partition();
      for (int i = 0; i < 2 * kSites; ++i) {
        const Site site = Site(i % kSites);
        const int layer = i / kSites, width = model.width(site);
        const std::vector<float> norms = column_norms_of(context.layers[static_cast<size_t>(layer)], site);
        std::vector<float> all;
        for (int t = 1; t < prompt; ++t) {  // position 0 does not count
          const std::vector<float> s = scores_of(norms, inputs.at(site, layer, t));
          all.insert(all.end(), s.begin(), s.end());
        }
        const auto threshold = *state->threshold(site, layer);
        ASSERT_EQ(threshold.counted, all.size());
        ASSERT_NEAR(threshold.tau, quantile(all, ratio), 1e-6 * threshold.tau);
        for (int t = prompt; t < prompt + 5; ++t) {
          const std::vector<float> s = scores_of(norms, inputs.at(site, layer, t));
          List expected;
          for (int32_t k = 0; k < width; ++k) {
            if (!(s[static_cast<size_t>(k)] < threshold.tau)) expected.push_back(k);
          }
          const auto m = static_cast<size_t>(std::ceil((1 - ratio) * width / 8));
          const Selection chosen = state->select(site, layer, inputs.at(site, layer, t), t);
          ASSERT_GE(static_cast<size_t>(chosen.list.count), m);
          if (expected.size() >= m) {
            ASSERT_EQ(List(chosen.list.index, chosen.list.index + chosen.list.count), expected);
          }
        }
      }
    }
  }
}

TEST(PopPlus, AQuietTokenKeepsTheBestM) {
  const ToyModel model(1, 40, 64, 32, 8, 53);
  ThreadPool pool(1);
  const std::unique_ptr<Policy> policy = make_policy(plus(0.4), model.context(pool));
  SiteInputs inputs(model, 12, 54);
  const auto state = policy->begin();
  inputs.prefill(*state, 0, 11, 11);
  state->partition();
  const std::span<float> x = inputs.at(Site::Qkv, 0, 11);
  for (float& v : x) v *= 1e-6f;
  const Selection quiet = state->select(Site::Qkv, 0, x, 11);
  ASSERT_EQ(quiet.list.count, 3);  // ceil(0.6 * 40 / 8)
  std::vector<float> s = scores_of(column_norms_of(model.context(pool).layers[0], Site::Qkv), x);
  std::vector<float> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(s[static_cast<size_t>(quiet.list[i])]);
  std::sort(kept.rbegin(), kept.rend());
  std::sort(s.rbegin(), s.rend());
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), s.begin()));
}

TEST(PopPlus, PositionZeroCountsOnlyAlone) {
  const ToyModel model(1, 40, 64, 32, 8, 55);
  ThreadPool pool(1);
  const std::unique_ptr<Policy> policy = make_policy(plus(0.4), model.context(pool));
  SiteInputs inputs(model, 4, 56);
  for (float& v : inputs.at(Site::Down, 0, 0)) v *= 1000;  // an outlier
  const auto one = policy->begin(), split = policy->begin(), whole = policy->begin();
  inputs.prefill(*one, 0, 1, 1);
  one->partition();
  EXPECT_EQ(one->threshold(Site::Down, 0)->counted, 64u);
  EXPECT_GT(one->threshold(Site::Down, 0)->tau, 100);
  inputs.prefill(*split, 0, 1, 1);
  split->partition();  // an answer to the one token, then the prompt goes on
  inputs.prefill(*split, 1, 4, 1);
  split->partition();
  inputs.prefill(*whole, 0, 4, 4);
  whole->partition();
  EXPECT_EQ(whole->threshold(Site::Down, 0)->counted, 3u * 64);
  EXPECT_EQ(split->threshold(Site::Down, 0)->counted, 3u * 64);
  EXPECT_EQ(split->threshold(Site::Down, 0)->tau, whole->threshold(Site::Down, 0)->tau);
}

// The share on the prompt's own scores is within 0.005 of v when N >= 10,000.
TEST(PopPlus, RealisedShareOnThePrompt) {
  const ToyModel model(1, 250, 300, 250, 50, 57);
  ThreadPool pool(2);
  SiteInputs inputs(model, 60, 58);
  for (const double ratio : {0.2, 0.4, 0.8}) {
    const std::unique_ptr<Policy> policy = make_policy(plus(ratio), model.context(pool));
    const auto state = policy->begin();
    inputs.prefill(*state, 0, 60, 60);
    state->partition();
    for (int s = 0; s < kSites; ++s) {
      double kept = 0;
      for (int t = 1; t < 60; ++t) kept += state->select(Site(s), 0, inputs.at(Site(s), 0, t), t).list.count;
      EXPECT_NEAR(1 - kept / (59.0 * model.width(Site(s))), ratio, 0.005) << site_name(Site(s));
    }
  }
}

std::vector<LayerWeights> q4_1_shapes() {  // of the default model, without data
  const auto shape = [](int rows, int cols, int unit) {
    Matrix w;
    w.type = DType::Q4_1;
    w.rows = rows;
    w.cols = cols;
    w.unit = unit;
    return w;
  };
  return {{.q = shape(576, 576, 1),
           .k = shape(192, 576, 1),
           .v = shape(192, 576, 1),
           .o = shape(576, 576, 1),
           .ffns = {{.gate_up = shape(3072, 576, 2), .down = shape(576, 1536, 1)}}}};
}

TEST(PopPlus, MatchPlansTheSameBytes) {
  std::vector<LayerWeights> layers = q4_1_shapes();
  std::deque<AlignedBuffer> memory;
  for (Matrix* w :
       {&layers[0].q, &layers[0].k, &layers[0].v, &layers[0].o, &layers[0].ffns[0].gate_up, &layers[0].ffns[0].down}) {
    w->data = memory.emplace_back(matrix_bytes(*w)).data();
  }
  ThreadPool pool(1);
  PolicyContext context;
  context.layers = layers;
  context.ffns = ffns_of(layers);
  context.d = context.q_dim = 576;
  context.f = 1536;
  context.kv_dim = 192;
  context.kernels = &select_kernels("scalar");
  context.pool = &pool;
  // K = 1126 (717), R and C 1203 (794); of a block's 3,538,944 weights pop reads 884,736 + 1152 * 1203 + 576 * 1536 *
  // (0.2 + 0.8 * 1126/1536): a share of 0.83822 (at 0.4: 0.65182), so v = (1 - share) / 0.8.
  const auto level = [&](double ratio, const char* match) {
    PruneOptions options = plus(ratio);
    options.match = match;
    const PrunePlan plan = make_policy(options, context)->plan();
    EXPECT_EQ(plan.ratio, ratio);
    return plan.level;
  };
  EXPECT_NEAR(level(0.2, "pop"), 0.20223, 1e-5);
  EXPECT_NEAR(level(0.4, "pop"), 0.43522, 1e-5);
  EXPECT_EQ(level(0, "pop"), 0);
  const SiteLevels levels = spread_level(layers, level(0.2, "fixed"), PlusRule::Prompt);
  EXPECT_NEAR(planned_column_bytes(layers, levels), planned_row_bytes(layers, 0.2 * 4 / 3, 0), 1);
  EXPECT_GT(level(0.2, "fixed"), level(0.2, "pop"));
  EXPECT_EQ(level(0.2, "random"), level(0.2, "fixed"));
  EXPECT_LT(level(0.2, "full"), level(0.2, "pop"));
  EXPECT_THROW(level(0.2, "pop+"), Error);
  EXPECT_THROW(level(0.2, "nonsense"), Error);
  EXPECT_THROW(level(0.76, "pop"), Error);  // pop itself cannot
}

TEST(PopPlus, MatchOutOfReachNamesALargestRatioThatWorks) {
  const ToyModel model(1, 64, 1000, 4, 2, 59);  // nearly all of a block is FFN, so p -> 1 leaves less than 5 %
  ThreadPool pool(1);
  PruneOptions options = plus(0.99);
  options.match = "fixed";
  std::string message;
  try {
    make_policy(options, model.context(pool));
  } catch (const Error& e) {
    message = e.what();
  }
  const std::string before = "largest possible ratio is ";
  ASSERT_NE(message.find(before), std::string::npos) << message;
  options.ratio = std::stod(message.substr(message.find(before) + before.size()));
  const double level = make_policy(options, model.context(pool))->plan().level;
  EXPECT_LE(level, 0.95);
  EXPECT_GT(level, 0.948);
}

}  // namespace
}  // namespace pop
