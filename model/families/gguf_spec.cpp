// GGUF metadata and tensor names, as llama.cpp's converters write them for every family.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/families/family.h"

namespace pop {
namespace {

// The keys of one architecture, "qwen2.block_count" and so on, within ranges.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string operator()(std::string_view key) const { return prefix_ + std::string(key); }
  int integer(std::string_view key, uint64_t low, uint64_t high) const {
    return checked(key, file_.get_u64((*this)(key)), low, high);
  }
  int integer_or(std::string_view key, int fallback, uint64_t low, uint64_t high) const {
    return checked(key, file_.get_u64((*this)(key), uint64_t(fallback)), low, high);
  }
  float real(std::string_view key, double low, double high) const {
    return checked(key, file_.get_f64((*this)(key)), low, high);
  }
  float real_or(std::string_view key, double fallback, double low, double high) const {
    return checked(key, file_.get_f64((*this)(key), fallback), low, high);
  }
  template <class Found>
  [[noreturn]] void refuse(std::string_view key, std::string_view expected, const Found& found) const {
    fail("{}: key {}: expected {}, found {}", file_.path(), (*this)(key), expected, found);
  }

 private:
  int checked(std::string_view key, uint64_t value, uint64_t low, uint64_t high) const {
    if (value < low || value > high) refuse(key, fmt::format("{} to {}", low, high), value);
    return int(value);
  }
  float checked(std::string_view key, double value, double low, double high) const {
    if (!(value >= low && value <= high)) refuse(key, fmt::format("{} to {}", low, high), value);
    return float(value);
  }
  const GgufFile& file_;
  std::string prefix_;
};

constexpr const char *kLongFactors = "rope_factors_long.weight", *kShortFactors = "rope_factors_short.weight";

std::vector<float> divisors(const GgufFile& file, const char* name, int dim) {
  const RawTensor tensor = file.tensor(name, {dim / 2}, {DType::F32});
  std::vector<float> values(size_t(dim / 2));
  dequantize(DType::F32, tensor.data.data(), values.data(), dim / 2);
  for (const float divisor : values)
    if (!(divisor > 0.f) || !std::isfinite(divisor))
      fail("{}: tensor {}: expected positive numbers, found {}", file.path(), name, divisor);
  return values;
}

void read_scaling(const GgufFile& file, const Keys& keys, RopeSpec& rope) {
  const std::string kind = file.get_string(keys("rope.scaling.type"), "none");
  if (kind == "linear")
    rope.scaling = RopeSpec::Scaling::Linear;
  else if (kind == "yarn")
    rope.scaling = RopeSpec::Scaling::Yarn;
  else if (kind != "none" && !(kind == "longrope" && file.find(kLongFactors) != nullptr))
    keys.refuse("rope.scaling.type", "none, linear, yarn, or longrope with its factors", '"' + printable(kind) + '"');
  if (rope.scaling != RopeSpec::Scaling::None) {
    rope.factor = keys.real("rope.scaling.factor", 1.0, 1e6);
  } else if (const auto old = file.find_f64(keys("rope.scale_linear")); old && *old != 1.0 && *old != 0.0) {
    rope.scaling = RopeSpec::Scaling::Linear;  // how files before August 2023 say it
    rope.factor = keys.real("rope.scale_linear", 1.0, 1e6);
  }
  if (rope.scaling != RopeSpec::Scaling::Yarn) return;
  rope.original_context = keys.integer("rope.scaling.original_context_length", 1, 1 << 30);
  rope.beta_fast = keys.real_or("rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6);
  rope.beta_slow = keys.real_or("rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6);
  rope.attention_factor = keys.real_or("rope.scaling.attn_factor", 0.0, 0.0, 1e3);
}

void read_rope(const GgufFile& file, const Keys& keys, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.dim = keys.integer_or("rope.dimension_count", spec.head_dim, 2, uint64_t(spec.head_dim));
  if (rope.dim % 2 != 0) keys.refuse("rope.dimension_count", "an even number", rope.dim);
  rope.theta = keys.real_or("rope.freq_base", 10000.0, 1.0, 1e12);
  read_scaling(file, keys, rope);
  if (file.find("rope_freqs.weight") != nullptr)
    rope.frequency_divisors = divisors(file, "rope_freqs.weight", rope.dim);
  if (file.find(kLongFactors) == nullptr) return;
  if (rope.scaling != RopeSpec::Scaling::None || !rope.frequency_divisors.empty())
    fail("{}: tensor {}: expected no other scaling of positions, found one", file.path(), kLongFactors);
  rope.scaling = RopeSpec::Scaling::Long;
  rope.original_context = keys.integer("rope.scaling.original_context_length", 2, 1 << 30);
  rope.factor = float(spec.context_trained) / float(rope.original_context);
  rope.attention_factor = keys.real_or("rope.scaling.attn_factor", 0.0, 0.0, 1e3);
  rope.frequency_divisors = divisors(file, kShortFactors, rope.dim);
  rope.long_divisors = divisors(file, kLongFactors, rope.dim);
}

void read_heads(const GgufFile& file, const Keys& keys, ModelSpec& spec) {
  spec.heads = keys.integer("attention.head_count", 1, 1 << 14);
  spec.kv_heads = keys.integer_or("attention.head_count_kv", spec.heads, 1, uint64_t(spec.heads));
  if (spec.heads % spec.kv_heads != 0)
    keys.refuse("attention.head_count_kv", fmt::format("a divisor of head_count {}", spec.heads), spec.kv_heads);
  if (!file.has(keys("attention.key_length")) && spec.d % spec.heads != 0)
    keys.refuse("attention.head_count", fmt::format("a divisor of embedding_length {}", spec.d), spec.heads);
  spec.head_dim = keys.integer_or("attention.key_length", spec.d / spec.heads, 1, 1 << 14);
  const uint64_t value_dim = file.get_u64(keys("attention.value_length"), uint64_t(spec.head_dim));
  if (value_dim != uint64_t(spec.head_dim))
    keys.refuse("attention.value_length", fmt::format("{} as key_length", spec.head_dim), value_dim);
}

constexpr const char* kNotYet = "0 (this engine does not run it yet)";

// A layer has experts if the file has a router for it: what decoder_sparse_step and mlp_only_layers of config.json come to.
void read_experts(const GgufFile& file, const Keys& keys, const Family& family, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.experts = keys.integer_or("expert_count", 0, 0, 1 << 16);
  if (moe.experts == 0) return;
  if (!family.experts) keys.refuse("expert_count", kNotYet, moe.experts);
  if (const uint64_t kind = file.get_u64(keys("expert_gating_func"), 1); kind != 1)
    keys.refuse("expert_gating_func", "1 (softmax)", kind);
  if (const uint64_t groups = file.get_u64(keys("expert_group_count"), 0); groups > 1)
    keys.refuse("expert_group_count", kNotYet, groups);
  if (const double scale = file.get_f64(keys("expert_weights_scale"), 1); scale != 1 && scale != 0)
    keys.refuse("expert_weights_scale", "1", scale);
  moe.used = keys.integer("expert_used_count", 1, uint64_t(moe.experts));
  moe.f = keys.integer_or("expert_feed_forward_length", spec.f, 1, 1 << 22);
  moe.shared_f = keys.integer_or("expert_shared_feed_forward_length", 0, 0, 1 << 22);
  moe.normalised = file.get_bool(keys("expert_weights_norm"), family.normalised_top_k);
  for (int l = 0; l < spec.layers; ++l)
    moe.layers.push_back(file.find(fmt::format(fmt::runtime(kGgufNames.router), l)) != nullptr);
  if (std::find(moe.layers.begin(), moe.layers.end(), true) == moe.layers.end())
    keys.refuse("expert_count", "0 (no layer has a router)", moe.experts);
}

// What becomes of q.k and of the logits.
void read_scores(const Keys& keys, const Family& family, ModelSpec& spec) {
  spec.attention_scale = keys.real_or("attention.scale", double(usual_attention_scale(spec, family)), 1e-6, 1e3);
  const auto cap = [&](std::string_view key, std::optional<float> known) {
    const float value = keys.real_or(key, double(known.value_or(0.f)), 0.0, 1e6);
    if (!known && value != 0) keys.refuse(key, kNotYet, value);
    return value;
  };
  spec.attention_cap = cap("attn_logit_softcapping", family.attention_cap);
  spec.logit_cap = cap("final_logit_softcapping", family.logit_cap);
}

void read_windows(const Keys& keys, const Family& family, ModelSpec& spec) {
  constexpr const char* kKey = "attention.sliding_window";
  const bool pattern = family.window == WindowRule::Pattern;
  const int window = keys.integer_or(kKey, family.gguf_window_default, 0, 1 << 30);
  if (window == 0) return;
  if (!family.window_in_gguf) keys.refuse(kKey, kNotYet, window);
  spec.windows.assign(size_t(spec.layers), window);
  if (!pattern) return;
  const int every = keys.integer_or("attention.sliding_window_pattern", family.window_pattern, 1, 1 << 20);
  for (int l = every - 1; l < spec.layers; l += every) spec.windows[size_t(l)] = 0;
}

// Divisors of angles are read with the spec; rotary tables stored by old converters are recomputed.
constexpr const char* kIgnored[] = {"rope_freqs.weight", kLongFactors, kShortFactors, "blk.{}.attn_rot_embd.weight",
                                    "blk.{}.attn_rot_embd"};

}  // namespace

const TensorNames kGgufNames{.embedding = "token_embd.weight",
                             .output_norm = "output_norm.weight",
                             .output = "output.weight",
                             .attention_norm = "blk.{}.attn_norm.weight",
                             .q = "blk.{}.attn_q.weight",
                             .k = "blk.{}.attn_k.weight",
                             .v = "blk.{}.attn_v.weight",
                             .o = "blk.{}.attn_output.weight",
                             .qkv = "blk.{}.attn_qkv.weight",
                             .fused_gate_up = "blk.{}.ffn_up.weight",
                             .q_bias = "blk.{}.attn_q.bias",
                             .k_bias = "blk.{}.attn_k.bias",
                             .v_bias = "blk.{}.attn_v.bias",
                             .q_norm = "blk.{}.attn_q_norm.weight",
                             .k_norm = "blk.{}.attn_k_norm.weight",
                             .ffn_norm = "blk.{}.ffn_norm.weight",
                             .post_attention_norm = "blk.{}.post_attention_norm.weight",
                             .pre_ffn_norm = "blk.{}.ffn_norm.weight",
                             .post_ffn_norm = "blk.{}.post_ffw_norm.weight",
                             .gate = "blk.{}.ffn_gate.weight",
                             .up = "blk.{}.ffn_up.weight",
                             .down = "blk.{}.ffn_down.weight",
                             .router = "blk.{}.ffn_gate_inp.weight",
                             .expert_gate = "blk.{}.ffn_gate_exps.weight",
                             .expert_up = "blk.{}.ffn_up_exps.weight",
                             .expert_down = "blk.{}.ffn_down_exps.weight",
                             .shared_gate = "blk.{}.ffn_gate_inp_shexp.weight",
                             .shared_gate_proj = "blk.{}.ffn_gate_shexp.weight",
                             .shared_up = "blk.{}.ffn_up_shexp.weight",
                             .shared_down = "blk.{}.ffn_down_shexp.weight",
                             .ignored = kIgnored};

float usual_attention_scale(const ModelSpec& spec, const Family& family) {
  const int width = spec.layers == family.layers_scaled_by_width ? spec.d / spec.heads : spec.head_dim;
  return float(1.0 / std::sqrt(double(width)));
}

ModelSpec read_spec(const GgufFile& file, const Family& family) {
  const Keys keys(file, family.architecture);
  ModelSpec spec;
  spec.architecture = family.architecture;
  spec.name = file.get_string("general.name", "");
  spec.layers = keys.integer("block_count", 1, 4096);
  spec.d = keys.integer("embedding_length", 1, 1 << 20);
  spec.f = keys.integer("feed_forward_length", 1, 1 << 22);
  read_heads(file, keys, spec);
  spec.context_trained = keys.integer("context_length", 1, 1 << 30);
  spec.norm_eps = keys.real("attention.layer_norm_rms_epsilon", 0.0, 1.0);
  spec.qkv_bias = family.qkv_bias;
  spec.qk_norm = family.qk_norm;
  spec.qkv_clip = keys.real_or("attention.clamp_kqv", 0.0, 0.0, 1e6);
  if (!family.qkv_clip && spec.qkv_clip != 0) keys.refuse("attention.clamp_kqv", kNotYet, spec.qkv_clip);
  read_experts(file, keys, family, spec);
  spec.gate = family.gate;
  spec.post_norms = family.post_norms;
  spec.fused = family.fused;
  if (family.scaled_embedding) spec.embedding_scale = std::sqrt(float(spec.d));
  read_scores(keys, family, spec);
  read_windows(keys, family, spec);
  spec.rope.interleaved = family.interleaved_in_gguf;
  read_rope(file, keys, spec);
  if (family.window_theta != 0) {  // neither scaled nor divided
    RopeSpec& window = spec.window_rope.emplace();
    window.interleaved = spec.rope.interleaved;
    window.dim = spec.rope.dim;
    window.theta = keys.real_or("rope.freq_base_swa", family.window_theta, 1.0, 1e12);
  }
  return spec;
}

}  // namespace pop
