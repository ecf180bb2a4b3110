// pop+: selection on the input side of every matrix (pop-method section 8b). An input channel's score |x_k| *
// ||W[:,k]|| is known before W is read; the prompt's scores give each site a threshold, each token keeps what reaches
// it. The score is WINA's (arXiv 2505.19427, with a fixed top-k per token); thresholds on |x| calibrated offline are
// TEAL's (arXiv 2408.14690). The threshold from the prompt is ours.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "prune/allocation.h"
#include "prune/budget.h"
#include "prune/histogram.h"
#include "prune/importance.h"
#include "prune/methods/match.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"
#include "prune/select.h"

namespace pop {
namespace {

constexpr int kTokensPerPiece = 8;

struct PlusSetup {
  PolicyContext context;
  PrunePlan plan;
  std::vector<std::vector<float>> norms;  // [layers * kSites][width]
  int at_least[kSites] = {};              // m

  int entries() const { return static_cast<int>(context.layers.size()) * kSites; }
  int widest() const { return std::max({context.d, context.q_dim, context.f}); }
};

struct PlusEntry {  // of one layer and site
  ScoreHistogram counts;
  bool only_first = false;  // counts hold position 0 alone, until a later one comes
  float tau = 0;
  uint64_t counted = 0;
  std::vector<int32_t> list;  // [width + 16]
};

struct PlusScratch {  // of one thread
  std::vector<float> scores;
  ScoreHistogram counts;
};

class PlusState final : public PolicyState {
 public:
  explicit PlusState(const PlusSetup& setup)
      : setup_(&setup),
        entries_(static_cast<size_t>(setup.entries())),
        scratch_(static_cast<size_t>(setup.context.pool->threads())),
        top_(setup.widest()) {
    for (size_t i = 0; i < entries_.size(); ++i) entries_[i].list.resize(setup.norms[i].size() + 16);
    for (PlusScratch& s : scratch_) s.scores.resize(static_cast<size_t>(setup.widest()));
  }

  void observe(Site site, int layer, const float* x, int n, size_t ldx, int first_pos) override {
    const size_t i = index(site, layer);
    PlusEntry& entry = entries_[i];
    if (first_pos == 0 && n == 1) {
      entry.only_first = true;
    } else if (first_pos == 0) {  // position 0 is an outlier; it counts only where there is nothing else
      x += ldx;
      --n;
    }
    if (entry.only_first && first_pos > 0 && n > 0) {
      entry.counts.clear();
      entry.only_first = false;
    }
    count(entry, setup_->norms[i], x, n, ldx);
  }

  void partition() override {
    for (size_t i = 0; i < entries_.size(); ++i) {
      PlusEntry& entry = entries_[i];
      entry.counted = entry.counts.total();
      if (entry.counted == 0) {
        fail("thresholds: layer {} has observed no prompt token at site {}", i / kSites, site_name(Site(i % kSites)));
      }
      entry.tau = entry.counts.quantile(setup_->plan.levels[i % kSites]);
    }
    partitioned_ = true;
  }

  Selection select(Site site, int layer, std::span<const float> x, int) override {
    if (!partitioned_) fail("select: expected partition() before the first decoded token");
    const size_t i = index(site, layer);
    PlusEntry& entry = entries_[i];
    const std::vector<float>& norms = setup_->norms[i];
    const int width = static_cast<int>(norms.size()), least = setup_->at_least[static_cast<int>(site)];
    int kept = setup_->context.kernels->select_scores(x.data(), norms.data(), width, entry.tau, entry.list.data());
    if (kept < least) kept = select_best(score(norms, x.data(), scratch_.front()), least, top_, entry.list.data());
    ++selections;
    return {.kind = Selection::Kind::Columns, .list = {entry.list.data(), kept}, .zero_rest = false};
  }

  std::optional<SiteThreshold> threshold(Site site, int layer) const override {
    if (!partitioned_) return std::nullopt;
    const PlusEntry& entry = entries_[index(site, layer)];
    return SiteThreshold{
        .level = setup_->plan.levels[static_cast<size_t>(site)], .tau = entry.tau, .counted = entry.counted};
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<PlusState>(*this); }

 private:
  static size_t index(Site site, int layer) { return static_cast<size_t>(layer) * kSites + static_cast<size_t>(site); }

  std::span<float> score(std::span<const float> norms, const float* x, PlusScratch& scratch) const {
    const std::span<float> scores = std::span(scratch.scores).first(norms.size());
    setup_->context.kernels->channel_scores(x, norms.data(), {nullptr, static_cast<int>(norms.size())}, scores.data());
    return scores;
  }

  void count(PlusEntry& entry, std::span<const float> norms, const float* x, int n, size_t ldx) {
    setup_->context.pool->run((n + kTokensPerPiece - 1) / kTokensPerPiece, [&](int piece, int thread) {
      PlusScratch& scratch = scratch_[static_cast<size_t>(thread)];
      const int begin = piece * kTokensPerPiece, end = std::min(begin + kTokensPerPiece, n);
      for (int t = begin; t < end; ++t) {
        scratch.counts.add(score(norms, x + static_cast<size_t>(t) * ldx, scratch));
      }
    });
    for (PlusScratch& scratch : scratch_) {
      entry.counts.add(scratch.counts);
      scratch.counts.clear();
    }
  }

  const PlusSetup* setup_;
  std::vector<PlusEntry> entries_;  // [layers * kSites]
  bool partitioned_ = false;
  std::vector<PlusScratch> scratch_;  // [threads]
  TopK top_;
};

using PlusPolicy = SetupPolicy<PlusState, PlusSetup>;

}  // namespace

std::unique_ptr<Policy> create_pop_plus(const PruneOptions& options, const PolicyContext& context) {
  PlusSetup setup;
  setup.context = context;
  setup.plan.method = options.method;
  setup.plan.ratio = options.ratio.value_or(kDefaultRatio);
  setup.plan.level = options.match.empty() ? column_level(options, count_weights(context.layers))
                                           : matched_level(options, context, options.plus_rule);
  setup.plan.levels = spread_level(context.layers, setup.plan.level, options.plus_rule);
  setup.plan.plus_rule = options.plus_rule == PlusRule::Sites ? "sites" : "prompt";
  for (int s = 0; s < kSites; ++s) {
    setup.at_least[s] = static_cast<int>(std::ceil((1 - setup.plan.levels[s]) * setup.context.width(Site(s)) / 8));
  }
  setup.norms = site_column_norms(context);
  return std::make_unique<PlusPolicy>(std::move(setup));
}

}  // namespace pop
