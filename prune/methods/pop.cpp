// pop: Partition-guided Online Pruning (arXiv 2602.06822), pop-method sections 3 to 6. The prompt splits the FFN
// channels of a layer into retained, candidate and pruned ones; each decoded token chooses among the candidates. fixed
// is gamma = 0 (the mask of the prompt stays), full has every channel as a candidate. Of a mixture of experts each has its own
// from the tokens that went through it (section 7); where they were fewer than --min-tokens, from the gate-up score over all
// tokens of the layer, made when decode first meets the expert, or none.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/importance.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"
#include "prune/partition.h"
#include "prune/select.h"

namespace pop {
namespace {

struct PopSetup {
  PolicyContext context;
  PrunePlan plan;
  std::vector<PartitionSizes> sizes;  // [FFNs]
  Metric metric = Metric::Down, decode_metric = Metric::Down;
  Norm down_norm = Norm::Two, gate_up_norm = Norm::Max;
  bool prefill_pruned = false;
  uint64_t min_tokens = 0;
  FewTokens few_tokens = FewTokens::Layer;
  std::vector<std::vector<float>> down_norms;  // [FFNs][f] columns of W_down; empty if no metric needs them

  const FfnWeights& ffn(int number) const { return *context.ffns[static_cast<size_t>(number)]; }
  const PartitionSizes& sizes_of(int ffn) const { return sizes[static_cast<size_t>(ffn)]; }
  // Decode scores candidates if there is something to choose.
  static bool scores(const PartitionSizes& s) { return s.kept > s.retained && s.kept < s.retained + s.candidate; }
  bool scores() const {
    return std::any_of(sizes.begin(), sizes.end(), [](const PartitionSizes& s) { return scores(s); });
  }
  int ffns() const { return static_cast<int>(context.ffns.size()); }
  // Whose gate and up decide how a scorer works on a copy.
  const Matrix& scored_shape() const {
    for (const FfnWeights* ffn : context.ffns)
      if (ffn->gate_up.layout == Layout::Columns) return ffn->gate_up;
    return context.ffns.front()->gate_up;
  }
};

struct PopFfn {
  PopFfn(const PopSetup& setup, int ffn)
      : sums(static_cast<size_t>(setup.metric == Metric::Down ? setup.ffn(ffn).f() : setup.context.d)),
        partition(make_partition(setup.sizes_of(ffn))),
        selector(setup.sizes_of(ffn)),
        candidate_scores(static_cast<size_t>(setup.sizes_of(ffn).candidate)),
        prefill_list(setup.prefill_pruned ? static_cast<size_t>(setup.sizes_of(ffn).kept) : 0) {}

  std::vector<double> sums;  // of squares over the prompt tokens that went through it: h : [f], or x : [d]
  uint64_t tokens = 0;       // in sums
  uint64_t scored = 0;       // tokens that partition.scores rest on; kOfLayer: the layer's
  bool partitioned = false;
  Partition partition;
  CandidateSelector selector;
  std::vector<float> candidate_scores;
  uint64_t listed = 0;  // as scored, of prefill_list
  std::vector<int32_t> prefill_list;
};

// Marks what rests on all tokens of a layer: of a mixture of experts, where an expert saw too few.
constexpr uint64_t kOfLayer = ~uint64_t{0};

struct PopRouter {           // of a layer with experts
  std::vector<double> sums;  // [d] of x^2 over all tokens of the prompt
  uint64_t tokens = 0;
};

class PopState final : public PolicyState {
 public:
  explicit PopState(const PopSetup& setup)
      : setup_(&setup),
        ffns_(static_cast<size_t>(setup.ffns())),
        routers_(setup.context.layers.size()),
        top_(setup.context.f),
        unit_scorer_(*setup.context.kernels, setup.scored_shape()),
        x_norm_(static_cast<size_t>(setup.context.d)),
        unit_scores_(static_cast<size_t>(setup.context.f)),
        ranks_(static_cast<size_t>(setup.context.f)) {
    for (int i = 0; i < setup.ffns(); ++i)
      if (setup.ffn(i).expert < 0) at(i);  // an expert's is made when a token goes through it
  }

  void observe(Site site, int ffn, const float* x, int n, size_t ldx, int) override {
    if (site != (setup_->metric == Metric::Down ? Site::Down : Site::GateUp)) return;
    PopFfn& s = at(ffn);
    accumulate_squares(setup_->context, x, n, ldx, s.sums);
    s.tokens += static_cast<uint64_t>(n);
  }

  void observe_router(int layer, const float* x, int n, size_t ldx, int) override {
    PopRouter& r = routers_[static_cast<size_t>(layer)];
    r.sums.resize(static_cast<size_t>(setup_->context.d));
    accumulate_squares(setup_->context, x, n, ldx, r.sums);
    r.tokens += static_cast<uint64_t>(n);
  }

  Selection select_prefill(Site site, int ffn) override {
    if (!setup_->prefill_pruned || !of_ffn(site) || stays_dense(ffn)) return {};
    PopFfn& s = at(ffn);
    const uint64_t rests_on = saw_few(ffn) ? kOfLayer : s.tokens;
    if (rests_on == 0) fail("prefill mask: layer {} has observed no prompt token", setup_->ffn(ffn).layer);
    if (s.listed != rests_on) {
      score(ffn);
      const uint8_t* keep = top_.mark(s.partition.scores, setup_->sizes_of(ffn).kept);
      size_t count = 0;
      for (int32_t i = 0; i < setup_->sizes_of(ffn).f; ++i) {
        if (keep[i] != 0) s.prefill_list[count++] = i;
      }
      s.listed = rests_on;
    }
    return selection(site, {s.prefill_list.data(), setup_->sizes_of(ffn).kept});
  }

  void partition() override {
    for (int i = 0; i < setup_->ffns(); ++i) {
      const FfnWeights& ffn = setup_->ffn(i);
      const uint64_t tokens = ffn.expert < 0 ? at(i).tokens : routers_[static_cast<size_t>(ffn.layer)].tokens;
      if (tokens == 0) fail("partition: layer {} has observed no prompt token", ffn.layer);
      std::optional<PopFfn>& s = ffns_[static_cast<size_t>(i)];
      if (s) s->partitioned = false;
      // Scores of gate and up take all threads, so they come first; an expert of few tokens may never be asked.
      if (s && setup_->metric == Metric::GateUp && !saw_few(i)) score(i);
    }
    std::vector<std::vector<uint64_t>> ranks(static_cast<size_t>(setup_->context.pool->threads()),
                                             std::vector<uint64_t>(static_cast<size_t>(setup_->context.f)));
    setup_->context.pool->run(setup_->ffns(), [&](int i, int thread) {
      if (!ffns_[static_cast<size_t>(i)] || saw_few(i)) return;
      if (setup_->metric == Metric::Down) score(i);
      make_partition_of(i, ranks[static_cast<size_t>(thread)]);
    });
    partitioned_ = true;
  }

  void partition_all() override {
    for (int i = 0; i < setup_->ffns(); ++i)
      if (!stays_dense(i)) partitioned(i);
  }

  Selection select(Site site, int ffn, std::span<const float> x, int) override {
    if (!of_ffn(site)) return {};
    if (!partitioned_) fail("select: expected partition() before the first decoded token");
    ++selections;
    if (stays_dense(ffn)) return {};
    PopFfn& s = partitioned(ffn);
    if (PopSetup::scores(setup_->sizes_of(ffn)) &&
        site == (setup_->decode_metric == Metric::Down ? Site::Down : Site::GateUp)) {
      score_candidates(ffn, s, x.data());
    }
    return selection(site, site == Site::GateUp ? s.selector.reachable() : s.selector.choose(s.candidate_scores, top_));
  }

  Selection reachable(Site site, int ffn) const override {
    const std::optional<PopFfn>& s = ffns_[static_cast<size_t>(ffn)];
    if (!of_ffn(site) || !partitioned_ || !s || !s->partitioned) return {};
    const IndexList list = s->selector.reachable();
    return list.count < setup_->sizes_of(ffn).f ? selection(site, list) : Selection{};
  }

  const Partition* ffn_partition(int ffn) const override {
    const std::optional<PopFfn>& s = ffns_[static_cast<size_t>(ffn)];
    return partitioned_ && s && s->partitioned ? &s->partition : nullptr;
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<PopState>(*this); }

 private:
  PopFfn& at(int ffn) {
    std::optional<PopFfn>& s = ffns_[static_cast<size_t>(ffn)];
    return s ? *s : s.emplace(*setup_, ffn);
  }
  // Of the experts that a router chooses from.
  bool saw_few(int ffn) const {
    const std::optional<PopFfn>& s = ffns_[static_cast<size_t>(ffn)];
    return setup_->ffn(ffn).expert >= 0 && (s ? s->tokens : 0) < std::max<uint64_t>(1, setup_->min_tokens);
  }
  bool stays_dense(int ffn) const { return setup_->few_tokens == FewTokens::Dense && saw_few(ffn); }

  PopFfn& partitioned(int ffn) {
    PopFfn& s = at(ffn);
    if (s.partitioned) return s;
    score(ffn);
    make_partition_of(ffn, ranks_);
    return s;
  }
  void make_partition_of(int ffn, std::span<uint64_t> ranks) {
    PopFfn& s = at(ffn);
    partition_channels(setup_->sizes_of(ffn), ranks.first(s.partition.scores.size()), s.partition);
    s.selector.assign(s.partition);
    s.partitioned = true;
  }

  static Selection selection(Site site, IndexList list) {
    return {.kind = site == Site::GateUp ? Selection::Kind::Rows : Selection::Kind::Columns,
            .list = list,
            .zero_rest = site == Site::Down,
            .lasting = site == Site::GateUp};
  }

  // Once per number of tokens observed: of gate and up it costs a pass over the weights, on all threads.
  void score(int ffn) {
    PopFfn& s = at(ffn);
    const bool of_layer = saw_few(ffn);
    const uint64_t rests_on = of_layer ? kOfLayer : s.tokens;
    if (setup_->metric == Metric::Down && !of_layer) {
      down_scores(s.sums, setup_->down_norms[static_cast<size_t>(ffn)], s.partition.scores);
    } else if (of_layer || s.scored != rests_on) {
      const FfnWeights& w = setup_->ffn(ffn);
      gate_up_scores(setup_->context, w.gate_up, of_layer ? routers_[static_cast<size_t>(w.layer)].sums : s.sums,
                     setup_->gate_up_norm, x_norm_, s.partition.scores);
    }
    s.scored = rests_on;
  }

  void score_candidates(int ffn, PopFfn& s, const float* x) {
    const IndexList candidates = s.selector.candidates();
    if (setup_->decode_metric == Metric::Down) {
      setup_->context.kernels->channel_scores(x, setup_->down_norms[static_cast<size_t>(ffn)].data(), candidates,
                                              s.candidate_scores.data());
      return;
    }
    unit_scorer_.score(setup_->ffn(ffn).gate_up, x, setup_->gate_up_norm, candidates, 0, candidates.count,
                       unit_scores_.data());
    for (int c = 0; c < candidates.count; ++c) {
      s.candidate_scores[static_cast<size_t>(c)] = unit_scores_[static_cast<size_t>(candidates[c])];
    }
  }

  const PopSetup* setup_;
  std::vector<std::optional<PopFfn>> ffns_;  // of experts, those that tokens went through
  std::vector<PopRouter> routers_;           // [layers]
  bool partitioned_ = false;
  TopK top_;  // scratch from here on
  UnitScorer unit_scorer_;
  std::vector<float> x_norm_, unit_scores_;
  std::vector<uint64_t> ranks_;
};

class PopPolicy final : public SetupPolicy<PopState, PopSetup> {
 public:
  using SetupPolicy::SetupPolicy;
  bool one_token_at_a_time() const override { return setup_.decode_metric == Metric::GateUp && setup_.scores(); }
};

void set_metrics(const PruneOptions& options, PopSetup& setup) {
  setup.prefill_pruned = options.prefill_pruned;
  if (options.prefill_pruned && options.metric == Metric::Down) {
    fail("--metric down: --prefill pruned needs gate-up, dropped channels have no activation to score");
  }
  setup.metric = options.metric.value_or(options.prefill_pruned ? Metric::GateUp : Metric::Down);
  setup.decode_metric = options.decode_metric.value_or(setup.metric);
  if (options.min_tokens && *options.min_tokens < 0)
    fail("--min-tokens: expected 0 or more tokens, found {}", *options.min_tokens);
  setup.min_tokens = static_cast<uint64_t>(options.min_tokens.value_or(kDefaultMinTokens));
  setup.few_tokens = options.few_tokens;
  setup.down_norm = options.norm.value_or(Norm::Two);
  setup.gate_up_norm = options.norm.value_or(Norm::Max);
}

void describe(const PruneOptions& options, double p, double gamma, PopSetup& setup) {
  const BlockWeights weights = count_weights(setup.context.layers);
  const auto norm = [&](Metric m) { return m == Metric::Down ? setup.down_norm : setup.gate_up_norm; };
  PrunePlan& plan = setup.plan;
  plan.method = options.method;
  plan.ffn_sparsity = p;
  plan.ratio = ratio_of_sparsity(options, weights, p);
  plan.gamma = gamma;
  plan.metric = metric_name(setup.metric);
  plan.norm = norm_name(norm(setup.metric));
  plan.prefill = options.prefill_pruned ? "pruned" : "dense";
  if (setup.context.has_experts()) {
    plan.min_tokens = static_cast<int>(setup.min_tokens);
    plan.few_tokens = options.few_tokens == FewTokens::Layer ? "layer" : "dense";
  }
  if (options.method == "fixed") return;  // scores nothing in decode
  plan.decode_metric = metric_name(setup.decode_metric);
  if (norm(setup.decode_metric) != norm(setup.metric))
    plan.norm += std::string(", ") + norm_name(norm(setup.decode_metric));
}

}  // namespace

std::unique_ptr<Policy> create_pop(const PruneOptions& options, const PolicyContext& context) {
  PopSetup setup;
  setup.context = context;
  const double p = ffn_sparsity(options, count_weights(context.layers));
  const double gamma = options.gamma ? *options.gamma : *row_gamma(options.method);
  for (const FfnWeights* ffn : context.ffns) setup.sizes.push_back(partition_sizes(ffn->f(), p, gamma));
  set_metrics(options, setup);
  describe(options, p, gamma, setup);
  if (setup.metric == Metric::Down || (setup.decode_metric == Metric::Down && setup.scores())) {
    std::vector<std::vector<Matrix>> stacks;
    for (const FfnWeights* ffn : context.ffns) stacks.push_back({ffn->down});
    setup.down_norms = column_norm_tables(stacks, setup.down_norm, *context.pool);
  }
  return std::make_unique<PopPolicy>(std::move(setup));
}

}  // namespace pop
