#include "apps/eval/divergence.h"

#include <algorithm>
#include <cmath>

#include "apps/eval/report.h"
#include "apps/eval/statistics.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct Tokens {  // of all windows, one after another
  std::vector<double> kl, top, nll_base, nll_other, ln_ratio, delta_p;
  void add(const TokenDivergence& t) {
    kl.push_back(t.kl);
    top.push_back(t.same_top ? 1 : 0);
    nll_base.push_back(t.nll_base);
    nll_other.push_back(t.nll_other);
    ln_ratio.push_back(t.nll_other - t.nll_base);
    delta_p.push_back(std::exp(-t.nll_other) - std::exp(-t.nll_base));
  }
};

Tokens tokens_of(std::span<const WindowDivergence> windows, size_t from, size_t to) {
  Tokens out;
  for (const WindowDivergence& window : windows)
    for (size_t i = from; i < to; ++i) out.add(window.tokens[i]);
  return out;
}

// Windows are drawn whole: the mean of every `per_window` neighbouring values is one draw.
Interval window_interval(const std::vector<double>& values, size_t per_window, uint64_t seed) {
  std::vector<double> means;
  for (size_t first = 0; first < values.size(); first += per_window)
    means.push_back(mean(std::span(values).subspan(first, per_window)));
  return bootstrap_mean(means, seed);
}

Json percentiles(std::vector<double> values, std::initializer_list<double> shares) {
  std::sort(values.begin(), values.end());
  Json out = {{"min", values.front()}};
  for (const double share : shares) out[fmt::format("p{:.4g}", 100 * share)] = sorted_percentile(values, share);
  out["max"] = values.back();
  return out;
}

Json kl_json(const Tokens& t, size_t per_window, uint64_t seed) {
  Json json = {{"mean", mean(t.kl)}, {"ci95", to_json(window_interval(t.kl, per_window, seed))}};
  json["se"] = standard_error(t.kl);
  const Json parts = percentiles(t.kl, {0.001, 0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999});
  json["median"] = parts["p50"];
  for (const auto& [name, value] : parts.items())
    if (name != "p50") json[name] = value;
  return json;
}

Json same_top_json(const Tokens& t, size_t per_window, uint64_t seed) {
  const double p = mean(t.top), n = double(t.top.size());
  return {{"mean", p},
          {"ci95", to_json(window_interval(t.top, per_window, seed))},
          {"se", n > 1 ? std::sqrt(p * (1 - p) / (n - 1)) : 0}};
}

// Both perplexities see the same tokens: their errors are correlated, which makes small differences visible.
void add_perplexities(Json& json, const Tokens& t, size_t per_window, uint64_t seed) {
  const double n = double(t.kl.size()), base = std::exp(mean(t.nll_base)), other = std::exp(mean(t.nll_other));
  const double ratio = std::exp(mean(t.ln_ratio)), ln_error = standard_error(t.ln_ratio);
  const double squared = other * other * variance(t.nll_other) + base * base * variance(t.nll_base) -
                         2 * other * base * covariance(t.nll_base, t.nll_other);
  json["ppl_dense"] = base;
  json["ppl_pruned"] = other;
  json["ln_ppl_ratio"] = {
      {"mean", mean(t.ln_ratio)}, {"ci95", to_json(window_interval(t.ln_ratio, per_window, seed))}, {"se", ln_error}};
  json["ppl_ratio"] = {{"mean", ratio}, {"se", ratio * ln_error}};
  json["ppl_difference"] = {{"mean", other - base}, {"se", std::sqrt(std::max(0.0, squared / n))}};
  json["nll_correlation"] = correlation(t.nll_base, t.nll_other);
}

Json delta_p_json(const Tokens& t) {
  std::vector<double> squares;
  for (const double x : t.delta_p) squares.push_back(x * x);
  const double rms = std::sqrt(mean(squares));
  Json json = {{"mean", mean(t.delta_p)},
               {"se", standard_error(t.delta_p)},
               {"rms", rms},
               {"rms_se", rms > 0 ? 0.5 / rms * standard_error(squares) : 0}};
  json.update(percentiles(t.delta_p, {0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999}));
  return json;
}

Json by_position(std::span<const WindowDivergence> windows, uint64_t seed) {
  const size_t last = windows[0].tokens.size();
  Json out = Json::array();
  constexpr size_t kEnd = size_t(-1);
  for (const auto& [from, to] : {std::pair<size_t, size_t>{1, 16}, {17, 64}, {65, 255}, {256, 1023}, {1024, kEnd}}) {
    if (from > last) break;
    const size_t end = std::min(to, last), per_window = end - from + 1;
    const Tokens t = tokens_of(windows, from - 1, end);
    out.push_back({{"from", from},
                   {"to", end},
                   {"kl", mean(t.kl)},
                   {"ci95", to_json(window_interval(t.kl, per_window, seed))},
                   {"same_top", mean(t.top)},
                   {"ln_ppl_ratio", mean(t.ln_ratio)}});
  }
  return out;
}

Json first_divergence(std::span<const WindowDivergence> windows, int generated) {
  std::vector<double> lengths;
  int64_t never = 0;
  for (const WindowDivergence& window : windows) {
    lengths.push_back(window.equal_tokens);
    never += window.equal_tokens == generated;
  }
  return {{"generated", generated},
          {"median", percentile(lengths, 0.5)},
          {"quartiles", Json::array({percentile(lengths, 0.25), percentile(lengths, 0.75)})},
          {"mean", mean(lengths)},
          {"never", never}};
}

}  // namespace

Sample divergence_sample(int64_t window, const WindowDivergence& divergence) {
  Sample out;
  out.doc_id = window;
  Tokens t;
  for (const TokenDivergence& token : divergence.tokens) t.add(token);
  out.metrics["kl"] = mean(t.kl);
  out.metrics["same_top"] = mean(t.top);
  out.metrics["nll"] = mean(t.nll_other);
  out.metrics["ln_ppl_ratio"] = mean(t.ln_ratio);
  if (divergence.equal_tokens >= 0) out.metrics["equal_tokens"] = divergence.equal_tokens;
  out.more["kls"] = t.kl;
  out.more["same_tops"] = t.top;
  out.more["nlls_base"] = t.nll_base;
  out.more["nlls"] = t.nll_other;
  return out;
}

WindowDivergence divergence_from(const Json& line) {
  WindowDivergence out;
  const Json &kl = line_field(line, "kls"), &top = line_field(line, "same_tops"), &base = line_field(line, "nlls_base"),
             &other = line_field(line, "nlls");
  for (size_t i = 0; i < kl.size(); ++i)
    out.tokens.push_back(
        {kl.at(i).get<double>(), top.at(i).get<double>() != 0, base.at(i).get<double>(), other.at(i).get<double>()});
  out.equal_tokens = line.value("equal_tokens", -1);
  return out;
}

Json divergence_json(std::span<const WindowDivergence> windows, int generated, uint64_t seed) {
  const size_t per_window = windows[0].tokens.size();
  for (const WindowDivergence& window : windows)
    if (window.tokens.size() != per_window)
      fail("eval kl: expected {} tokens in every window, found {}", per_window, window.tokens.size());
  const Tokens t = tokens_of(windows, 0, per_window);
  Json json;
  json["kl"] = kl_json(t, per_window, seed);
  json["same_top"] = same_top_json(t, per_window, seed);
  add_perplexities(json, t, per_window, seed);
  json["delta_p"] = delta_p_json(t);
  json["by_position"] = by_position(windows, seed);
  if (generated > 0) json["first_divergence"] = first_divergence(windows, generated);
  return json;
}

}  // namespace pop::app
