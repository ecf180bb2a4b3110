// The baselines on examples worked by hand; python/reference/baselines_reference.py has the same formulas in NumPy and prints
// these numbers.
#include <gtest/gtest.h>

#include "base/error.h"
#include "prune/allocation.h"
#include "prune/calibration.h"
#include "prune/registry.h"
#include "prune/toy_model.h"

namespace pop {
namespace {

using List = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;

// Layers with d = 2 and W_down as given : [2, f], f at most 4; the attention matrices are ones.
class HandMade {
 public:
  explicit HandMade(int layers = 1, const std::vector<float>& down = {1, -2, 0, 2, 1, 3}) {
    f_ = static_cast<int>(down.size()) / 2;
    for (int i = 0; i < layers; ++i) add(down);
  }
  // One more FFN in the first layer; both are experts, each token goes through one.
  void add_expert(const std::vector<float>& down) {
    add(down);
    std::vector<FfnWeights>& ffns = layers_[0].ffns;
    ffns.push_back(layers_.back().ffns[0]);
    layers_.pop_back();
    for (size_t e = 0; e < ffns.size(); ++e) ffns[e].expert = static_cast<int>(e), ffns[e].use = 0.5;
  }
  std::unique_ptr<Policy> policy(PruneOptions options) {
    return make_policy(options, {.layers = layers_,
                                 .ffns = ffns_of(layers_),
                                 .d = 2,
                                 .f = f_,
                                 .q_dim = 2,
                                 .kv_dim = 2,
                                 .kernels = &select_kernels("scalar"),
                                 .pool = &pool_});
  }

 private:
  void add(const std::vector<float>& down) {
    const std::vector<float> ones(4, 1.f);
    // pairs of gate and up rows: gate (1 0 / 2 -1 / 0 3 / 1 1), up (0 1 / 1 1 / -1 2 / 1 1)
    const std::vector<float> pairs = {1, 0, 0, 1, 2, -1, 1, 1, 0, 3, -1, 2, 1, 1, 1, 1};
    const auto square = [&] { return make_matrix(memory_, Layout::Rows, 2, 2, 1, ones); };
    layers_.push_back({.q = square(),
                       .k = square(),
                       .v = square(),
                       .o = square(),
                       .ffns = {{.gate_up = make_matrix(memory_, Layout::Rows, 2 * f_, 2, 2, pairs),
                                 .down = make_matrix(memory_, Layout::Columns, 2, f_, 1, down)}}});
  }

  int f_ = 0;
  ThreadPool pool_{2};
  std::deque<AlignedBuffer> memory_;
  std::vector<LayerWeights> layers_;
};

PruneOptions one_third(const char* method) {
  PruneOptions options;
  options.method = method;
  options.ffn_sparsity = 1 / 3.0;
  return options;
}

// Of the two sequences by hand in prune/calibration_test.cpp: h = (1 0 2), (3 0 0) and (1 2 0), (1 0 2).
std::shared_ptr<Calibration> statistics() {
  auto c = std::make_shared<Calibration>();
  c->sequences = 2;
  c->layers.emplace_back();
  CalibrationFfn& ffn = c->ffns.emplace_back();
  ffn.sequences = 2, ffn.tokens = 4;
  ffn.squares = {12, 4, 8};
  ffn.mean = {1.5, 0.5, 1};
  ffn.fluctuation = {0.25, 1.25, 1};
  return c;
}

List list_of(const Selection& s) { return List(s.list.index, s.list.index + s.list.count); }

void observe(PolicyState& state, Site site, const Rows& x, int first_pos = 0) {
  std::vector<float> flat;
  for (const std::vector<float>& row : x) flat.insert(flat.end(), row.begin(), row.end());
  state.observe(site, 0, flat.data(), static_cast<int>(x.size()), x.front().size(), first_pos);
}

void expect_scores(const PolicyState& state, const std::vector<double>& expected, double tolerance = 5e-5) {
  const Partition* mask = state.ffn_partition(0);
  ASSERT_NE(mask, nullptr);
  ASSERT_EQ(mask->scores.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(mask->scores[i], expected[i], tolerance) << i;
}

TEST(Baselines, MagnitudeOfAChannel) {
  HandMade model;
  const auto policy = model.policy(one_third("magnitude"));
  const auto state = policy->begin();
  // 1 + 1 + (1 + 4), 5 + 2 + (4 + 1), 9 + 5 + 9
  expect_scores(*state, {2.6458, 3.4641, 4.7958});
  EXPECT_EQ(list_of(state->select(Site::GateUp, 0, {}, 0)), (List{1, 2}));
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 0)), (List{1, 2}));
}

// a = (6 2 4) and columns of 1-norm (3 3 3); the factors sqrt(sequences) and d are left out.
TEST(Baselines, WandaSpScoresAndRemovesOne) {
  HandMade model;
  PruneOptions options = one_third("wanda_sp");
  options.calibration = statistics();
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  const double scale = 2 * std::sqrt(2.0);
  expect_scores(*state, {scale * 3.674235, scale * 2.121320, scale * 3.0});
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 0)), (List{0, 2}));
}

// Scores (1.25 6.25 9): flap removes channel 0 where Wanda-sp removes 1, and gives its mean back.
TEST(Baselines, FlapRemovesAnotherAndAddsItsMean) {
  HandMade model;
  PruneOptions options = one_third("flap");
  options.calibration = statistics();
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  expect_scores(*state, {-1.08168, 0.19089, 0.89080});  // mean 5.5, deviation 3.929
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 0)), (List{1, 2}));
  const std::span<const float> bias = state->ffn_bias(0);
  EXPECT_EQ(std::vector<float>(bias.begin(), bias.end()), (std::vector<float>{1.5f, 3.0f}));
  options.ffn_sparsity = 0;
  EXPECT_TRUE(model.policy(options)->begin()->ffn_bias(0).empty());
}

// Layers with scores (1 2 3) and (10 20 60): z (-1 0 1) and (-0.7559 -0.3780 1.1339), three of six go.
TEST(Baselines, FlapRanksOverAllLayers) {
  HandMade model(2, {1, 1, 1, 0, 0, 0});
  auto c = statistics();
  c->ffns.push_back(c->ffns[0]);
  c->ffns[0].fluctuation = {1, 2, 3};
  c->ffns[1].fluctuation = {10, 20, 60};
  PruneOptions options = one_third("flap");
  options.ffn_sparsity = 0.5;
  options.calibration = c;
  const auto state_of = [&] { return model.policy(options); };
  const auto policy = state_of();
  const auto state = policy->begin();
  expect_scores(*state, {-1, 0, 1});
  EXPECT_EQ(state->ffn_partition(0)->pruned, List{0});
  EXPECT_EQ(state->ffn_partition(1)->pruned, (List{0, 1}));
  EXPECT_NEAR(state->ffn_partition(1)->scores[0], -0.7559, 5e-5);
  c->ffns[1].fluctuation = {7, 7, 7};  // nothing varies: all z are 0
  const auto flat = state_of();
  EXPECT_EQ(flat->begin()->ffn_partition(1)->scores, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(flat->begin()->ffn_partition(1)->pruned, (List{1, 2}));  // and of equals the first stay
  c->ffns[1].fluctuation = {1e308, 1e308, 1};
  EXPECT_THROW(state_of(), Error);
}

// Two experts of one layer: the one that the text sent nothing through is scored by its columns alone (1-norms 4 2 3), flap
// leaves it whole before it takes of the other (z of all equal scores is 0), and gives no mean back.
TEST(Baselines, ExpertsWithAndWithoutTokens) {
  HandMade model(1, {1, -2, 0, 2, 1, 3});
  model.add_expert({3, -1, 0, 1, 1, 3});
  auto c = statistics();
  CalibrationFfn& unseen = c->ffns.emplace_back();
  unseen.squares = unseen.mean = unseen.fluctuation = {0, 0, 0};
  PruneOptions options = one_third("wanda_sp");
  options.calibration = c;
  const auto wanda = model.policy(options);
  EXPECT_EQ(wanda->begin()->ffn_partition(0)->retained, (List{0, 2}));
  EXPECT_EQ(wanda->begin()->ffn_partition(1)->scores, (std::vector<float>{4, 2, 3}));
  EXPECT_EQ(wanda->begin()->ffn_partition(1)->retained, (List{0, 2}));
  options.method = "flap";
  options.ffn_sparsity = 1 / 6.0;
  const auto flap = model.policy(options);
  EXPECT_EQ(flap->begin()->ffn_partition(0)->pruned, List{0});
  EXPECT_TRUE(flap->begin()->ffn_partition(1)->pruned.empty());
  EXPECT_TRUE(flap->begin()->ffn_bias(1).empty());
  options.ffn_sparsity = 1 / 3.0;  // two of six: after -1.08 come the zeros, the last of which goes
  EXPECT_EQ(model.policy(options)->begin()->ffn_partition(1)->pruned, List{2});
}

// If h never changes, W_down h is the kept channels' part and the bias, whatever the mask.
TEST(Baselines, FlapsBiasIsExactForAConstant) {
  const ToyModel model(1, 11, 23, 4, 2, 15);
  ThreadPool pool(1);
  SiteInputs inputs(model, 1, 16);
  const std::span<float> h = inputs.at(Site::Down, 0, 0);
  CalibrationCollector collector(model.calibration_model(), 0, pool);
  for (int n = 0; n < 3; ++n) {
    for (int t = 0; t < 4; ++t) collector.observe(Site::Down, 0, h.data(), 1, h.size(), t);
    collector.partition();
  }
  PruneOptions options = one_third("flap");
  options.calibration = std::make_shared<Calibration>(collector.result(""));
  const PolicyContext context = model.context(pool);
  const auto policy = make_policy(options, context);
  const auto state = policy->begin();
  EXPECT_EQ(state->ffn_partition(0)->pruned.size(), 8u);
  std::vector<float> row(h.size());
  for (int j = 0; j < 11; ++j) {
    read_row(context.ffns[0]->down, j, row.data());
    double dense = 0, pruned = static_cast<double>(state->ffn_bias(0)[static_cast<size_t>(j)]);
    for (size_t k = 0; k < h.size(); ++k) dense += static_cast<double>(row[k] * h[k]);
    for (const int32_t k : state->ffn_partition(0)->retained)
      pruned += static_cast<double>(row[static_cast<size_t>(k)] * h[static_cast<size_t>(k)]);
    EXPECT_NEAR(pruned, dense, 1e-4);
  }
}

// The mask of a task's prompt is the one that `fixed` makes of that prompt.
TEST(Baselines, TaskFixedIsFixedOnTheTasksPrompt) {
  const ToyModel model(2, 11, 57, 4, 2, 17);
  ThreadPool pool(2);
  SiteInputs inputs(model, 9, 18);
  CalibrationCollector collector(model.calibration_model(), 0, pool);
  inputs.prefill(collector, 0, 9, 4);
  collector.partition();
  PruneOptions options = one_third("task-fixed");
  options.calibration = std::make_shared<Calibration>(collector.result(""));
  const auto task = make_policy(options, model.context(pool)),
             fixed = make_policy(one_third("fixed"), model.context(pool));
  const auto task_state = task->begin(), fixed_state = fixed->begin();
  inputs.prefill(*fixed_state, 0, 9, 9);
  fixed_state->partition();
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(task_state->ffn_partition(layer)->retained, fixed_state->ffn_partition(layer)->retained);
    EXPECT_EQ(task_state->ffn_partition(layer)->scores, fixed_state->ffn_partition(layer)->scores);
  }
}

// Squares over their token's sum: (0.2 0 0.8), (1 0 0), (0 1 0). Not normalised, channel 1 would go and channel 2 stay.
TEST(Baselines, GriffinCountsEveryTokenAlike) {
  HandMade model;
  const auto policy = model.policy(one_third("griffin"));
  const auto state = policy->begin();
  observe(*state, Site::Down, {{1, 0, 2}, {3, 0, 0}});
  observe(*state, Site::Down, {{0, 1, 0}, {0, 0, 0}}, 2);  // a token without activation counts nothing
  state->partition();
  expect_scores(*state, {1.0954, 1.0, 0.8944});
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 4)), (List{0, 1}));
}

TEST(Baselines, WinaKeepsTheBestOfEachToken) {
  HandMade model;
  PruneOptions options;
  options.method = "wina";
  options.ratio = 1 / 3.0;
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  const std::vector<float> h = {3, -2, 1}, other = {0.1f, -2, 1};
  // |h| times the column norms (sqrt 5, sqrt 5, 3) is (6.7082 4.4721 3), and (0.2236 4.4721 3)
  EXPECT_EQ(list_of(state->select(Site::Down, 0, h, 0)), (List{0, 1}));
  EXPECT_EQ(list_of(state->select(Site::Down, 0, other, 1)), (List{1, 2}));
  // gate and up stacked: column norms sqrt 7 and 4
  options.ratio = 0.5;
  const auto half = model.policy(options);
  EXPECT_EQ(list_of(half->begin()->select(Site::GateUp, 0, std::vector<float>{1, -1}, 0)), List{1});
  EXPECT_EQ(list_of(half->begin()->select(Site::GateUp, 0, std::vector<float>{2, -1}, 0)), List{0});
}

// e = [[1 4], [1 0]] and history [[1 0], [3 4]] fuse to [[1 4], [2.5 4]], so c = (3.5 8); the columns of [[1 2], [2 0]] give
// sqrt(sum of fourth powers) = (sqrt 17, 4).
TEST(Baselines, ProbeFusesWithItsHistory) {
  HandMade model(1, {1, 2, 2, 0});
  PruneOptions options;
  options.method = "probe";
  options.ffn_sparsity = 0.5;
  auto c = std::make_shared<Calibration>();
  c->sequences = 2;
  c->positions = 2;
  c->ffns.emplace_back().history = {2, 0, 6, 8};
  options.calibration = c;
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  observe(*state, Site::Down, {{1, 2}, {1, 0}});
  state->partition();
  expect_scores(*state, {14.431, 32.0}, 1e-3);
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 2)), List{1});
  options.calibration = nullptr;  // no history: c = (2 4)
  const auto alone = model.policy(options);
  const auto other = alone->begin();
  observe(*other, Site::Down, {{1, 2}, {1, 0}});
  other->partition();
  expect_scores(*other, {2 * std::sqrt(17.0), 16}, 1e-4);
}

// Residuals of norm (2.236 5 4.472 3): positions 1 and 2, then the first of them is overwritten by position 0. Channel t is
// what only token t uses.
TEST(Baselines, ProbeOverwritesItsFirstPositionByTheFirstToken) {
  HandMade model(1, {1, 1, 1, 1, 0, 0, 0, 0});
  PruneOptions options;
  options.method = "probe";
  options.ffn_sparsity = 0.5;
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  const std::vector<float> residuals = {1, 2, 5, 0, 2, 4, 0, 3};
  state->observe_residual(0, residuals.data(), 3, 2, 0);
  state->observe_residual(0, residuals.data() + 6, 1, 2, 3);
  observe(*state, Site::Down, {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}});
  state->partition();
  expect_scores(*state, {1, 0, 1, 0});
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 4)), (List{0, 2}));
  const auto one = policy->begin();  // a prompt of one token has one position
  one->observe_residual(0, residuals.data(), 1, 2, 0);
  observe(*one, Site::Down, {{0, 0, 3, 1}});
  one->partition();
  expect_scores(*one, {0, 0, 9, 1});
}

// Three of thirty layers are spared; the others lose p * 30/27 each: 0.2667 becomes 0.2963 (design/baselines.md 8.5).
TEST(Baselines, ProbeSparesTheFirstLayers) {
  const ToyModel model(30, 2, 1536, 2, 1, 7);
  ThreadPool pool(2);
  PruneOptions options;
  options.method = "probe";
  options.ffn_sparsity = 4 / 15.0;
  const auto policy = make_policy(options, model.context(pool));
  const auto state = policy->begin();
  SiteInputs inputs(model, 2, 8);
  inputs.prefill(*state, 0, 2, 2);
  state->partition();
  for (int layer = 0; layer < 30; ++layer) {
    EXPECT_EQ(state->ffn_partition(layer)->pruned.size(), layer < 3 ? 0u : 455u) << layer;
    EXPECT_EQ(state->reachable(Site::GateUp, layer).kind, Selection::Kind::Rows);
  }
  options.ffn_sparsity = 0.95;
  EXPECT_THROW(make_policy(options, model.context(pool)), Error);
}

// Twelve inputs: nine in the bin from 1 on, which is 1/16 wide, three at 4. v = 0.5 is six of nine into the first.
TEST(Baselines, TealSkipsWhatIsBelowTheQuantile) {
  HandMade model;
  PruneOptions options;
  options.method = "teal";
  options.ratio = 0.5;
  auto c = statistics();
  for (ScoreHistogram& inputs : c->layers[0].inputs) {
    inputs.add(std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4});
  }
  options.calibration = c;
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  const float tau = 1 + 1 / 16.0f * 6 / 9;
  EXPECT_FLOAT_EQ(state->threshold(Site::Down, 0)->tau, tau);
  EXPECT_EQ(list_of(state->select(Site::Down, 0, std::vector<float>{tau, -3, 1}, 0)), (List{0, 1}));
  EXPECT_EQ(list_of(state->select(Site::Down, 0, std::vector<float>{1, -1, 0}, 0)), List{});  // nothing is the least
}

TEST(Baselines, CatsThresholdsTheGate) {
  HandMade model;
  PruneOptions options = one_third("cats");
  auto c = statistics();
  c->layers[0].gates.add(std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4});
  options.calibration = c;
  const auto policy = model.policy(options);
  const auto state = policy->begin();
  EXPECT_DOUBLE_EQ(policy->plan().level, 0.5);  // a third of the FFN: half of up and down
  const float tau = 1 + 1 / 16.0f * 6 / 9;
  EXPECT_FLOAT_EQ(state->threshold(Site::GateUp, 0)->tau, tau);
  EXPECT_EQ(list_of(state->select(Site::GateUp, 0, std::vector<float>{tau, 1, -2}, 0)), (List{0, 2}));
  EXPECT_EQ(list_of(state->select(Site::Down, 0, {}, 0)), (List{0, 2}));
  options.ffn_sparsity = 0.7;
  EXPECT_THROW(model.policy(options), Error);
}

// Down is raised twice, then o; sites of equal share rise four times as much as the block.
TEST(Allocation, LevelsAreAPointOfThePath) {
  const SiteLevels shares = {0.25, 0.25, 0.25, 0.25};
  const std::vector<uint8_t> path = {3, 3, 1};
  const auto levels = [&](double v) { return site_levels(path, shares, v); };
  EXPECT_EQ(site_levels({}, shares, 0.3), (SiteLevels{0.3, 0.3, 0.3, 0.3}));
  EXPECT_NEAR(levels(0.03)[3], 0.12, 1e-12);
  EXPECT_EQ(levels(0.03)[1], 0);
  EXPECT_NEAR(levels(0.05)[3], 0.16, 1e-12);
  EXPECT_NEAR(levels(0.05)[1], 0.04, 1e-12);
  for (const double v : {0.06, 0.2, 0.6, 0.94}) {  // what is beyond the path is spread; the mean stays v
    const auto all = levels(v);
    EXPECT_NEAR((all[0] + all[1] + all[2] + all[3]) / 4, v, 1e-9);
    for (const double level : all) EXPECT_LE(level, kMaxLevel + 1e-9);
    EXPECT_GE(all[3], all[0]);
  }
}

// --match pop: K + (2/3)(|R| + |C| - K). f = 1536, r = 0.2 of SmolLM2's blocks: K 1126, |R| + |C| 1203, hence 1177.
TEST(Baselines, MatchIsEqualWeightsPerToken) {
  const ToyModel model(1, 8, 1536, 2, 1, 7);
  ThreadPool pool(1);
  PruneOptions options;
  options.method = "magnitude";
  options.ffn_sparsity = 4 / 15.0;
  EXPECT_EQ(make_policy(options, model.context(pool))->begin()->ffn_partition(0)->retained.size(), 1126u);
  options.match = "pop";
  const auto policy = make_policy(options, model.context(pool));
  EXPECT_EQ(policy->begin()->ffn_partition(0)->retained.size(), 1177u);
  EXPECT_NEAR(policy->plan().ffn_sparsity, 359 / 1536.0, 1e-12);
  options.match = "fixed";
  EXPECT_EQ(make_policy(options, model.context(pool))->begin()->ffn_partition(0)->retained.size(), 1126u);
}

// tyr by hand, f = 4: channels 1 and 3 stay, with the columns (2 -1) and (4 0.5).
TEST(Tyr, UsesTheFilesColumns) {
  HandMade model(1, {1, -2, 0, 7, 2, 1, 3, 7});
  auto calibration = std::make_shared<Calibration>();
  calibration->ffns.resize(1);
  calibration->repaired = RepairedModel{
      .ffn_sparsity = 0.5, .search = "by hand", .ffns = {{.kept = {1, 3}, .down = {0x4000, 0x4080, 0xbf80, 0x3f00}}}};
  PruneOptions options;
  options.method = "tyr";
  options.calibration = calibration;
  const auto policy = model.policy(options);
  EXPECT_EQ(policy->plan().ffn_sparsity, 0.5);
  const auto state = policy->begin();
  state->partition();
  const std::vector<float> x(4, 1.f);
  const Selection chosen = state->select(Site::Down, 0, x, 0);
  EXPECT_EQ(List(chosen.list.index, chosen.list.index + chosen.list.count), (List{1, 3}));
  const Matrix* const down = state->repaired_down(0);
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->layout, Layout::Columns);
  const std::vector<std::vector<float>> expected = {{2, 4}, {-1, 0.5f}};
  for (int j = 0; j < 2; ++j) {
    std::vector<float> row(4);
    read_row(*down, j, row.data());
    EXPECT_EQ((std::vector<float>{row[1], row[3]}), expected[size_t(j)]);
  }
  calibration->repaired->ffns[0].down[0] = 0x7f00;  // 1.7e38, in float32 and bfloat16 only
  EXPECT_NO_THROW(model.policy(options));
  calibration->repaired.reset();
  EXPECT_THROW(model.policy(options), Error);
}

// A file may say what the type of the model cannot hold: 1.7e38 in float16.
TEST(Tyr, RefusesWhatTheTypeCannotHold) {
  const ToyModel model(1, 4, 12, 4, 2, 5);
  ThreadPool pool(1);
  const PolicyContext context = model.context(pool);
  std::vector<LayerWeights> halves(context.layers.begin(), context.layers.end());
  halves[0].ffns[0].down.type = DType::F16;
  auto calibration = std::make_shared<Calibration>(*toy_repaired(model, 6));
  PruneOptions options;
  options.method = "tyr";
  options.calibration = calibration;
  PolicyContext other = context;
  other.layers = halves;
  other.ffns = ffns_of(halves);
  EXPECT_NO_THROW(make_policy(options, other));
  calibration->repaired->ffns[0].down[3] = 0x7f00;
  try {
    make_policy(options, other);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("FFN 0: F16 holds weights below 65504, found 1.7"), std::string::npos)
        << e.what();
  }
  options.repaired = RepairedAs::BF16;
  EXPECT_NO_THROW(make_policy(options, other));
}

}  // namespace
}  // namespace pop
