// A model without some of its FFN channels, W_down repaired: Týr-the-Pruner (arXiv 2503.09657), FFN only, with a search as long as is
// asked for. An iteration prunes every layer to several numbers of channels (the supernet; prune/repair.h) and searches which
// number each layer should have (prune/level_search.h); the next one starts from what was found, with half the step.
//
// As the paper has it, and not its code, which accumulates no error as released: what a layer hands on is the mean of its
// versions' outputs, weighted by the share of channels that they keep (equation 5). Nested versions, 16 rounds or more from one
// to the next, where the code prunes each version anew in 16 rounds.
#include "prune/repair.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/float16.h"
#include "engine/impl.h"
#include "engine/top_logits.h"
#include "prune/budget.h"
#include "prune/level_search.h"
#include "prune/partition.h"
#include "tensor/layout.h"

namespace pop {
namespace {

constexpr int kLevels = 4;        // steps to either side of a layer's centre
constexpr int kLeastStep = 32;    // channels
constexpr int kRounds = 16;       // from one version of a layer to the next
constexpr int kRows = 64;         // of a product, by a thread at once
constexpr int kTopLogits = 8192;  // of the dense model, that candidates are judged on

// A layer without `removed` of its channels.
struct Version {
  int removed = 0;
  std::vector<int32_t> kept;
  Matrix down;  // bfloat16 [d, f], 0 where channels went; nothing removed: the model's own
  AlignedBuffer memory;
};
struct Layer {
  std::vector<Version> versions;  // ascending by what they lost
  int centre = 0;                 // index of the version where the search begins
};

// What a layer does to the tokens of a sequence: the residual before its FFN, and the input of its W_down.
class Capture final : public PolicyState {
 public:
  std::vector<float> residual, h;  // [n, d], [n, f]
  void observe(Site site, int, const float* x, int n, size_t ldx, int) override {
    if (site == Site::Down) h.assign(x, x + size_t(n) * ldx);
  }
  void observe_residual(int, const float* u, int n, size_t ldu, int) override {
    residual.assign(u, u + size_t(n) * ldu);
  }
  void partition() override {}
  Selection select(Site, int, std::span<const float>, int) override { return {}; }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<Capture>(*this); }
};

// A candidate of the search: another W_down in each layer.
class Candidate final : public PolicyState {
 public:
  std::vector<const Matrix*> down;  // [layers]
  int f = 0;
  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}
  Selection select_prefill(Site site, int) override {
    if (site != Site::Down) return {};
    return {.kind = Selection::Kind::Columns, .list = {nullptr, f}};
  }
  Selection select(Site, int, std::span<const float>, int) override { return {}; }
  const Matrix* repaired_down(int layer) const override { return down[size_t(layer)]; }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<Candidate>(*this); }
};

struct Piece {  // the first `tokens` of a sequence
  size_t sequence = 0, tokens = 0;
};

class Repair {
 public:
  Repair(Engine::Impl& engine, std::span<const std::vector<int32_t>> sequences, const RepairOptions& options,
         const RunHooks& hooks, int removed)
      : engine_(engine),
        model_(*engine.model),
        sequences_(sequences),
        options_(options),
        hooks_(hooks),
        run_(engine.run_context(&hooks.interrupted)),
        removed_(size_t(model_.spec.layers), removed),
        random_(options.seed) {
    size_t longest = 0;
    for (const auto& ids : sequences) longest = std::max(longest, ids.size());
    sequence_.kv = KvCache(model_.spec, engine.kv, int(longest));
    step_ = std::max(kLeastStep, int(std::lround(double(model_.spec.f) / 8)));
    of_ = size_t(options.iterations) * (size_t(model_.spec.layers) + size_t(options.generations));
  }

  RepairedModel run(double ffn_sparsity, CalibrationResult& result) {
    if (options_.iterations == 0) build_supernet(0);
    for (int i = 0; i < options_.iterations; ++i) {
      build_supernet(kLevels);
      search(uint64_t(i), result);
      step_ = std::max(kLeastStep, step_ / 2);
    }
    result.searched_tokens = tokens_;
    result.removed = removed_;
    result.search = fmt::format(
        "Tyr-FFN, reduced search: {} iterations of {} generations of {} children, judged on {} tokens, the best {} "
        "going on, seed {}; "
        "{} tokens (the paper's: 236 million)",
        options_.iterations, options_.generations, options_.offspring, fmt::join(options_.tokens, ", "),
        fmt::join(options_.survivors, ", "), options_.seed, tokens_);
    RepairedModel repaired{.ffn_sparsity = ffn_sparsity, .search = result.search, .ffns = {}};
    for (size_t l = 0; l < layers_.size(); ++l) repaired.ffns.push_back(found(l));
    return repaired;
  }

 private:
  void advance() {
    ++done_;
    if (hooks_.on_progress) hooks_.on_progress(int64_t(done_), int64_t(std::max(of_, done_)));
  }

  // Versions of every layer, from what comes out of the layers before.
  void build_supernet(int levels) {
    const auto d = size_t(model_.spec.d);
    std::vector<std::vector<float>> x;
    for (const auto& ids : sequences_) {
      std::vector<float>& rows = x.emplace_back(ids.size() * d);
      for (size_t t = 0; t < ids.size(); ++t) model_.embed(ids[t], rows.data() + t * d);
    }
    model_.release_embedding();
    layers_.clear();
    for (int l = 0; l < model_.spec.layers; ++l) {
      build_layer(l, levels, x);
      advance();
    }
  }

  void build_layer(int l, int levels, std::vector<std::vector<float>>& x) {
    const Matrix& down = model_.ffns[size_t(l)]->down;
    const auto d = size_t(down.rows), f = size_t(down.cols);
    GramMatrix gram(down.cols, engine_.kernels);
    std::vector<std::vector<float>> h;
    for (size_t s = 0; s < sequences_.size(); ++s) {  // x becomes the residual before the FFN
      const auto capture = std::make_shared<Capture>();
      run_block(l, sequences_[s], capture, x[s]);
      gram.add(capture->h.data(), int(sequences_[s].size()), f, *engine_.pool);
      h.push_back(std::move(capture->h));
      x[s] = std::move(capture->residual);
    }
    ChannelRemoval removal(std::move(gram), down, *engine_.pool);
    Layer layer;
    std::vector<double> mean(f * d);
    double weights = 0;
    for (int level = -levels; level <= levels; ++level) {
      const int wanted = removed_[size_t(l)] + level * step_;
      if (wanted < 0 || wanted > down.cols) continue;
      const int before = layer.versions.empty() ? 0 : layer.versions.back().removed;
      for (int round = 0; round < kRounds; ++round) {
        if (hooks_.interrupted && hooks_.interrupted()) throw PassInterrupted();
        removal.remove((wanted - before) * (round + 1) / kRounds - (wanted - before) * round / kRounds);
      }
      if (level == 0) layer.centre = int(layer.versions.size());
      layer.versions.push_back(version(down, wanted, removal));
      const double weight = 1 - double(wanted) / double(f);
      weights += weight;
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += weight * removal.columns()[i];
    }
    hand_on(mean, weights, h, x);
    layers_.push_back(std::move(layer));
  }

  // One sequence through one layer, as prefill computes it.
  void run_block(int layer, const std::vector<int32_t>& ids, std::shared_ptr<PolicyState> policy,
                 const std::vector<float>& x) {
    std::vector<ForwardRow> rows;
    for (const int32_t id : ids) rows.push_back({&sequence_, id, false});
    std::vector<float> out(x.size());
    sequence_.length = 0;
    sequence_.policy = std::move(policy);
    forward_block(model_, run_, engine_.scratch(int(rows.size())), Phase::Prefill, rows, layer, x, out);
  }

  Version version(const Matrix& down, int removed, const ChannelRemoval& removal) const {
    Version v{.removed = removed, .kept = removal.kept(), .down = down, .memory = {}};
    if (removed == 0) return v;
    v.down.type = DType::BF16;
    v.memory = AlignedBuffer(matrix_bytes(v.down));
    const auto d = size_t(down.rows), f = size_t(down.cols);
    std::vector<uint16_t> row(f);
    for (size_t j = 0; j < d; ++j) {
      for (size_t k = 0; k < f; ++k) row[k] = f32_to_bf16(float(removal.columns()[k * d + j]));
      write_row(v.down, int(j), reinterpret_cast<const uint8_t*>(row.data()), v.memory.data());
    }
    v.down.data = v.memory.data();
    return v;
  }

  // x += mean of the versions' outputs: the weighted mean of their matrices times h. Without a weight every channel went.
  void hand_on(const std::vector<double>& mean, double weights, const std::vector<std::vector<float>>& h,
               std::vector<std::vector<float>>& x) {
    if (weights == 0) return;
    const int d = model_.spec.d, f = int(mean.size() / size_t(d));
    Matrix w{.type = DType::F32, .layout = Layout::Columns, .rows = d, .cols = f};
    AlignedBuffer memory(matrix_bytes(w)), packed;
    w.data = memory.data();
    std::vector<float> row(mean.size() / size_t(d));
    for (int j = 0; j < d; ++j) {
      for (int k = 0; k < f; ++k) row[size_t(k)] = float(mean[size_t(k) * size_t(d) + size_t(j)] / weights);
      write_row(w, j, reinterpret_cast<const uint8_t*>(row.data()), memory.data());
    }
    for (size_t s = 0; s < x.size(); ++s) {
      const int n = int(sequences_[s].size());
      const Acts acts = float_acts(engine_.kernels, h[s].data(), n, f, size_t(f), *engine_.pool, packed);
      std::vector<float> y(x[s].size());
      engine_.pool->run((d + kRows - 1) / kRows, [&](int piece, int) {
        const int begin = piece * kRows, end = std::min(d, begin + kRows);
        engine_.kernels.gemm_columns(w, acts, begin, end, y.data(), size_t(d));
      });
      engine_.kernels.add(y.data(), int(y.size()), x[s].data());
    }
  }

  void search(uint64_t iteration, CalibrationResult& result) {
    std::vector<LevelRange> ranges;
    for (const Layer& layer : layers_) ranges.push_back({-layer.centre, int(layer.versions.size()) - 1 - layer.centre});
    LevelSearch search{.offspring = options_.offspring,
                       .generations = options_.generations,
                       .survivors = options_.survivors,
                       .seed = options_.seed + iteration,
                       .loss = [&](int stage, std::span<const Levels> candidates) { return losses(stage, candidates); },
                       .on_generation =
                           [&](int, double loss, const Levels&) {
                             result.generations.push_back(loss);
                             advance();
                           }};
    const Levels best = search.run(ranges);
    for (size_t l = 0; l < layers_.size(); ++l) {
      layers_[l].centre += best[l];
      removed_[l] = layers_[l].versions[size_t(layers_[l].centre)].removed;
    }
  }

  // Some sequences at random, the last one cut to fit.
  std::vector<Piece> draw(int tokens) {
    std::vector<Piece> pieces;
    std::vector<size_t> order(sequences_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    size_t left = size_t(tokens);
    while (left > 0 && !order.empty()) {
      const size_t at = size_t(random_() % order.size()), s = order[at];
      order.erase(order.begin() + ptrdiff_t(at));
      pieces.push_back({s, std::min(left, sequences_[s].size())});
      left -= pieces.back().tokens;
    }
    return pieces;
  }

  std::vector<double> losses(int stage, std::span<const Levels> candidates) {
    const std::vector<Piece> pieces = draw(options_.tokens[size_t(stage)]);
    std::vector<TopLogits> dense;
    run_pieces(pieces, nullptr,
               [&](std::span<const float> logits) { dense.push_back(top_logits(logits, kTopLogits)); });
    std::vector<double> sums;
    for (const Levels& levels : candidates) {
      const auto candidate = std::make_shared<Candidate>();
      candidate->f = model_.spec.f;
      for (size_t l = 0; l < layers_.size(); ++l)
        candidate->down.push_back(&layers_[l].versions[size_t(layers_[l].centre + levels[l])].down);
      double sum = 0;
      size_t at = 0;
      run_pieces(pieces, candidate, [&](std::span<const float> logits) { sum += top_divergence(dense[at++], logits); });
      sums.push_back(sum / double(std::max<size_t>(at, 1)));
    }
    return sums;
  }

  // Every position of some texts but their last ones.
  template <class Sink>
  void run_pieces(std::span<const Piece> pieces, const std::shared_ptr<PolicyState>& policy, Sink&& sink) {
    sequence_.policy = policy;
    for (const Piece& piece : pieces) {
      const std::vector<int32_t>& ids = sequences_[piece.sequence];
      sequence_.length = 0;
      for (size_t at = 0, n = 0; at < piece.tokens; at += n) {
        n = std::min(piece.tokens - at, size_t(engine_.options.prefill_chunk));
        std::vector<ForwardRow> rows;
        for (size_t i = at; i < at + n; ++i) rows.push_back({&sequence_, ids[i], i + 1 < piece.tokens});
        forward(model_, run_, engine_.scratch(int(n)), Phase::Prefill, rows,
                [&](int, std::span<const float> logits) { sink(logits); });
      }
      tokens_ += piece.tokens;
    }
  }

  RepairedFfn found(size_t layer) const {
    const Version& v = layers_[layer].versions[size_t(layers_[layer].centre)];
    RepairedFfn ffn{.kept = v.kept, .down = {}};
    std::vector<float> row(size_t(v.down.cols));
    for (int j = 0; j < v.down.rows && v.removed > 0; ++j) {
      read_row(v.down, j, row.data());
      for (const int32_t k : v.kept) ffn.down.push_back(f32_to_bf16(row[size_t(k)]));
    }
    return ffn;
  }

  Engine::Impl& engine_;
  const Model& model_;
  std::span<const std::vector<int32_t>> sequences_;
  const RepairOptions& options_;
  const RunHooks& hooks_;
  RunContext run_;
  Sequence sequence_;         // of whatever runs
  std::vector<int> removed_;  // [layers] channels
  std::mt19937_64 random_;
  std::vector<Layer> layers_;
  int step_ = 0;         // channels from one version of a layer to the next
  uint64_t tokens_ = 0;  // that the search ran
  size_t done_ = 0, of_ = 0;
};

}  // namespace

void Engine::Impl::repair(std::span<const std::vector<int32_t>> sequences, const RepairOptions& options,
                          const RunHooks& hooks, Calibration& calibration, CalibrationResult& result) {
  PruneOptions ratio;
  ratio.ratio = options.ratio;
  const int f = model->spec.f, removed = f - kept_channels(f, ffn_sparsity(ratio, count_weights(model->layers)));
  calibration.repaired = Repair(*this, sequences, options, hooks, removed).run(double(removed) / double(f), result);
}

}  // namespace pop
