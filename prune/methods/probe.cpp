// probe: Probe Pruning (arXiv 2502.15618), its FFN half, after its code. Of the prompt the positions with the largest residual are
// the probe; what their h comes to, fused with a history from calibration, scores the channels by PPsp,
//   S_k = c_k * sqrt(sum_i W_down[i,k]^4),   c_k = sum over the probe's positions of (e^2 + g^2) / (e + g),
// e the probe's h_k^2 and g the history's at that position. The first layers are spared, the others pruned the more. The
// reference has no decoding: here the prompt's mask is frozen for the answer.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "prune/budget.h"
#include "prune/calibration.h"
#include "prune/methods/mask.h"
#include "prune/methods/methods.h"
#include "prune/methods/setup_policy.h"
#include "tensor/layout.h"

namespace pop {
namespace {

constexpr double kPositions = 0.5;         // share of the prompt's positions in the probe, and at least two
constexpr size_t kReplaceFirst = 10;       // of so few the first is replaced by position 0
constexpr int kSpared = 3, kSparedOf = 4;  // layers at the beginning: three, of models with fewer than twelve a quarter
constexpr int kPiece = 256;                // channels per piece of parallel work

struct ProbeSetup {
  PolicyContext context;
  PrunePlan plan;
  std::vector<PartitionSizes> sizes;              // [layers]
  std::vector<std::vector<double>> column_norms;  // [layers][f] sqrt(sum_i W_down[i,k]^4)
  std::shared_ptr<const Calibration> history;     // null, or without positions: none
};

struct ProbeLayer {
  std::vector<double> residual;  // [positions] squares of the residual, summed over the sequences that share this state
  std::vector<double> energy;    // [positions][f] squares of h, likewise
  std::vector<int> sequences;    // [positions]
};

// The probe's positions, ascending: the largest residuals, of equals the lower position. With ten or fewer the reference
// overwrites the first of them by position 0, whichever it was.
std::vector<size_t> probe_positions(const std::vector<double>& residual) {
  const auto all = static_cast<double>(residual.size());
  const auto count = std::min(residual.size(), static_cast<size_t>(std::max(2.0, std::ceil(kPositions * all))));
  std::vector<size_t> chosen(residual.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) { return residual[a] > residual[b]; });
  chosen.resize(count);
  std::sort(chosen.begin(), chosen.end());
  if (count <= kReplaceFirst) chosen.front() = 0;
  return chosen;
}

double fused(double e, double g) {
  const double w = e / (e + g + 1e-6);
  return w * e + (1 - w) * g;
}

class ProbeState final : public PromptMaskState {
 public:
  explicit ProbeState(const ProbeSetup& setup)
      : PromptMaskState(setup.context, setup.sizes), setup_(&setup), layers_(setup.sizes.size()) {}

  void observe_residual(int layer, const float* u, int n, size_t ldu, int first_pos) override {
    ProbeLayer& l = layer_up_to(layer, first_pos + n);
    for (int t = 0; t < n; ++t) {
      const float* row = u + static_cast<size_t>(t) * ldu;
      double& sum = l.residual[static_cast<size_t>(first_pos + t)];
      for (int i = 0; i < context_.d; ++i) {
        const auto value = static_cast<double>(row[i]);
        sum += std::isfinite(value) ? value * value : 0;  // so that the order is one
      }
    }
  }

  void observe(Site site, int layer, const float* x, int n, size_t ldx, int first_pos) override {
    if (site != Site::Down) return;
    ProbeLayer& l = layer_up_to(layer, first_pos + n);
    const int f = context_.f;
    context_.pool->run((f + kPiece - 1) / kPiece, [&](int piece, int) {
      const int begin = piece * kPiece, end = std::min(begin + kPiece, f);
      for (int t = 0; t < n; ++t) {
        const float* h = x + static_cast<size_t>(t) * ldx;
        double* energy = l.energy.data() + static_cast<size_t>(first_pos + t) * static_cast<size_t>(f);
        for (int i = begin; i < end; ++i) energy[i] += static_cast<double>(h[i]) * static_cast<double>(h[i]);
      }
    });
    for (int t = 0; t < n; ++t) ++l.sequences[static_cast<size_t>(first_pos + t)];
    tokens_[static_cast<size_t>(layer)] += static_cast<uint64_t>(n);
  }

  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<ProbeState>(*this); }

 private:
  // A layer with room for positions 0 .. end-1.
  ProbeLayer& layer_up_to(int layer, int end) {
    ProbeLayer& l = layers_[static_cast<size_t>(layer)];
    const auto positions = static_cast<size_t>(end);
    if (l.residual.size() < positions) {
      l.residual.resize(positions);
      l.sequences.resize(positions);
      l.energy.resize(positions * static_cast<size_t>(context_.f));
    }
    return l;
  }

  void score(int layer, std::span<float> scores) const override {
    const auto i = static_cast<size_t>(layer), f = scores.size();
    const ProbeLayer& l = layers_[i];
    const std::vector<size_t> positions = probe_positions(l.residual);
    for (size_t k = 0; k < f; ++k) {
      double c = 0;
      for (const size_t t : positions) {
        const double e = l.energy[t * f + k] / l.sequences[t];
        const double* g = history(i, t);
        c += g == nullptr ? e : fused(e, g[k] / static_cast<double>(setup_->history->sequences));
      }
      scores[k] = static_cast<float>(c * setup_->column_norms[i][k]);
    }
  }

  // Sums of squares at a position, [f]; beyond the last one that was kept, those of the last one.
  const double* history(size_t layer, size_t position) const {
    if (!setup_->history || setup_->history->positions == 0) return nullptr;
    const size_t last = static_cast<size_t>(setup_->history->positions) - 1;
    return setup_->history->ffns[layer].history.data() + std::min(position, last) * static_cast<size_t>(context_.f);
  }

  const ProbeSetup* setup_;
  std::vector<ProbeLayer> layers_;
};

using ProbePolicy = SetupPolicy<ProbeState, ProbeSetup>;

std::vector<double> fourth_powers(const Matrix& down) {
  std::vector<float> row(static_cast<size_t>(down.cols));
  std::vector<double> sums(row.size());
  for (int j = 0; j < down.rows; ++j) {
    read_row(down, j, row.data());
    for (size_t k = 0; k < row.size(); ++k) {
      const double square = static_cast<double>(row[k]) * static_cast<double>(row[k]);
      sums[k] += square * square;
    }
  }
  for (double& sum : sums) sum = std::sqrt(sum);
  return sums;
}

}  // namespace

std::unique_ptr<Policy> create_probe(const PruneOptions& options, const PolicyContext& context) {
  ProbeSetup setup{.context = context,
                   .plan = mask_plan(options, context),
                   .sizes = {},
                   .column_norms = {},
                   .history = options.calibration};
  const int layers = static_cast<int>(context.layers.size()), spared = std::min(kSpared, layers / kSparedOf);
  const double p = setup.plan.ffn_sparsity, share = static_cast<double>(layers - spared) / layers;
  if (p > share + 1e-12)
    fail("--ratio: method probe spares the first {} of {} layers: expected an FFN sparsity of at most {:.4f}, found {}",
         spared, layers, share, p);
  for (int i = 0; i < layers; ++i) {
    setup.sizes.push_back(partition_sizes(context.f, i < spared ? 0 : std::min(1.0, p / share), 0));
  }
  setup.column_norms.resize(static_cast<size_t>(layers));
  context.pool->run(layers, [&](int i, int) {
    setup.column_norms[static_cast<size_t>(i)] = fourth_powers(context.ffns[static_cast<size_t>(i)]->down);
  });
  return std::make_unique<ProbePolicy>(std::move(setup));
}

}  // namespace pop
