// config.json and tensor names, as transformers 4 and 5 write them for every family. Of the fields read here, one that is missing
// is an error or has the default of transformers' classes (of sizes, one that the tensors' shapes must confirm); what is known to
// change the result and is not run is refused. Fields not named here are not looked at.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "formats/scaled_f8.h"
#include "model/families/family.h"

namespace pop {
namespace {

constexpr int64_t kMostContext = 1 << 30;

void read_sizes(const JsonObject& config, const Family& family, ModelSpec& spec) {
  spec.layers = int(config.integer("num_hidden_layers", 1, 4096));
  spec.d = int(config.integer("hidden_size", 1, 1 << 20));
  spec.f = int(config.integer("intermediate_size", 1, 1 << 22));
  spec.vocab = int(config.integer("vocab_size", 1, 1 << 24));
  spec.heads = int(config.integer("num_attention_heads", 1, 1 << 14));
  spec.kv_heads = int(config.find_int("num_key_value_heads", 1, spec.heads).value_or(spec.heads));
  if (spec.heads % spec.kv_heads != 0)
    config.refuse("num_key_value_heads", fmt::format("a divisor of num_attention_heads {}", spec.heads));
  const auto head_dim = config.find_int("head_dim", 1, 1 << 14);
  if (!head_dim && spec.d % spec.heads != 0)
    config.refuse("num_attention_heads", fmt::format("a divisor of hidden_size {}", spec.d));
  spec.head_dim = int(head_dim.value_or(spec.d / spec.heads));
  spec.context_trained = int(config.integer("max_position_embeddings", 1, kMostContext));
  spec.norm_eps = float(config.real("rms_norm_eps", 0.0, 1.0));
  spec.tied_head = config.flag("tie_word_embeddings", family.hf_tied);
}

void refuse_unknown(const JsonObject& config, const Family& family) {
  const bool silu = family.gate == Gate::Silu;
  const char *key = silu ? "hidden_act" : "hidden_activation", *known = silu ? "silu" : "gelu_pytorch_tanh";
  if (const auto act = config.find_string(key); act && *act != known) config.refuse(key, known);
  for (const char* key : {"attention_bias", "mlp_bias", "use_bidirectional_attention"})
    if (config.flag(key, false)) config.refuse(key, "false");
  read_f8_rule(config);  // for what it refuses
}

// What becomes of q.k and of the logits.
void read_scores(const JsonObject& config, const Family& family, ModelSpec& spec) {
  double width = spec.head_dim;
  if (family.hf_query_scalar) width = config.find_real("query_pre_attn_scalar", 1e-3, 1e6).value_or(256);
  spec.attention_scale = float(1 / std::sqrt(width));
  const auto cap = [&](const char* key, std::optional<float> known) {
    const auto value = config.find_real(key, 1e-3, 1e6);
    if (!known && value) config.refuse(key, "null, as the class does not look at it");
    return value ? float(*value) : config.has(key) ? 0.f : known.value_or(0.f);
  };
  spec.attention_cap = cap("attn_logit_softcapping", family.attention_cap);
  spec.logit_cap = cap("final_logit_softcapping", family.logit_cap);
}

// Of families that have no windows: a configuration that asks for one is of another model than its class runs.
void refuse_windows(const JsonObject& config, const Family& family) {
  if (config.flag("use_sliding_window", false)) config.refuse("use_sliding_window", "false");
  for (const std::string& type : config.find_strings("layer_types").value_or(std::vector<std::string>()))
    if (type != "full_attention") config.refuse("layer_types", "full_attention alone");
  if (family.window == WindowRule::Unused) return;  // there the flag alone decides
  const auto window = config.find_int("sliding_window", 0, kMostContext);
  if (window && *window != 0 && *window < config.integer("max_position_embeddings", 1, kMostContext))
    config.refuse("sliding_window", "null, as the class does not look at it");
}

// Families by layer: layer_types, or what transformers makes of the older fields: windows from layer max_window_layers on, or by a
// pattern. The others' classes do not look at layer_types, which may therefore say nothing else.
void read_windows(const JsonObject& config, const Family& family, ModelSpec& spec) {
  if (family.window == WindowRule::None || family.window == WindowRule::Unused) return refuse_windows(config, family);
  const auto said = config.find_int("sliding_window", 1, kMostContext);
  int window = said || config.has("sliding_window") ? int(said.value_or(0)) : family.window_default;
  int from = 0;
  if (family.window == WindowRule::ByLayer) {
    if (!config.flag("use_sliding_window", false)) window = 0;
    from = int(config.find_int("max_window_layers", 0, 1 << 20).value_or(28));
  }
  const bool pattern = family.window == WindowRule::Pattern;
  const int every =
      pattern ? int(config.find_int("sliding_window_pattern", 1, 1 << 20).value_or(family.window_pattern)) : 0;
  const auto types = config.find_strings("layer_types");
  if (types && types->size() != size_t(spec.layers))
    config.refuse("layer_types", fmt::format("one for each of {} layers", spec.layers));
  std::vector<int> windows(size_t(spec.layers), 0);
  bool any = false;
  for (int layer = 0; layer < spec.layers; ++layer) {
    bool slides = pattern ? (layer + 1) % every != 0 : window != 0 && layer >= from;
    if (types) {
      const std::string& type = (*types)[size_t(layer)];
      if (type != "full_attention" && type != "sliding_attention")
        config.refuse("layer_types", fmt::format("full_attention or sliding_attention for layer {}", layer));
      if (family.window == WindowRule::All && (type == "sliding_attention") != slides)
        config.refuse("layer_types", slides ? "sliding_attention alone, as sliding_window is given"
                                            : "full_attention alone, as sliding_window is null");
      slides = type == "sliding_attention";
    }
    if (slides && window == 0) config.refuse("sliding_window", "a window for the layers that slide");
    if (slides) windows[size_t(layer)] = window, any = true;
  }
  if (any) spec.windows = std::move(windows);
}

// "num_local_experts" is what transformers 5 calls the number for some of the classes that called it "num_experts" before.
int expert_count(const JsonObject& config) {
  const auto named = config.find_int("num_experts", 1, 1 << 16),
             local = config.find_int("num_local_experts", 1, 1 << 16);
  if (named && local && *named != *local) config.refuse("num_local_experts", fmt::format("{} as num_experts", *named));
  if (!named && !local) config.refuse("num_experts", "an integer from 1 to 65536");
  return int(named ? *named : *local);
}

void read_experts(const JsonObject& config, const HfExperts& rule, ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.experts = expert_count(config);
  moe.used = int(config.integer("num_experts_per_tok", 1, moe.experts));
  moe.f = int(config.integer(rule.width, 1, 1 << 22));
  if (rule.shared_width != nullptr) moe.shared_f = int(config.integer(rule.shared_width, 1, 1 << 22));
  moe.normalised = rule.normalised || config.flag("norm_topk_prob", false);
  moe.layers.assign(size_t(spec.layers), true);
  if (!rule.dense_layers) return;
  const auto step = config.find_int("decoder_sparse_step", 1, 1 << 20).value_or(1);
  for (int l = 0; l < spec.layers; ++l) moe.layers[size_t(l)] = (l + 1) % step == 0;
  for (const int64_t l : config.integers("mlp_only_layers", 0, spec.layers - 1)) moe.layers[size_t(l)] = false;
  if (std::find(moe.layers.begin(), moe.layers.end(), true) == moe.layers.end())
    config.refuse(step > spec.layers ? "decoder_sparse_step" : "mlp_only_layers", "a layer with experts");
}

// Angles are recomputed from config.json.
constexpr const char* kIgnored[] = {"model.layers.{}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"};

}  // namespace

const TensorNames kHfNames{.embedding = "model.embed_tokens.weight",
                           .output_norm = "model.norm.weight",
                           .output = "lm_head.weight",
                           .attention_norm = "model.layers.{}.input_layernorm.weight",
                           .q = "model.layers.{}.self_attn.q_proj.weight",
                           .k = "model.layers.{}.self_attn.k_proj.weight",
                           .v = "model.layers.{}.self_attn.v_proj.weight",
                           .o = "model.layers.{}.self_attn.o_proj.weight",
                           .qkv = "model.layers.{}.self_attn.qkv_proj.weight",
                           .fused_gate_up = "model.layers.{}.mlp.gate_up_proj.weight",
                           .q_bias = "model.layers.{}.self_attn.q_proj.bias",
                           .k_bias = "model.layers.{}.self_attn.k_proj.bias",
                           .v_bias = "model.layers.{}.self_attn.v_proj.bias",
                           .q_norm = "model.layers.{}.self_attn.q_norm.weight",
                           .k_norm = "model.layers.{}.self_attn.k_norm.weight",
                           .ffn_norm = "model.layers.{}.post_attention_layernorm.weight",
                           .post_attention_norm = "model.layers.{}.post_attention_layernorm.weight",
                           .pre_ffn_norm = "model.layers.{}.pre_feedforward_layernorm.weight",
                           .post_ffn_norm = "model.layers.{}.post_feedforward_layernorm.weight",
                           .gate = "model.layers.{}.mlp.gate_proj.weight",
                           .up = "model.layers.{}.mlp.up_proj.weight",
                           .down = "model.layers.{}.mlp.down_proj.weight",
                           .by_expert = true,
                           .router = "model.layers.{}.mlp.gate.weight",
                           .expert_gate = "model.layers.{}.mlp.experts.{}.gate_proj.weight",
                           .expert_up = "model.layers.{}.mlp.experts.{}.up_proj.weight",
                           .expert_down = "model.layers.{}.mlp.experts.{}.down_proj.weight",
                           .shared_gate = "model.layers.{}.mlp.shared_expert_gate.weight",
                           .shared_gate_proj = "model.layers.{}.mlp.shared_expert.gate_proj.weight",
                           .shared_up = "model.layers.{}.mlp.shared_expert.up_proj.weight",
                           .shared_down = "model.layers.{}.mlp.shared_expert.down_proj.weight",
                           .ignored = kIgnored};

const TensorNames kMixtralNames = [] {
  TensorNames names = kHfNames;
  names.router = "model.layers.{}.block_sparse_moe.gate.weight";
  names.expert_gate = "model.layers.{}.block_sparse_moe.experts.{}.w1.weight";
  names.expert_up = "model.layers.{}.block_sparse_moe.experts.{}.w3.weight";
  names.expert_down = "model.layers.{}.block_sparse_moe.experts.{}.w2.weight";
  return names;
}();

ModelSpec read_spec(const JsonObject& config, const Family& family) {
  ModelSpec spec;
  spec.architecture = family.architecture;
  read_sizes(config, family, spec);
  refuse_unknown(config, family);
  if (family.hf_experts.width != nullptr) read_experts(config, family.hf_experts, spec);
  spec.qkv_bias = family.qkv_bias && (spec.moe.experts == 0 || config.flag("qkv_bias", true));
  spec.qk_norm = family.qk_norm;
  if (family.qkv_clip) spec.qkv_clip = float(config.find_real("clip_qkv", 1e-3, 1e6).value_or(0));
  spec.gate = family.gate;
  spec.post_norms = family.post_norms;
  spec.fused = family.fused;
  spec.norm_offset = family.hf_norm_offset;
  if (family.scaled_embedding) spec.embedding_scale = std::sqrt(float(spec.d));
  read_scores(config, family, spec);
  read_windows(config, family, spec);
  read_rope(config, family, spec);
  const auto is_dynamic = [](const RopeSpec& rope) { return rope.scaling == RopeSpec::Scaling::Dynamic; };
  if (is_dynamic(spec.rope) || (spec.window_rope && is_dynamic(*spec.window_rope)))
    spec.context_limit = spec.context_trained;
  return spec;
}

}  // namespace pop
