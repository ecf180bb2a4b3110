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
  SiteNorms norms;

  // A layer's, also of its experts.
  size_t entry(Site site, int place) const {
    const int layer = of_ffn(site) ? context.ffns[static_cast<size_t>(place)]->layer : place;
    return static_cast<size_t>(layer) * kSites + static_cast<size_t>(site);
  }
  const std::vector<float>& norms_of(Site site, int place) const {
    return norms[static_cast<size_t>(site)][static_cast<size_t>(place)];
  }
  int at_least(Site site, size_t width) const {  // m
    return static_cast<int>(std::ceil((1 - plan.levels[static_cast<size_t>(site)]) * static_cast<double>(width) / 8));
  }
  int entries() const { return static_cast<int>(context.layers.size()) * kSites; }
  int widest() const { return std::max({context.d, context.q_dim, context.f}); }
};

struct PlusEntry {  // of one layer and site: of all its experts together
  ScoreHistogram counts;
  // Position 0 is an outlier; it counts only until another has come.
  enum class Holds : uint8_t { Nothing, First, Later } holds = Holds::Nothing;
  float tau = 0;
  uint64_t counted = 0;
  std::vector<int32_t> list;  // [width of the widest + 16]
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
    for (const Site site : {Site::Qkv, Site::O, Site::GateUp, Site::Down}) {
      const auto& of_site = setup.norms[static_cast<size_t>(site)];
      for (size_t place = 0; place < of_site.size(); ++place) {
        std::vector<int32_t>& list = entries_[setup.entry(site, static_cast<int>(place))].list;
        list.resize(std::max(list.size(), of_site[place].size() + 16));
      }
    }
    for (PlusScratch& s : scratch_) s.scores.resize(static_cast<size_t>(setup.widest()));
  }

  void observe(Site site, int place, const float* x, int n, size_t ldx, int first_pos) override {
    PlusEntry& entry = entries_[setup_->entry(site, place)];
    const std::vector<float>& norms = setup_->norms_of(site, place);
    if (first_pos == 0) {
      if (n == 1 && entry.holds != PlusEntry::Holds::Later) {
        entry.holds = PlusEntry::Holds::First;
        return count(entry, norms, x, 1, ldx);
      }
      x += ldx;
      --n;
    }
    if (n == 0) return;
    if (entry.holds == PlusEntry::Holds::First) entry.counts.clear();
    entry.holds = PlusEntry::Holds::Later;
    count(entry, norms, x, n, ldx);
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

  Selection select(Site site, int place, std::span<const float> x, int) override {
    if (!partitioned_) fail("select: expected partition() before the first decoded token");
    PlusEntry& entry = entries_[setup_->entry(site, place)];
    const std::vector<float>& norms = setup_->norms_of(site, place);
    const int width = static_cast<int>(norms.size()), least = setup_->at_least(site, norms.size());
    int kept = setup_->context.kernels->select_scores(x.data(), norms.data(), width, entry.tau, entry.list.data());
    if (kept < least) kept = select_best(score(norms, x.data(), scratch_.front()), least, top_, entry.list.data());
    ++selections;
    return {.kind = Selection::Kind::Columns, .list = {entry.list.data(), kept}, .zero_rest = false};
  }

  std::optional<SiteThreshold> threshold(Site site, int place) const override {
    if (!partitioned_) return std::nullopt;
    const PlusEntry& entry = entries_[setup_->entry(site, place)];
    return SiteThreshold{
        .level = setup_->plan.levels[static_cast<size_t>(site)], .tau = entry.tau, .counted = entry.counted};
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<PlusState>(*this); }

 private:
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
  setup.norms = site_column_norms(context);
  return std::make_unique<PlusPolicy>(std::move(setup));
}

}  // namespace pop
