#include "prune/registry.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "prune/toy_model.h"

namespace pop {
namespace {

bool needs_text(const MethodInfo& method) { return std::string_view(method.needs) == "calibration text"; }

class Registry : public ::testing::Test {
 protected:
  std::string error_of(const PruneOptions& options) {
    try {
      make_policy(options, model_.context(pool_));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  ToyModel model_{1, 16, 48, 8, 4, 61};
  ThreadPool pool_{1};
};

TEST_F(Registry, ListsTheMethods) {
  std::set<std::string> names;
  for (const MethodInfo& method : methods()) {
    names.insert(method.name);
    PruneOptions options;
    options.method = method.name;
    if (needs_text(method)) options.calibration = toy_repaired(model_, 62);
    const std::unique_ptr<Policy> policy = make_policy(options, model_.context(pool_));
    EXPECT_EQ(policy->plan().method, method.name);
    EXPECT_EQ(policy->prunes(), std::string(method.selects) != "nothing");
    EXPECT_LE(std::string(method.summary).size() + std::string(method.name).size(), 120u);
  }
  EXPECT_EQ(names, (std::set<std::string>{"dense", "pop", "pop+", "fixed", "full", "random", "magnitude", "wanda_sp",
                                          "flap", "tyr", "task-fixed", "griffin", "wina", "probe", "teal", "cats"}));
}

TEST_F(Registry, DenseSelectsEverything) {
  const std::unique_ptr<Policy> policy = make_policy({}, model_.context(pool_));
  const auto state = policy->begin();
  state->partition();
  const std::vector<float> x(16);
  EXPECT_EQ(state->select(Site::Qkv, 0, x, 0).kind, Selection::Kind::Full);
  EXPECT_EQ(state->clone()->reachable(Site::Down, 0).kind, Selection::Kind::Full);
  EXPECT_EQ(state->selections, 0u);
}

TEST_F(Registry, AnUnknownMethodNamesTheNearest) {
  PruneOptions options;
  for (const auto& [typed, meant] :
       {std::pair{"popp", "pop"}, {"rnadom", "random"}, {"POP+", "pop+"}, {"fix", "fixed"}}) {
    options.method = typed;
    const std::string message = error_of(options);
    EXPECT_NE(message.find(std::string("\"") + typed + "\""), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with(std::string("the nearest is ") + meant)) << message;
  }
  options.method = std::string(1 << 20, 'x') + "\n\x1b[31m";
  EXPECT_LT(error_of(options).size(), 500u);
  options.method = "";
  EXPECT_NE(error_of(options), "");
}

// Every option is either listed by the method or an error that names option and method.
TEST_F(Registry, OptionsThatDoNotApplyAreErrors) {
  const std::pair<const char*, void (*)(PruneOptions&)> options[] = {
      {"ratio", [](PruneOptions& o) { o.ratio = 0.2; }},
      {"ffn-sparsity", [](PruneOptions& o) { o.ffn_sparsity = 0.2; }},
      {"ratio-of", [](PruneOptions& o) { o.ratio_of = RatioOf::Active; }},
      {"gamma", [](PruneOptions& o) { o.gamma = 0.1; }},
      {"metric", [](PruneOptions& o) { o.metric = Metric::Down; }},
      {"decode-metric", [](PruneOptions& o) { o.decode_metric = Metric::Down; }},
      {"norm", [](PruneOptions& o) { o.norm = Norm::Two; }},
      {"prefill", [](PruneOptions& o) { o.prefill_pruned = true; }},
      {"match", [](PruneOptions& o) { o.match = "pop"; }},
      {"plus-rule", [](PruneOptions& o) { o.plus_rule = PlusRule::Prompt; }},
      {"repaired", [](PruneOptions& o) { o.repaired = RepairedAs::BF16; }},
      {"random-every", [](PruneOptions& o) { o.random_every = RandomEvery::Token; }}};
  const auto calibration = toy_repaired(model_, 62);
  for (const MethodInfo& method : methods()) {
    for (const auto& [name, set] : options) {
      PruneOptions o;
      o.method = method.name;
      if (needs_text(method)) o.calibration = calibration;
      set(o);
      bool listed = false;
      for (const char* own : method.options) listed |= std::string(own) == name;
      const std::string expected = std::string("--") + name + ": does not apply to method " + method.name;
      EXPECT_EQ(error_of(o), listed ? "" : expected);
    }
  }
  PruneOptions o;
  o.method = "pop+";
  for (const char* refused : {"ffn-sparsity", "gamma", "metric", "norm"}) {  // pop-method section 8b
    for (const char* own : methods()[2].options) EXPECT_STRNE(own, refused);
  }
}

TEST_F(Registry, WhatNeedsATextSaysSo) {
  for (const MethodInfo& method : methods()) {
    PruneOptions o;
    o.method = method.name;
    if (needs_text(method)) {
      EXPECT_EQ(error_of(o), std::string("--calibration: method ") + method.name +
                                 " needs the statistics of a text; make them with pop calibrate");
    } else {
      o.calibration = toy_calibration(model_, 62);
      bool listed = false;
      for (const char* own : method.options) listed |= std::string_view(own) == "calibration";
      EXPECT_EQ(error_of(o), listed ? "" : std::string("--calibration: does not apply to method ") + method.name);
    }
  }
}

TEST_F(Registry, RefusesWhatIsOutOfRangeOrContradicts) {
  const auto refused = [&](const char* method, auto change) {
    PruneOptions o;
    o.method = method;
    change(o);
    return !error_of(o).empty();
  };
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.gamma = 2.5; }));
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.gamma = -1; }));
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.ratio = -0.2; }));
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.ratio = 1; }));
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.ratio = 0.2, o.ffn_sparsity = 0.2; }));
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.prefill_pruned = true, o.metric = Metric::Down; }));
  EXPECT_TRUE(refused("pop", [](PruneOptions& o) { o.ratio_of = RatioOf::Total; }));  // no total_weights
  EXPECT_TRUE(refused("random", [](PruneOptions& o) { o.prefill_pruned = true, o.random_every = RandomEvery::Token; }));
  EXPECT_TRUE(refused("pop+", [](PruneOptions& o) { o.ratio = 0.96; }));
  EXPECT_FALSE(refused("pop+", [](PruneOptions& o) { o.ratio = 0.95; }));
  EXPECT_FALSE(refused("pop", [](PruneOptions& o) { o.gamma = 2; }));
}

}  // namespace
}  // namespace pop
