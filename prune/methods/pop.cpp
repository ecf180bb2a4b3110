// pop: Partition-guided Online Pruning (arXiv 2602.06822), pop-method sections 3 to 6. The prompt splits the FFN
// channels of a layer into retained, candidate and pruned ones; each decoded token chooses among the candidates. fixed
// is gamma = 0 (the mask of the prompt stays), full has every channel as a candidate.
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
  PartitionSizes sizes;
  Metric metric = Metric::Down, decode_metric = Metric::Down;
  Norm down_norm = Norm::Two, gate_up_norm = Norm::Max;
  bool prefill_pruned = false;
  std::vector<std::vector<float>> down_norms;  // [layers][f] columns of W_down; empty if no metric needs them

  // Decode scores candidates if there is something to choose.
  bool scores() const { return sizes.kept > sizes.retained && sizes.kept < sizes.retained + sizes.candidate; }
  int layers() const { return static_cast<int>(context.layers.size()); }
};

struct PopLayer {
  explicit PopLayer(const PopSetup& setup)
      : sums(static_cast<size_t>(setup.metric == Metric::Down ? setup.sizes.f : setup.context.d)),
        partition(make_partition(setup.sizes)),
        selector(setup.sizes),
        candidate_scores(static_cast<size_t>(setup.sizes.candidate)),
        prefill_list(setup.prefill_pruned ? static_cast<size_t>(setup.sizes.kept) : 0) {}

  std::vector<double> sums;  // of squares over the prompt: h : [f], or x : [d]
  uint64_t tokens = 0;       // in sums
  uint64_t scored = 0;       // tokens that partition.scores rest on
  Partition partition;
  CandidateSelector selector;
  std::vector<float> candidate_scores;
  uint64_t listed = 0;  // tokens that prefill_list rests on
  std::vector<int32_t> prefill_list;
};

class PopState final : public PolicyState {
 public:
  explicit PopState(const PopSetup& setup)
      : setup_(&setup),
        layers_(static_cast<size_t>(setup.layers()), PopLayer(setup)),
        top_(setup.sizes.f),
        unit_scorer_(*setup.context.kernels, setup.context.layers.front().gate_up),
        x_norm_(static_cast<size_t>(setup.context.d)),
        unit_scores_(static_cast<size_t>(setup.sizes.f)) {}

  void observe(Site site, int layer, const float* x, int n, size_t ldx, int) override {
    if (site != (setup_->metric == Metric::Down ? Site::Down : Site::GateUp)) return;
    PopLayer& l = at(layer);
    accumulate_squares(setup_->context, x, n, ldx, l.sums);
    l.tokens += static_cast<uint64_t>(n);
  }

  Selection select_prefill(Site site, int layer) override {
    if (!setup_->prefill_pruned || (site != Site::GateUp && site != Site::Down)) return {};
    PopLayer& l = at(layer);
    if (l.tokens == 0) fail("prefill mask: layer {} has observed no prompt token", layer);
    if (l.listed != l.tokens) {
      score_gate_up(layer);
      const uint8_t* keep = top_.mark(l.partition.scores, setup_->sizes.kept);
      size_t count = 0;
      for (int32_t i = 0; i < setup_->sizes.f; ++i) {
        if (keep[i] != 0) l.prefill_list[count++] = i;
      }
      l.listed = l.tokens;
    }
    return selection(site, {l.prefill_list.data(), setup_->sizes.kept});
  }

  void partition() override {
    for (int i = 0; i < setup_->layers(); ++i) {
      if (at(i).tokens == 0) fail("partition: layer {} has observed no prompt token", i);
      if (setup_->metric == Metric::GateUp) score_gate_up(i);
    }
    std::vector<std::vector<uint64_t>> ranks(static_cast<size_t>(setup_->context.pool->threads()),
                                             std::vector<uint64_t>(static_cast<size_t>(setup_->sizes.f)));
    setup_->context.pool->run(setup_->layers(), [&](int i, int thread) {
      PopLayer& l = at(i);
      if (setup_->metric == Metric::Down) {
        down_scores(l.sums, setup_->down_norms[static_cast<size_t>(i)], l.partition.scores);
      }
      partition_channels(setup_->sizes, ranks[static_cast<size_t>(thread)], l.partition);
      l.selector.assign(l.partition);
    });
    partitioned_ = true;
  }

  Selection select(Site site, int layer, std::span<const float> x, int) override {
    if (site != Site::GateUp && site != Site::Down) return {};
    if (!partitioned_) fail("select: expected partition() before the first decoded token");
    PopLayer& l = at(layer);
    if (setup_->scores() && site == (setup_->decode_metric == Metric::Down ? Site::Down : Site::GateUp)) {
      score_candidates(layer, l, x.data());
    }
    ++selections;
    return selection(site, site == Site::GateUp ? l.selector.reachable() : l.selector.choose(l.candidate_scores, top_));
  }

  Selection reachable(Site site, int layer) const override {
    if (site != Site::GateUp && site != Site::Down) return {};
    const IndexList list = layers_[static_cast<size_t>(layer)].selector.reachable();
    return partitioned_ && list.count < setup_->sizes.f ? selection(site, list) : Selection{};
  }

  const Partition* ffn_partition(int layer) const override {
    return partitioned_ ? &layers_[static_cast<size_t>(layer)].partition : nullptr;
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<PopState>(*this); }

 private:
  PopLayer& at(int layer) { return layers_[static_cast<size_t>(layer)]; }

  static Selection selection(Site site, IndexList list) {
    return {.kind = site == Site::GateUp ? Selection::Kind::Rows : Selection::Kind::Columns,
            .list = list,
            .zero_rest = site == Site::Down,
            .lasting = site == Site::GateUp};
  }

  void score_gate_up(int layer) {  // once per number of tokens observed: it costs a pass over the weights
    PopLayer& l = at(layer);
    if (l.scored == l.tokens) return;
    gate_up_scores(setup_->context, setup_->context.layers[static_cast<size_t>(layer)].gate_up, l.sums,
                   setup_->gate_up_norm, x_norm_, l.partition.scores);
    l.scored = l.tokens;
  }

  void score_candidates(int layer, PopLayer& l, const float* x) {
    const IndexList candidates = l.selector.candidates();
    const auto i = static_cast<size_t>(layer);
    if (setup_->decode_metric == Metric::Down) {
      setup_->context.kernels->channel_scores(x, setup_->down_norms[i].data(), candidates, l.candidate_scores.data());
      return;
    }
    unit_scorer_.score(setup_->context.layers[i].gate_up, x, setup_->gate_up_norm, candidates, 0, candidates.count,
                       unit_scores_.data());
    for (int c = 0; c < candidates.count; ++c) {
      l.candidate_scores[static_cast<size_t>(c)] = unit_scores_[static_cast<size_t>(candidates[c])];
    }
  }

  const PopSetup* setup_;
  std::vector<PopLayer> layers_;
  bool partitioned_ = false;
  TopK top_;  // scratch from here on
  UnitScorer unit_scorer_;
  std::vector<float> x_norm_, unit_scores_;
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
  setup.down_norm = options.norm.value_or(Norm::Two);
  setup.gate_up_norm = options.norm.value_or(Norm::Max);
}

void describe(const PruneOptions& options, double p, double gamma, PopSetup& setup) {
  const BlockWeights weights = count_weights(setup.context.layers);
  const auto norm = [&](Metric m) { return m == Metric::Down ? setup.down_norm : setup.gate_up_norm; };
  PrunePlan& plan = setup.plan;
  plan.method = options.method;
  plan.ffn_sparsity = p;
  plan.ratio =
      options.ffn_sparsity ? p * weights.ffn / ratio_base(options, weights) : options.ratio.value_or(kDefaultRatio);
  plan.gamma = gamma;
  plan.metric = metric_name(setup.metric);
  plan.norm = norm_name(norm(setup.metric));
  plan.prefill = options.prefill_pruned ? "pruned" : "dense";
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
  setup.sizes = partition_sizes(context.f, p, gamma);
  set_metrics(options, setup);
  describe(options, p, gamma, setup);
  if (setup.metric == Metric::Down || (setup.decode_metric == Metric::Down && setup.scores())) {
    std::vector<std::vector<Matrix>> stacks;
    for (const LayerWeights& layer : context.layers) stacks.push_back({layer.down});
    setup.down_norms = column_norm_tables(stacks, setup.down_norm, *context.pool);
  }
  return std::make_unique<PopPolicy>(std::move(setup));
}

}  // namespace pop
