// What must hold of every method in the registry (pop-method section 9), over shapes that are a multiple of nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/partition.h"
#include "prune/registry.h"
#include "prune/toy_model.h"

namespace {
std::atomic<size_t> allocations{0};
}

// Not inlined: g++ 12 then sees malloc and delete, or new and free, and warns that they do not match.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {  // that of std::stable_sort
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace pop {
namespace {

using List = std::vector<int32_t>;

struct Shape {
  int layers, d, f, q_dim, kv_dim;
};
constexpr Shape kShapes[] = {{2, 12, 37, 10, 5}, {1, 3, 1, 2, 1}, {3, 33, 101, 31, 7}, {1, 5, 2, 3, 3}};

bool applies(const MethodInfo& method, std::string_view option) {
  for (const char* name : method.options) {
    if (option == name) return true;
  }
  return false;
}

// Every registered method with every option that changes its way of choosing.
std::vector<PruneOptions> variants() {
  std::vector<PruneOptions> all;
  for (const MethodInfo& method : methods()) {
    PruneOptions base;
    base.method = method.name;
    all.push_back(base);
    const auto with = [&](const char* option, auto change) {
      if (!applies(method, option)) return;
      all.push_back(base);
      change(all.back());
    };
    for (const double p : {0.0, 0.13, 0.5, 0.9, 1.0}) {
      with("ffn-sparsity", [&](PruneOptions& o) { o.ffn_sparsity = p; });
      with("gamma", [&](PruneOptions& o) { o.ffn_sparsity = p, o.gamma = 0.6; });
    }
    for (const double r : {0.0, 0.3}) with("ratio", [&](PruneOptions& o) { o.ratio = r; });
    with("gamma", [](PruneOptions& o) { o.gamma = 0; });
    with("gamma", [](PruneOptions& o) { o.gamma = 2; });
    with("metric", [](PruneOptions& o) { o.metric = Metric::GateUp; });
    with("decode-metric", [](PruneOptions& o) {
      o.gamma = o.method == "pop" ? std::optional(0.5) : std::nullopt, o.decode_metric = Metric::GateUp;
    });
    with("decode-metric", [](PruneOptions& o) { o.metric = Metric::GateUp, o.decode_metric = Metric::Down; });
    with("norm", [](PruneOptions& o) { o.norm = Norm::One; });
    with("plus-rule", [](PruneOptions& o) { o.plus_rule = PlusRule::Prompt; });
    with("prefill", [](PruneOptions& o) { o.prefill_pruned = true; });
    with("match", [](PruneOptions& o) { o.match = "pop"; });
    with("repaired", [](PruneOptions& o) { o.repaired = RepairedAs::BF16; });
    with("random-every", [](PruneOptions& o) { o.random_every = RandomEvery::Token; });
  }
  return all;
}

std::string describe(const PruneOptions& o, const Shape& s) {
  return o.method + " f " + std::to_string(s.f) + " p " + std::to_string(o.ffn_sparsity.value_or(-1)) + " r " +
         std::to_string(o.ratio.value_or(-1)) + " gamma " + std::to_string(o.gamma.value_or(-1)) + " metrics " +
         std::to_string(o.metric ? int(*o.metric) : -1) + std::to_string(o.decode_metric ? int(*o.decode_metric) : -1);
}

const MethodInfo& info_of(const PruneOptions& options) {
  for (const MethodInfo& method : methods()) {
    if (options.method == method.name) return method;
  }
  throw Error("not registered");
}

template <class Body>
void for_each_variant(Body body) {
  for (const Shape& shape : kShapes) {
    const ToyModel model(shape.layers, shape.d, shape.f, shape.q_dim, shape.kv_dim, 11);
    ThreadPool pool(2);
    const auto calibration = toy_repaired(model, 12);
    for (PruneOptions& options : variants()) {
      SCOPED_TRACE(describe(options, shape));
      if (applies(info_of(options), "calibration")) options.calibration = calibration;
      if (options.method == "cats" && ffn_sparsity(options, count_weights(model.context(pool).layers)) > 2 / 3.0) {
        continue;  // the gate is read whole
      }
      const std::unique_ptr<Policy> policy = make_policy(options, model.context(pool));
      if (policy->prunes()) body(model, options, *policy);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

struct Choice {
  Selection::Kind kind;
  bool zero_rest;
  List list;
  bool operator==(const Choice&) const = default;
};

Choice copy_of(const Selection& s) {
  Choice choice{s.kind, s.zero_rest, {}};
  if (s.kind != Selection::Kind::Full) choice.list.assign(s.list.index, s.list.index + s.list.count);
  return choice;
}

// What select() is given: the input of the site, or the gates.
std::span<float> given(const PolicyState& state, SiteInputs& inputs, Site site, int layer, int token) {
  return inputs.at(site == Site::GateUp && state.gate_first() ? Site::Down : site, layer, token);
}

// What the token chooses at every site of every layer.
std::vector<Choice> decode(const ToyModel& model, PolicyState& state, SiteInputs& inputs, int token, int position) {
  std::vector<Choice> choices;
  for (int layer = 0; layer < model.layers(); ++layer) {
    for (int s = 0; s < kSites; ++s) {
      choices.push_back(copy_of(state.select(Site(s), layer, given(state, inputs, Site(s), layer, token), position)));
    }
  }
  return choices;
}

bool ascending_within(const List& list, int width) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] < (i == 0 ? 0 : list[i - 1] + 1) || list[i] >= width) return false;
  }
  return true;
}

// Lists are what `selects` and `count` declare.
void check_choices(const ToyModel& model, const PruneOptions& options, const Policy& policy, const PolicyState& state,
                   const std::vector<Choice>& choices) {
  const bool rows = std::string_view(info_of(options).selects) == "rows";
  const std::string_view count = info_of(options).count;
  const bool same_everywhere = count == "exact";
  const int f = model.width(Site::Down), kept = kept_channels(f, policy.plan().ffn_sparsity);
  int kept_of_all = 0;
  for (int layer = 0; layer < model.layers(); ++layer) {
    for (int s = 0; s < kSites; ++s) {
      const Choice& c = choices[static_cast<size_t>(layer * kSites + s)];
      const Site site = Site(s);
      ASSERT_TRUE(ascending_within(c.list, site == Site::GateUp && rows ? f : model.width(site)));
      if (!rows) {
        ASSERT_EQ(c.kind, Selection::Kind::Columns);
        ASSERT_FALSE(c.zero_rest);
        if (std::string_view(info_of(options).needs) == "prompt") {
          ASSERT_GE(static_cast<double>(c.list.size()),
                    (1 - policy.plan().levels[static_cast<size_t>(s)]) * model.width(site) / 8);
        }
      } else if (site == Site::Qkv || site == Site::O) {
        ASSERT_EQ(c.kind, Selection::Kind::Full);
      }
    }
    if (!rows) continue;
    const Choice& up = choices[static_cast<size_t>(layer * kSites) + 2];
    const Choice& down = choices[static_cast<size_t>(layer * kSites) + 3];
    ASSERT_EQ(up.kind, Selection::Kind::Rows);
    ASSERT_EQ(down.kind, Selection::Kind::Columns);
    ASSERT_TRUE(down.zero_rest);
    kept_of_all += static_cast<int>(down.list.size());
    if (same_everywhere) {
      ASSERT_EQ(static_cast<int>(down.list.size()), kept);
    }
    ASSERT_TRUE(std::includes(up.list.begin(), up.list.end(), down.list.begin(), down.list.end()));
    if (const Partition* part = state.ffn_partition(layer)) {
      const PartitionSizes sizes = partition_sizes(f, policy.plan().ffn_sparsity, policy.plan().gamma);
      if (same_everywhere) {
        ASSERT_EQ(static_cast<int>(part->retained.size()), sizes.retained);
        ASSERT_EQ(static_cast<int>(part->candidate.size()), sizes.candidate);
        ASSERT_EQ(static_cast<int>(part->pruned.size()), sizes.pruned);
      }
      List cover = part->retained, both;
      cover.insert(cover.end(), part->candidate.begin(), part->candidate.end());
      std::sort(cover.begin(), cover.end());
      ASSERT_EQ(up.list, cover);  // so nothing of P is ever computed
      cover.insert(cover.end(), part->pruned.begin(), part->pruned.end());
      std::sort(cover.begin(), cover.end());
      ASSERT_TRUE(ascending_within(cover, f));  // disjoint
      ASSERT_EQ(static_cast<int>(cover.size()), f);
      ASSERT_TRUE(std::includes(down.list.begin(), down.list.end(), part->retained.begin(), part->retained.end()));
    }
  }
  if (rows && count == "total") {
    ASSERT_EQ(kept_of_all, kept_channels(f * model.layers(), policy.plan().ffn_sparsity));
  }
}

TEST(EveryMethod, ListsAreWhatTheMethodDeclares) {
  for_each_variant([](const ToyModel& model, const PruneOptions& options, const Policy& policy) {
    for (const int prompt : {1, 2, 19}) {
      SiteInputs inputs(model, prompt + 5, 21);
      const auto state = policy.begin();
      inputs.prefill(*state, 0, prompt, 8);
      state->partition();
      for (int t = prompt; t < inputs.tokens(); ++t) {
        check_choices(model, options, policy, *state, decode(model, *state, inputs, t, t));
      }
    }
  });
}

TEST(EveryMethod, RatioZeroChoosesEverythingFromAList) {
  for_each_variant([](const ToyModel& model, const PruneOptions& options, const Policy& policy) {
    if (policy.plan().ratio != 0) return;
    SiteInputs inputs(model, 6, 22);
    const auto state = policy.begin();
    inputs.prefill(*state, 0, 4, 4);
    state->partition();
    uint64_t expected = 0;
    const bool rows = std::string_view(info_of(options).selects) == "rows";
    for (int t = 4; t < 6; ++t) {
      const std::vector<Choice> choices = decode(model, *state, inputs, t, t);
      for (size_t i = 0; i < choices.size(); ++i) {
        if (choices[i].kind == Selection::Kind::Full) continue;
        const Site site = Site(i % kSites);
        ASSERT_EQ(static_cast<int>(choices[i].list.size()), model.width(rows ? Site::Down : site));
      }
      expected += static_cast<uint64_t>(model.layers()) * (rows ? 2 : 4);
      ASSERT_EQ(state->selections, expected);
      ASSERT_EQ(state->reachable(Site::GateUp, 0).kind, Selection::Kind::Full);
    }
  });
}

// Chunks of the prompt, threads, the order of tokens, other sequences and copies of the state change nothing.
TEST(EveryMethod, ChoicesRestOnThePromptAndTheTokenAlone) {
  ThreadPool one(1), three(3);
  for_each_variant([&](const ToyModel& model, const PruneOptions& options, const Policy& policy) {
    const int prompt = 23, tokens = prompt + 4;
    SiteInputs inputs(model, tokens, 23), others(model, tokens, 24);
    const auto state = policy.begin();
    inputs.prefill(*state, 0, prompt, prompt);
    state->partition();
    std::vector<std::vector<Choice>> alone;
    for (int t = prompt; t < tokens; ++t) alone.push_back(decode(model, *state, inputs, t, t));

    for (const int chunk : {1, 7}) {
      for (ThreadPool* pool : {&one, &three}) {
        const std::unique_ptr<Policy> again = make_policy(options, model.context(*pool));
        const auto mine = again->begin(), neighbour = again->begin();
        for (int t = 0; t < prompt; t += chunk) {
          const int end = std::min(t + chunk, prompt);
          inputs.prefill(*mine, t, end, chunk);
          others.prefill(*neighbour, t, end, chunk);
        }
        mine->partition();
        neighbour->partition();
        for (int t = tokens - 1; t >= prompt; --t) {
          decode(model, *neighbour, others, t, t);
          ASSERT_EQ(decode(model, *mine, inputs, t, t), alone[static_cast<size_t>(t - prompt)]);
        }
        for (int layer = 0; layer < model.layers(); ++layer) {
          if (const Partition* part = state->ffn_partition(layer)) {
            ASSERT_EQ(part->scores, mine->ffn_partition(layer)->scores);
          }
          for (int s = 0; s < kSites; ++s) {
            const auto a = state->threshold(Site(s), layer), b = mine->threshold(Site(s), layer);
            ASSERT_EQ(a.has_value(), b.has_value());
            if (a) {
              ASSERT_EQ(a->tau, b->tau);
              ASSERT_EQ(a->counted, b->counted);
            }
          }
        }
      }
    }
  });
}

TEST(EveryMethod, ACloneGoesItsOwnWay) {
  for_each_variant([](const ToyModel& model, const PruneOptions&, const Policy& policy) {
    SiteInputs inputs(model, 30, 25), others(model, 30, 26);
    const auto state = policy.begin(), whole = policy.begin();
    inputs.prefill(*state, 0, 9, 9);
    auto prefix = state->clone();  // a cached prefix, continued twice
    inputs.prefill(*state, 9, 20, 5);
    state->partition();
    auto copy = state->clone();
    const std::vector<Choice> before = decode(model, *state, inputs, 21, 21);
    EXPECT_EQ(decode(model, *copy, inputs, 21, 21), before);
    EXPECT_EQ(copy->selections, state->selections);
    others.prefill(*copy, 20, 29, 9);
    copy->partition();
    decode(model, *copy, others, 29, 29);
    EXPECT_EQ(decode(model, *state, inputs, 21, 21), before);
    state->partition();
    copy.reset();
    EXPECT_EQ(decode(model, *state, inputs, 21, 21), before);

    inputs.prefill(*prefix, 9, 20, 11);
    prefix->partition();
    inputs.prefill(*whole, 0, 20, 20);
    whole->partition();
    EXPECT_EQ(decode(model, *prefix, inputs, 21, 21), before);
    EXPECT_EQ(decode(model, *whole, inputs, 21, 21), before);
  });
}

// A conversation: prompt, answer, more prompt, answer.
TEST(EveryMethod, MoreOfThePromptAfterAnAnswerCounts) {
  for_each_variant([](const ToyModel& model, const PruneOptions&, const Policy& policy) {
    SiteInputs inputs(model, 30, 32);
    const auto state = policy.begin(), whole = policy.begin();
    const auto prefill_lists = [&](PolicyState& s) {
      std::vector<Choice> lists;
      for (int i = 0; i < model.layers() * kSites; ++i) {
        lists.push_back(copy_of(s.select_prefill(Site(i % kSites), i / kSites)));
      }
      return lists;
    };
    inputs.prefill(*state, 0, 5, 5);
    prefill_lists(*state);
    state->partition();
    decode(model, *state, inputs, 28, 5);
    inputs.prefill(*state, 5, 28, 23);
    inputs.prefill(*whole, 0, 28, 28);
    ASSERT_EQ(prefill_lists(*state), prefill_lists(*whole));
    state->partition();
    whole->partition();
    ASSERT_EQ(decode(model, *state, inputs, 29, 28), decode(model, *whole, inputs, 29, 28));
  });
}

TEST(EveryMethod, NanAndInfinityKeepTheListsValid) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for_each_variant([&](const ToyModel& model, const PruneOptions& options, const Policy& policy) {
    std::mt19937 random(27);
    SiteInputs inputs(model, 12, 27);
    for (int layer = 0; layer < model.layers(); ++layer) {
      for (int s = 0; s < kSites; ++s) {
        for (int t = 0; t < inputs.tokens(); ++t) {
          for (float& x : inputs.at(Site(s), layer, t)) {
            const uint32_t which = random() % 8;
            x = t == 11 || which == 0 ? nan : which == 1 ? inf : which == 2 ? -nan : which == 3 ? 3e38f : x;
          }
        }
      }
    }
    for (const int prompt : {1, 8}) {
      const auto state = policy.begin();
      inputs.prefill(*state, 0, prompt, 3);
      state->partition();
      for (int t = 8; t < 12; ++t) check_choices(model, options, policy, *state, decode(model, *state, inputs, t, t));
    }
  });
}

TEST(EveryMethod, SelectAllocatesNothing) {
  for_each_variant([](const ToyModel& model, const PruneOptions&, const Policy& policy) {
    SiteInputs inputs(model, 12, 28);
    const auto state = policy.begin();
    inputs.prefill(*state, 0, 8, 8);
    state->partition();
    const size_t before = allocations;
    ASSERT_GT(before, 0u);
    for (int t = 8; t < 12; ++t) {
      for (int layer = 0; layer < model.layers(); ++layer) {
        for (int s = 0; s < kSites; ++s) state->select(Site(s), layer, given(*state, inputs, Site(s), layer, t), t);
      }
    }
    const size_t after = allocations;
    ASSERT_EQ(after, before);
  });
}

TEST(EveryMethod, WhatNeedsThePromptSaysSo) {
  for_each_variant([](const ToyModel& model, const PruneOptions& options, const Policy& policy) {
    if (std::string_view(info_of(options).needs) != "prompt") return;
    SiteInputs inputs(model, 2, 29);
    const auto state = policy.begin();
    EXPECT_THROW(state->partition(), Error);
    EXPECT_THROW(state->select(Site::Down, 0, inputs.at(Site::Down, 0, 0), 0), Error);
    if (model.layers() == 1) return;
    for (int s = 0; s < kSites; ++s) {  // the first layer alone is not enough
      const std::span<float> x = inputs.at(Site(s), 0, 0);
      state->observe(Site(s), 0, x.data(), 1, x.size(), 0);
    }
    EXPECT_THROW(state->partition(), Error);
  });
}

// Several tokens of a sequence may go through a layer together unless the policy says otherwise, and a lasting list lasts.
TEST(EveryMethod, TokensTogetherChooseAsAlone) {
  for_each_variant([](const ToyModel& model, const PruneOptions&, const Policy& policy) {
    SiteInputs inputs(model, 14, 31);
    const auto state = policy.begin();
    inputs.prefill(*state, 0, 10, 10);
    state->partition();
    std::vector<std::vector<Choice>> alone;
    for (int t = 10; t < 14; ++t) alone.push_back(decode(model, *state, inputs, t, t));
    for (int i = 0; i < model.layers() * kSites; ++i) {
      const Site site = Site(i % kSites);
      const int layer = i / kSites;
      Selection first;
      for (int t = 10; t < 14; ++t) {
        const Selection s = state->select(site, layer, given(*state, inputs, site, layer, t), t);
        if (t == 10) first = s;
        if (s.lasting) {
          ASSERT_EQ(s.list.index, first.list.index);
          ASSERT_EQ(copy_of(s), alone[0][static_cast<size_t>(i)]);
        }
        if (policy.one_token_at_a_time()) continue;
        ASSERT_EQ(copy_of(s), alone[static_cast<size_t>(t - 10)][static_cast<size_t>(i)]);
        ASSERT_TRUE(s.lasting || s.kind != Selection::Kind::Rows);
      }
    }
  });
}

// Packing asks which channels any token may use.
TEST(EveryMethod, NothingOutsideReachableIsChosen) {
  for_each_variant([](const ToyModel& model, const PruneOptions&, const Policy& policy) {
    SiteInputs inputs(model, 20, 30);
    const auto state = policy.begin();
    inputs.prefill(*state, 0, 10, 10);
    state->partition();
    for (int t = 10; t < 20; ++t) {
      const std::vector<Choice> choices = decode(model, *state, inputs, t, t);
      for (int layer = 0; layer < model.layers(); ++layer) {
        for (int s = 0; s < kSites; ++s) {
          const Choice reach = copy_of(state->reachable(Site(s), layer));
          if (reach.kind == Selection::Kind::Full) continue;
          const Choice& c = choices[static_cast<size_t>(layer * kSites + s)];
          ASSERT_EQ(reach.kind, c.kind);
          ASSERT_TRUE(std::includes(reach.list.begin(), reach.list.end(), c.list.begin(), c.list.end()));
        }
      }
    }
  });
}

}  // namespace
}  // namespace pop
