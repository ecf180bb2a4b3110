// config.json and tensor names, as transformers 4 and 5 write them for every family. Of the fields read here, one that is missing
// is an error or has the default of transformers' classes (of sizes, one that the tensors' shapes must confirm); what is known to
// change the result and is not run is refused. Fields not named here are not looked at.
#include <fmt/format.h>

#include "base/error.h"
#include "model/families/family.h"

namespace pop {
namespace {

constexpr int64_t kMostContext = 1 << 30;

void read_sizes(const JsonObject& config, ModelSpec& spec) {
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
  spec.tied_head = config.flag("tie_word_embeddings", false);
}

void refuse_unknown(const JsonObject& config) {
  if (const auto act = config.find_string("hidden_act"); act && *act != "silu") config.refuse("hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (config.flag(key, false)) config.refuse(key, "false");
  if (config.find_object("quantization_config"))
    config.refuse("quantization_config", "none (weights in F32, F16 or BF16)");
}

// Families by layer: layer_types, or what transformers makes of the older fields: windows from layer max_window_layers on. The
// others' classes do not look at layer_types, which may therefore say nothing else.
void read_windows(const JsonObject& config, const Family& family, ModelSpec& spec) {
  const auto said = config.find_int("sliding_window", 1, kMostContext);
  int window = said || config.has("sliding_window") ? int(said.value_or(0)) : family.window_default;
  int from = 0;
  if (family.window == WindowRule::ByLayer) {
    if (!config.flag("use_sliding_window", false)) window = 0;
    from = int(config.find_int("max_window_layers", 0, 1 << 20).value_or(28));
  }
  const auto types = config.find_strings("layer_types");
  if (types && types->size() != size_t(spec.layers))
    config.refuse("layer_types", fmt::format("one for each of {} layers", spec.layers));
  std::vector<int> windows(size_t(spec.layers), 0);
  bool any = false;
  for (int layer = 0; layer < spec.layers; ++layer) {
    bool slides = window != 0 && layer >= from;
    if (types) {
      const std::string& type = (*types)[size_t(layer)];
      if (type != "full_attention" && type != "sliding_attention")
        config.refuse("layer_types", fmt::format("full_attention or sliding_attention for layer {}", layer));
      if (family.window == WindowRule::All && (type == "sliding_attention") != slides)
        config.refuse("layer_types", slides ? "sliding_attention alone, as sliding_window is given"
                                            : "full_attention alone, as sliding_window is null");
      slides = type == "sliding_attention";
      if (slides && window == 0) config.refuse("sliding_window", "a window for the layers of layer_types that slide");
    }
    if (slides) windows[size_t(layer)] = window, any = true;
  }
  if (any) spec.windows = std::move(windows);
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
                           .q_bias = "model.layers.{}.self_attn.q_proj.bias",
                           .k_bias = "model.layers.{}.self_attn.k_proj.bias",
                           .v_bias = "model.layers.{}.self_attn.v_proj.bias",
                           .q_norm = "model.layers.{}.self_attn.q_norm.weight",
                           .k_norm = "model.layers.{}.self_attn.k_norm.weight",
                           .ffn_norm = "model.layers.{}.post_attention_layernorm.weight",
                           .gate = "model.layers.{}.mlp.gate_proj.weight",
                           .up = "model.layers.{}.mlp.up_proj.weight",
                           .down = "model.layers.{}.mlp.down_proj.weight",
                           .ignored = kIgnored};

ModelSpec read_spec(const JsonObject& config, const Family& family) {
  ModelSpec spec;
  spec.architecture = family.architecture;
  read_sizes(config, spec);
  refuse_unknown(config);
  spec.qkv_bias = family.qkv_bias;
  spec.qk_norm = family.qk_norm;
  if (family.window != WindowRule::None) read_windows(config, family, spec);
  spec.rope = read_rope(config, spec.head_dim);
  if (spec.rope.scaling == RopeSpec::Scaling::Dynamic) spec.context_limit = spec.context_trained;
  return spec;
}

}  // namespace pop
