// A ModelSpec as config.json: the fields that hf_spec.cpp and hf_rope.cpp read, as transformers 4 writes them, which 5 reads too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "model/families/family.h"

namespace pop {
namespace {

using nlohmann::ordered_json;

// The shortest decimals that give the same float32.
double shortest(float v) { return std::strtod(fmt::format("{}", v).c_str(), nullptr); }

ordered_json llama3(float factor, float original) {
  return {{"rope_type", "llama3"},
          {"factor", shortest(factor)},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", int(original)}};
}

bool near(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::fabs(x - y) <= 1e-5f * std::fabs(y); });
}

// A table of divisors came from four numbers; published models have low 1, high 4, and a power of two as their first context.
ordered_json llama3_of(const RopeSpec& rope, const Family& family, const std::string& name) {
  const float factor = *std::max_element(rope.frequency_divisors.begin(), rope.frequency_divisors.end());
  for (int original = 1 << 20; original >= 16; original /= 2) {
    ordered_json config = {{"max_position_embeddings", 1 << 20},
                           {"rope_theta", shortest(rope.theta)},
                           {"rope_scaling", llama3(factor, float(original))}};
    ModelSpec tried;
    tried.head_dim = rope.dim;
    read_rope(JsonObject::parse(config.dump(), name), family, tried);
    if (near(tried.rope.frequency_divisors, rope.frequency_divisors)) return config["rope_scaling"];
  }
  fail(
      "{}: tensor rope_freqs.weight: expected Llama 3's divisors (low_freq_factor 1, high_freq_factor 4), found others",
      name);
}

ordered_json scaling_of(const RopeSpec& rope, const Family& family, const std::string& name) {
  if (!rope.frequency_divisors.empty()) return llama3_of(rope, family, name);
  if (rope.scaling == RopeSpec::Scaling::None) return nullptr;
  if (rope.scaling == RopeSpec::Scaling::Linear) return {{"rope_type", "linear"}, {"factor", shortest(rope.factor)}};
  ordered_json yarn = {{"rope_type", "yarn"},
                       {"factor", shortest(rope.factor)},
                       {"original_max_position_embeddings", rope.original_context},
                       {"beta_fast", shortest(rope.beta_fast)},
                       {"beta_slow", shortest(rope.beta_slow)}};
  if (rope.attention_factor != 0) yarn["attention_factor"] = shortest(rope.attention_factor);
  return yarn;
}

void add_experts(const ModelSpec& spec, const Family& family, ordered_json& config) {
  const MoeSpec& moe = spec.moe;
  const HfExperts& rule = family.hf_experts;
  if (rule.width == nullptr) return;
  config[rule.normalised ? "num_local_experts" : "num_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.used;
  config[rule.width] = moe.f;
  if (rule.shared_width != nullptr) config[rule.shared_width] = moe.shared_f;
  if (!rule.normalised) config["norm_topk_prob"] = moe.normalised;
  if (!rule.dense_layers) return;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = ordered_json::array();
  for (int l = 0; l < spec.layers; ++l)
    if (!spec.has_experts(l)) config["mlp_only_layers"].push_back(l);
}

const char* type_name(DType type) {
  return type == DType::F32 ? "float32" : type == DType::F16 ? "float16" : "bfloat16";
}

ordered_json write_fields(const ModelSpec& spec, const Family& family, const std::string& name, DType type) {
  ordered_json config = {{"architectures", {family.hf_class}},
                         {"model_type", family.hf_type != nullptr ? family.hf_type : family.architecture},
                         {"torch_dtype", type_name(type)},
                         {"vocab_size", spec.vocab},
                         {"hidden_size", spec.d},
                         {"intermediate_size", spec.f},
                         {"num_hidden_layers", spec.layers},
                         {"num_attention_heads", spec.heads},
                         {"num_key_value_heads", spec.kv_heads},
                         {"head_dim", spec.head_dim},
                         {"hidden_act", "silu"},
                         {"attention_bias", false},
                         {"max_position_embeddings", spec.context_trained},
                         {"rms_norm_eps", shortest(spec.norm_eps)},
                         {"rope_theta", shortest(spec.rope.theta)},
                         {"rope_scaling", scaling_of(spec.rope, family, name)},
                         {"tie_word_embeddings", spec.tied_head}};
  if (family.window == WindowRule::All) {
    config["sliding_window"] = nullptr;
    if (!spec.windows.empty()) config["sliding_window"] = spec.windows[0];
  }
  if (family.window == WindowRule::ByLayer || family.window == WindowRule::Unused) config["use_sliding_window"] = false;
  add_experts(spec, family, config);
  if (spec.moe.experts > 0 && family.qkv_bias) config["qkv_bias"] = spec.qkv_bias;
  return config;
}

}  // namespace

ordered_json config_of(const ModelSpec& spec, const Family& family, const std::string& name, DType type) {
  if (spec.rope.dim != spec.head_dim)
    fail("{}: expected all {} dimensions of a head to be rotated, found {}", name, spec.head_dim, spec.rope.dim);
  ordered_json config = write_fields(spec, family, name, type);
  ModelSpec back = read_spec(JsonObject::parse(config.dump(), name), family);
  back.architecture = spec.architecture;  // not of the fields: names, the order of rows
  back.name = spec.name;
  back.rope.interleaved = spec.rope.interleaved;
  if (near(back.rope.frequency_divisors, spec.rope.frequency_divisors))
    back.rope.frequency_divisors = spec.rope.frequency_divisors;  // computed again, up to rounding
  if (back != spec)
    fail("{}: expected a model that config.json of {} can describe, found other {}", name, family.hf_class,
         back.windows != spec.windows ? "sliding windows"
         : back.rope != spec.rope     ? "positions"
         : back.moe != spec.moe       ? "experts"
                                      : "parts of its blocks");
  return config;
}

}  // namespace pop
