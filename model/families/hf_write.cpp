// A ModelSpec as config.json: the fields that hf_spec.cpp and hf_rope.cpp read, as transformers 4 writes them, which 5 reads too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "model/families/family.h"
#include "model/rope.h"

namespace pop {
namespace {

using nlohmann::ordered_json;

// The shortest decimals that give the same float32.
double shortest(float v) { return std::strtod(fmt::format("{}", v).c_str(), nullptr); }

std::vector<double> shortest(const std::vector<float>& values) {
  std::vector<double> out;
  for (const float v : values) out.push_back(shortest(v));
  return out;
}

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

// transformers 4 wants these three fields alone, the kind by its older name.
ordered_json longrope(const RopeSpec& rope) {
  ordered_json fields = {{"type", "longrope"},
                         {"short_factor", shortest(rope.frequency_divisors)},
                         {"long_factor", shortest(rope.long_divisors)}};
  RopeSpec usual = rope;
  usual.attention_factor = 0;
  if (attention_factor(rope) != attention_factor(usual)) fields["attention_factor"] = shortest(rope.attention_factor);
  return fields;
}

ordered_json scaling_of(const RopeSpec& rope, const Family& family, const std::string& name) {
  if (rope.scaling == RopeSpec::Scaling::Long) return longrope(rope);
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

void add_windows(const ModelSpec& spec, const Family& family, ordered_json& config) {
  if (family.window == WindowRule::ByLayer || family.window == WindowRule::Unused) config["use_sliding_window"] = false;
  if (family.window != WindowRule::All && family.window != WindowRule::Pattern) return;
  config["sliding_window"] = nullptr;
  if (!spec.windows.empty()) config["sliding_window"] = *std::max_element(spec.windows.begin(), spec.windows.end());
  if (family.window == WindowRule::All) return;
  config["layer_types"] = ordered_json::array();
  for (int l = 0; l < spec.layers; ++l)
    config["layer_types"].push_back(spec.window(l) == 0 ? "full_attention" : "sliding_attention");
}

void add_scores(const ModelSpec& spec, const Family& family, ordered_json& config) {
  if (family.hf_query_scalar) {
    const double scalar = 1 / (double(spec.attention_scale) * double(spec.attention_scale));
    const bool whole = float(1 / std::sqrt(std::round(scalar))) == spec.attention_scale;
    config["query_pre_attn_scalar"] = whole ? ordered_json(int64_t(std::round(scalar))) : ordered_json(scalar);
  }
  const auto cap = [](float value) { return value == 0 ? ordered_json() : ordered_json(shortest(value)); };
  if (family.attention_cap) config["attn_logit_softcapping"] = cap(spec.attention_cap);
  if (family.logit_cap) config["final_logit_softcapping"] = cap(spec.logit_cap);
}

// Beside rope_theta and rope_scaling.
void add_positions(const ModelSpec& spec, const Family& family, ordered_json& config) {
  if (family.hf_partial_rotary) config["partial_rotary_factor"] = double(spec.rope.dim) / spec.head_dim;
  if (spec.rope.scaling == RopeSpec::Scaling::Long)
    config["original_max_position_embeddings"] = spec.rope.original_context;
  if (spec.window_rope) config["rope_local_base_freq"] = shortest(spec.window_rope->theta);
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
                         {family.gate == Gate::Silu ? "hidden_act" : "hidden_activation",
                          family.gate == Gate::Silu ? "silu" : "gelu_pytorch_tanh"},
                         {"attention_bias", false},
                         {"max_position_embeddings", spec.context_trained},
                         {"rms_norm_eps", shortest(spec.norm_eps)},
                         {"rope_theta", shortest(spec.rope.theta)},
                         {"rope_scaling", scaling_of(spec.rope, family, name)},
                         {"tie_word_embeddings", spec.tied_head},
                         {"pad_token_id", nullptr}};  // some classes have one that a small vocabulary lacks
  add_windows(spec, family, config);
  add_scores(spec, family, config);
  add_positions(spec, family, config);
  if (family.qkv_clip) config["clip_qkv"] = spec.qkv_clip != 0 ? ordered_json(shortest(spec.qkv_clip)) : ordered_json();
  add_experts(spec, family, config);
  if (spec.moe.experts > 0 && family.qkv_bias) config["qkv_bias"] = spec.qkv_bias;
  return config;
}

}  // namespace

ordered_json config_of(const ModelSpec& spec, const Family& family, const std::string& name, DType type) {
  if (!family.hf_partial_rotary && spec.rope.dim != spec.head_dim)
    fail("{}: expected all {} dimensions of a head to be rotated, found {}", name, spec.head_dim, spec.rope.dim);
  ordered_json config = write_fields(spec, family, name, type);
  ModelSpec back = read_spec(JsonObject::parse(config.dump(), name), family);
  back.architecture = spec.architecture;  // not of the fields: names, how tensors lie, defaults written out
  back.name = spec.name;
  back.norm_offset = spec.norm_offset;
  back.rope.interleaved = spec.rope.interleaved;
  if (back.window_rope && spec.window_rope) back.window_rope->interleaved = spec.window_rope->interleaved;
  if (attention_factor(back.rope) == attention_factor(spec.rope))
    back.rope.attention_factor = spec.rope.attention_factor;
  if (near(back.rope.frequency_divisors, spec.rope.frequency_divisors))
    back.rope.frequency_divisors = spec.rope.frequency_divisors;  // computed again, up to rounding
  if (back != spec)
    fail("{}: expected a model that config.json of {} can describe, found other {}", name, family.hf_class,
         back.windows != spec.windows                                     ? "sliding windows"
         : back.rope != spec.rope || back.window_rope != spec.window_rope ? "positions"
         : back.moe != spec.moe                                           ? "experts"
                                                                          : "parts of its blocks");
  return config;
}

}  // namespace pop
