// What to skip: the interface between a forward pass and a pruning method.
//
// A Policy is made once per model and option set and shared; it outlives its states. A PolicyState belongs to one
// sequence. Neither knows the model: they get spans of floats and give back ascending index lists. The dense model is
// the policy that selects everything.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "tensor/matrix.h"

namespace pop {

// The four places of a block where an input meets its matrices (pop-method section 8b), named by that input:
//   Qkv     x after the attention norm [d]         q_proj, k_proj, v_proj
//   O       attention output [heads * head_dim]    o_proj
//   GateUp  x after the FFN norm [d]               gate_proj and up_proj, one unit-2 matrix of f channels
//   Down    h = act(gate) * up [f]                 down_proj
enum class Site : uint8_t { Qkv, O, GateUp, Down };
constexpr int kSites = 4;
constexpr bool of_ffn(Site site) { return site == Site::GateUp || site == Site::Down; }
const char* site_name(Site site);               // "qkv", "o", "gate_up", "down"
using SiteLevels = std::array<double, kSites>;  // the share of a site's input columns that is to be skipped

// What of a site's matrices one token uses. Rows: output units (only at GateUp: FFN channels). Columns: input channels.
struct Selection {
  enum class Kind : uint8_t { Full, Rows, Columns } kind = Kind::Full;
  IndexList list;  // ascending; valid until the next select() at this site and in this layer of this state
  // Columns: true (POP) if unlisted inputs are 0 before x is prepared in blocks: a pruned channel has no h at all;
  // false (pop+) if blocks are formed from the whole x and masked after.
  bool zero_rest = false;
  bool lasting = false;  // this list serves every token until the next partition(): what is derived from it may be kept
};

// One feed-forward network. A dense layer has one; a mixture of experts has one per expert and, where tokens also go through
// a shared expert, that one last (docs/decisions/moe.md).
struct FfnWeights {
  Matrix gate_up;   // [2f, d], unit 2
  Matrix down;      // [d, f]
  int layer = 0;    // it belongs to
  int expert = -1;  // number among those that a router chooses from; -1: every token goes through it
  double use = 1;   // share of the tokens that go through it: of E experts k are chosen, k / E
  int f() const { return down.cols; }
};

// Dense: the one of a layer without experts. Routed: a router chooses it. Shared: every token goes through it beside those.
enum class FfnKind : uint8_t { Dense, Routed, Shared };
constexpr int kFfnKinds = 3;
const char* ffn_kind_name(FfnKind kind);  // "dense", "routed", "shared"

// The weights a policy may look at, per layer. Views; they outlive the policy.
struct LayerWeights {
  Matrix q, k, v, o;             // [q_dim, d], [kv_dim, d], [kv_dim, d], [d, q_dim]
  std::vector<FfnWeights> ffns;  // at least one
  // Of a mixture of experts, else of no rows; always read whole, and no part of what ratios are shares of.
  Matrix router = {}, shared_gate = {};  // [experts, d]; [1, d]: none without a shared expert
};

inline FfnKind kind_of(const LayerWeights& layer, const FfnWeights& ffn) {
  return ffn.expert >= 0 ? FfnKind::Routed : layer.router.rows > 0 ? FfnKind::Shared : FfnKind::Dense;
}

// All FFNs of some layers in order: an FFN's place in this list is its number everywhere.
std::vector<const FfnWeights*> ffns_of(std::span<const LayerWeights> layers);

struct PolicyContext {
  std::span<const LayerWeights> layers;
  std::vector<const FfnWeights*> ffns;      // ffns_of(layers); of a model without experts an FFN has its layer's number
  int d = 0, f = 0, q_dim = 0, kv_dim = 0;  // f: of the widest FFN
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;  // for the work at creation and in partition(); regions are never nested

  int width(Site site) const {  // of its input
    const int widths[kSites] = {d, q_dim, d, f};
    return widths[static_cast<int>(site)];
  }
  bool has_experts() const {
    return std::any_of(ffns.begin(), ffns.end(), [](const FfnWeights* ffn) { return ffn->expert >= 0; });
  }
};

enum class Metric : uint8_t { Down, GateUp };
enum class RatioOf : uint8_t { Blocks, Active, Total };
enum class RandomEvery : uint8_t { Sequence, Token };
enum class FewTokens : uint8_t { Layer, Dense };  // what an expert falls back on, pop-method section 7
enum class PlusRule : uint8_t { Prompt, Sites };  // spread_level, prune/allocation.h
enum class RepairedAs : uint8_t { Model, BF16 };  // the type of repaired weights: the matrix's own, or bfloat16

const char* metric_name(Metric metric);  // "down", "gate-up"
const char* norm_name(Norm norm);        // "1", "2", "max"

struct Calibration;  // prune/calibration.h

// Everything a user may say about pruning (docs/cli.md). A method refuses options that do not apply to it.
struct PruneOptions {
  std::string method = "dense";
  std::optional<double> ratio;         // r, share of the blocks' weights; default 0.2 for methods that prune
  std::optional<double> ffn_sparsity;  // p, share of the FFN channels; excludes ratio
  RatioOf ratio_of = RatioOf::Blocks;
  uint64_t total_weights = 0;   // all weights of the model, for RatioOf::Total; set by the engine
  std::optional<double> gamma;  // candidate width, [0, 2]
  std::optional<Metric> metric, decode_metric;
  std::optional<Norm> norm;
  bool prefill_pruned = false;
  // Of a mixture of experts: one that fewer prompt tokens went through has no statistics of its own.
  std::optional<int> min_tokens;
  FewTokens few_tokens = FewTokens::Layer;
  std::string match;  // read as much per token as this method does at `ratio` (prune/methods/match.h)
  std::shared_ptr<const Calibration> calibration;  // for methods that need one; null: not given
  uint64_t seed = 1;                               // `random`
  RandomEvery random_every = RandomEvery::Sequence;
  PlusRule plus_rule = PlusRule::Sites;
  RepairedAs repaired = RepairedAs::Model;     // tyr
  bool refresh = false, refresh_last = false;  // given: the engine calls partition() again during the answer
};

// What the options came to; printed with every result.
struct PrunePlan {
  std::string method;
  double ratio = 0, ffn_sparsity = 0, gamma = 0, level = 0;  // level: v, the share of the weights that columns skip
  SiteLevels levels = {};                                    // what it comes to at each site
  std::string metric, decode_metric, norm,
      prefill;              // empty where it does not apply; norm "2, max": the two metrics differ
  std::string plus_rule;    // pop+: prompt, sites
  int min_tokens = 0;       // of a mixture of experts, else 0
  std::string few_tokens;   // layer, dense
  std::string repaired;     // tyr: model, bf16
  std::string calibration;  // the text it rests on; empty: none
};

// Coarse partition of one FFN; sorted ascending.
struct Partition {
  std::vector<int32_t> retained, candidate, pruned;
  std::vector<float> scores;  // [f], prefill importance
};

class PolicyState {
 public:
  virtual ~PolicyState() = default;

  // Where `place` stands it is a layer at Qkv and O, and the number of an FFN (PolicyContext::ffns) at GateUp and Down.

  // Prefill: the inputs of n prompt tokens at a site, x : [n, width] with row stride ldx; first_pos is the first one's position,
  // the others follow it (of an expert, those that go through it, ascending). Called at every site, layers ascending
  // within a chunk, chunks ascending; experts ascending. Runs a region of the pool itself: observe, select_prefill
  // and partition are called from outside of one.
  virtual void observe(Site site, int place, const float* x, int n, size_t ldx, int first_pos) = 0;

  // Prefill: the inputs of a layer's router, all tokens of the chunk, x : [n, d]. Called before the experts' observe(GateUp).
  virtual void observe_router(int /*layer*/, const float* /*x*/, int /*n*/, size_t /*ldx*/, int /*first_pos*/) {}

  // Prefill: the residual stream where a layer's FFN begins, before its norm, u : [n, d]. Called before observe(GateUp).
  virtual void observe_residual(int /*layer*/, const float* /*u*/, int /*n*/, size_t /*ldu*/, int /*first_pos*/) {}

  // True: the gates decide. Decode computes them first, and x of select(GateUp) is act(gate) : [f]; the up rows of what it
  // selects (Rows) follow. Prefill shows them token by token to observe_gates, after observe(GateUp).
  virtual bool gate_first() const { return false; }
  virtual void observe_gates(int /*ffn*/, std::span<const float> /*gates*/) {}

  // --prefill pruned: what the prompt computes at GateUp (Rows) and Down (the same channels), from all that this
  // layer's GateUp has observed: with it the prompt goes layer by layer, all of its chunks observed before. Full by
  // default.
  virtual Selection select_prefill(Site, int /*place*/) { return {}; }

  // Prefill has ended, decode begins: fixes partitions and thresholds from what was observed so far. May be called
  // again after more prefill. Throws Error if the method needs the prompt and some layer observed nothing.
  virtual void partition() = 0;

  // Decode: what the token at `position` uses at a site, given its input x : [width]. Depends on x, position and
  // partition() alone, never on other tokens decoded in between. In an FFN, GateUp of a token comes before its Down
  // and no other token's select() of this state stands between the two (what Down keeps may rest on the input of
  // GateUp). x at Down needs to be defined on the channels that GateUp selected only. Runs on the calling thread alone
  // and allocates nothing, but for an expert that this sequence has not met before. Throws Error if partition() was not called.
  virtual Selection select(Site site, int place, std::span<const float> x, int position) = 0;

  // Added to the FFN's output of every token whose FFN leaves channels out, [d]; empty: nothing is.
  virtual std::span<const float> ffn_bias(int /*ffn*/) const { return {}; }

  // In place of the FFN's W_down, of the same shape, wherever the method leaves channels out (their columns are 0 or never
  // read); null: W_down as it is.
  virtual const Matrix* repaired_down(int /*ffn*/) const { return nullptr; }

  // Channels that any token of this sequence may use at a site (R and C), for packing; Full if that is everything.
  virtual Selection reachable(Site, int /*place*/) const { return {}; }

  // For --dump-partition and `score`: null if the method has none, or none of this FFN.
  virtual const Partition* ffn_partition(int /*ffn*/) const { return nullptr; }
  // --dump-partition: makes those partitions too that would wait until decode meets their expert.
  virtual void partition_all() {}
  struct SiteThreshold {
    double level = 0;
    float tau = 0;
    uint64_t counted = 0;
  };
  virtual std::optional<SiteThreshold> threshold(Site, int /*place*/) const { return std::nullopt; }

  // An equal state that goes its own way (a cached prefix, several answers to one prompt).
  virtual std::unique_ptr<PolicyState> clone() const = 0;

  // How many select() calls chose from a list (ratio 0 must go through the same path: a test reads this).
  uint64_t selections = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual const PrunePlan& plan() const = 0;
  virtual bool prunes() const { return true; }  // false: dense, the forward pass asks nothing
  // True if two tokens of one sequence must not stand in the same layer at once: the list of GateUp changes from token to
  // token, or Down rests on the input of GateUp.
  virtual bool one_token_at_a_time() const { return false; }
  virtual std::unique_ptr<PolicyState> begin() const = 0;
};

}  // namespace pop
