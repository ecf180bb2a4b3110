#include "prune/registry.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "prune/methods/methods.h"

namespace pop {
namespace {

constexpr const char* kPopOptions[] = {"ratio", "ffn-sparsity", "ratio-of",   "gamma",      "metric",  "decode-metric",
                                       "norm",  "prefill",      "min-tokens", "few-tokens", "refresh", "refresh-last"};
constexpr const char* kFixedOptions[] = {"ratio",   "ffn-sparsity", "ratio-of",   "metric",  "norm",
                                         "prefill", "min-tokens",   "few-tokens", "refresh", "refresh-last"};
constexpr const char* kFullOptions[] = {"ratio",   "ffn-sparsity", "ratio-of",   "metric",  "decode-metric", "norm",
                                        "prefill", "min-tokens",   "few-tokens", "refresh", "refresh-last"};
constexpr const char* kRandomOptions[] = {"ratio",   "ffn-sparsity", "ratio-of",    "match",
                                          "prefill", "seed",         "random-every"};
constexpr const char* kStaticOptions[] = {"ratio", "ffn-sparsity", "ratio-of", "match", "prefill"};
constexpr const char* kCalibratedOptions[] = {"ratio", "ffn-sparsity", "ratio-of", "match", "prefill", "calibration"};
constexpr const char* kTyrOptions[] = {"prefill", "calibration", "repaired"};
constexpr const char* kPromptMaskOptions[] = {"ratio", "ffn-sparsity", "ratio-of", "match", "refresh", "refresh-last"};
constexpr const char* kProbeOptions[] = {"ratio", "ffn-sparsity", "ratio-of", "match", "calibration"};
constexpr const char* kCatsOptions[] = {"ratio", "ffn-sparsity", "ratio-of", "calibration"};
constexpr const char* kCalibratedColumnOptions[] = {"ratio", "ratio-of", "match", "calibration"};
constexpr const char* kColumnOptions[] = {"ratio", "ratio-of", "match"};
constexpr const char* kPlusOptions[] = {"ratio", "ratio-of", "match", "plus-rule", "refresh", "refresh-last"};

constexpr const char* kCalibrationText = "calibration text";

constexpr MethodInfo kMethods[] = {
    {"dense", "every weight, every token", "-", "nothing", "nothing", "exact", {}, true, create_dense},
    {"pop",
     "FFN channels: the prompt sets retained, candidate and pruned ones, each token chooses among the candidates",
     "arXiv 2602.06822", "prompt", "rows", "exact", kPopOptions, true, create_pop},
    {"pop+", "input channels of every matrix: thresholds from the prompt, each token keeps what reaches them", "ours",
     "prompt", "columns", "threshold", kPlusOptions, true, create_pop_plus},
    {"fixed", "pop without candidates: the prompt's mask for the whole answer", "arXiv 2602.06822, variant 1", "prompt",
     "rows", "exact", kFixedOptions, true, create_pop},
    {"full", "pop with every channel as a candidate: gate and up are read whole, down is pruned",
     "arXiv 2602.06822, variant 2", "prompt", "rows", "exact", kFullOptions, true, create_pop},
    {"random", "FFN channels by lot: what every importance has to beat", "-", "nothing", "rows", "exact",
     kRandomOptions, true, create_random},
    {"magnitude", "FFN channels by the norm of their weights: no text decides", "-", "nothing", "rows", "exact",
     kStaticOptions, true, create_magnitude},
    {"wanda_sp", "FFN channels by weights and activations of a text, the same share in every layer",
     "Wanda-sp, of FLAP's authors", kCalibrationText, "rows", "exact", kCalibratedOptions, true, create_calibrated},
    {"flap", "FFN channels by how much they fluctuate on a text, ranked over all layers; a bias stands in for them",
     "FLAP, arXiv 2312.11983", kCalibrationText, "rows", "total", kCalibratedOptions, true, create_flap},
    {"tyr", "FFN channels and their number per layer by a search on a text; W_down repaired by least squares",
     "Tyr-the-Pruner, arXiv 2503.09657", kCalibrationText, "rows", "total", kTyrOptions, false, create_tyr},
    {"task-fixed", "the mask of `fixed`, taken from a task's prompt (pop calibrate) and used for all of its inputs",
     "ours, after arXiv 2501.02086", kCalibrationText, "rows", "exact", kCalibratedOptions, true, create_calibrated},
    {"probe",
     "FFN channels by a probe, half of the prompt's positions, and a history if one is given; kept for the answer",
     "Probe Pruning, arXiv 2502.15618", "prompt", "rows", "exact", kProbeOptions, false, create_probe},
    {"griffin", "FFN channels that were strongest over the prompt, each token normalised; kept for the whole answer",
     "GRIFFIN, arXiv 2404.01365", "prompt", "rows", "exact", kPromptMaskOptions, false, create_griffin},
    {"wina", "input channels of every matrix: the score of pop+, the best k of each token", "WINA, arXiv 2505.19427",
     "nothing", "columns", "exact", kColumnOptions, true, create_wina},
    {"teal", "input channels of every matrix by |x| alone, thresholds from a text, shared out over sites by a search",
     "TEAL, arXiv 2408.14690", kCalibrationText, "columns", "threshold", kCalibratedColumnOptions, false, create_teal},
    {"cats", "FFN channels whose gate reaches a threshold from a text: up and down are read for these only",
     "CATS, arXiv 2404.08763", kCalibrationText, "rows", "threshold", kCatsOptions, false, create_cats},
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

const MethodInfo& find_method(std::string_view name) {
  const std::string_view start = name.substr(0, 64);  // what is longer is no typing error
  const MethodInfo* nearest = nullptr;
  size_t least = 0;
  for (const MethodInfo& method : kMethods) {
    if (name == method.name) return method;
    const size_t distance = edit_distance(start, method.name);
    if (nearest == nullptr || distance < least) {
      nearest = &method;
      least = distance;
    }
  }
  fail("--prune: expected a method (see `pop methods`), found \"{}\"; the nearest is {}", printable(name),
       nearest->name);
}

void check_options(const MethodInfo& method, const PruneOptions& o) {
  const std::pair<const char*, bool> given[] = {{"ratio", o.ratio.has_value()},
                                                {"ffn-sparsity", o.ffn_sparsity.has_value()},
                                                {"ratio-of", o.ratio_of != RatioOf::Blocks},
                                                {"gamma", o.gamma.has_value()},
                                                {"metric", o.metric.has_value()},
                                                {"decode-metric", o.decode_metric.has_value()},
                                                {"norm", o.norm.has_value()},
                                                {"prefill", o.prefill_pruned},
                                                {"min-tokens", o.min_tokens.has_value()},
                                                {"few-tokens", o.few_tokens != FewTokens::Layer},
                                                {"match", !o.match.empty()},
                                                {"plus-rule", o.plus_rule != PlusRule::Sites},
                                                {"random-every", o.random_every != RandomEvery::Sequence},
                                                {"repaired", o.repaired != RepairedAs::Model},
                                                {"refresh", o.refresh},
                                                {"refresh-last", o.refresh_last},
                                                {"calibration", o.calibration != nullptr}};
  for (const auto& option : given) {
    const auto applies = [&](const char* name) { return std::string_view(name) == option.first; };
    if (option.second && std::none_of(method.options.begin(), method.options.end(), applies)) {
      fail("--{}: does not apply to method {}", option.first, method.name);
    }
  }
  if (!o.calibration && std::string_view(method.needs) == kCalibrationText)
    fail("--calibration: method {} needs the statistics of a text; make them with pop calibrate", method.name);
}

}  // namespace

std::span<const MethodInfo> methods() { return kMethods; }

std::unique_ptr<Policy> make_policy(const PruneOptions& options, const PolicyContext& context) {
  const MethodInfo& method = find_method(options.method);
  check_options(method, options);
  if (context.has_experts() && !method.experts)
    fail("--prune: method {} does not run on mixtures of experts; pop methods names those that do", method.name);
  if (!context.has_experts() && (options.min_tokens.has_value() || options.few_tokens != FewTokens::Layer))
    fail("--min-tokens, --few-tokens: expected a mixture of experts; this model has none");
  return method.create(options, context);
}

}  // namespace pop
