// The llama family as GGUF writes it: Llama 1 to 3.x, Mistral, SmolLM2, TinyLlama and their like.
#include <cmath>

#include "base/error.h"
#include "model/families/llama.h"

namespace pop {
namespace {

int checked_int(const GgufFile& file, const std::string& key, uint64_t value, uint64_t low, uint64_t high) {
  if (value < low || value > high) fail("{}: key {}: expected {} to {}, found {}", file.path(), key, low, high, value);
  return int(value);
}

int required_int(const GgufFile& file, const std::string& key, uint64_t low, uint64_t high) {
  return checked_int(file, key, file.get_u64(key), low, high);
}

float checked_float(const GgufFile& file, const std::string& key, double value, double low, double high) {
  if (!(value >= low && value <= high))
    fail("{}: key {}: expected {} to {}, found {}", file.path(), key, low, high, value);
  return float(value);
}

void read_rope(const GgufFile& file, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.interleaved = true;  // converters permute q_proj and k_proj of this family for it
  rope.dim =
      checked_int(file, "llama.rope.dimension_count",
                  file.get_u64("llama.rope.dimension_count", uint64_t(spec.head_dim)), 2, uint64_t(spec.head_dim));
  if (rope.dim % 2 != 0)
    fail("{}: key llama.rope.dimension_count: expected an even number, found {}", file.path(), rope.dim);
  rope.theta = checked_float(file, "llama.rope.freq_base", file.get_f64("llama.rope.freq_base", 10000.0), 1.0, 1e12);

  const std::string kind = file.get_string("llama.rope.scaling.type", "none");
  if (kind == "linear")
    rope.scaling = RopeSpec::Scaling::Linear;
  else if (kind == "yarn")
    rope.scaling = RopeSpec::Scaling::Yarn;
  else if (kind != "none")
    fail("{}: key llama.rope.scaling.type: expected none, linear or yarn, found \"{}\"", file.path(), printable(kind));
  if (rope.scaling != RopeSpec::Scaling::None)
    rope.factor = checked_float(file, "llama.rope.scaling.factor", file.get_f64("llama.rope.scaling.factor"), 1.0, 1e6);
  else if (const auto old = file.find_f64("llama.rope.scale_linear"); old && *old != 1.0 && *old != 0.0) {
    rope.scaling = RopeSpec::Scaling::Linear;  // how files before August 2023 say it
    rope.factor = checked_float(file, "llama.rope.scale_linear", *old, 1.0, 1e6);
  }
  if (rope.scaling == RopeSpec::Scaling::Yarn) {
    const std::string prefix = "llama.rope.scaling.";
    rope.original_context = required_int(file, prefix + "original_context_length", 1, 1 << 30);
    rope.beta_fast =
        checked_float(file, prefix + "yarn_beta_fast", file.get_f64(prefix + "yarn_beta_fast", 32.0), 1e-3, 1e6);
    rope.beta_slow =
        checked_float(file, prefix + "yarn_beta_slow", file.get_f64(prefix + "yarn_beta_slow", 1.0), 1e-3, 1e6);
    rope.attention_factor =
        checked_float(file, prefix + "attn_factor", file.get_f64(prefix + "attn_factor", 0.0), 0.0, 1e3);
  }
  if (file.find("rope_freqs.weight") != nullptr) {
    const RawTensor divisors = file.tensor("rope_freqs.weight", {rope.dim / 2}, {DType::F32});
    rope.frequency_divisors.resize(size_t(rope.dim / 2));
    dequantize(DType::F32, divisors.data.data(), rope.frequency_divisors.data(), rope.dim / 2);
    for (const float divisor : rope.frequency_divisors)
      if (!(divisor > 0.f) || !std::isfinite(divisor))
        fail("{}: tensor rope_freqs.weight: expected positive numbers, found {}", file.path(), divisor);
  }
}

ModelSpec llama_spec(const GgufFile& file) {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.name = file.get_string("general.name", "");
  spec.layers = required_int(file, "llama.block_count", 1, 4096);
  spec.d = required_int(file, "llama.embedding_length", 1, 1 << 20);
  spec.f = required_int(file, "llama.feed_forward_length", 1, 1 << 22);
  spec.heads = required_int(file, "llama.attention.head_count", 1, 1 << 14);
  spec.kv_heads =
      checked_int(file, "llama.attention.head_count_kv",
                  file.get_u64("llama.attention.head_count_kv", uint64_t(spec.heads)), 1, uint64_t(spec.heads));
  if (spec.heads % spec.kv_heads != 0)
    fail("{}: key llama.attention.head_count_kv: expected a divisor of head_count {}, found {}", file.path(),
         spec.heads, spec.kv_heads);
  if (!file.has("llama.attention.key_length") && spec.d % spec.heads != 0)
    fail("{}: key llama.attention.head_count: expected a divisor of embedding_length {}, found {}", file.path(), spec.d,
         spec.heads);
  spec.head_dim = checked_int(file, "llama.attention.key_length",
                              file.get_u64("llama.attention.key_length", uint64_t(spec.d / spec.heads)), 1, 1 << 14);
  const uint64_t value_dim = file.get_u64("llama.attention.value_length", uint64_t(spec.head_dim));
  if (value_dim != uint64_t(spec.head_dim))
    fail("{}: key llama.attention.value_length: expected {} as key_length, found {}", file.path(), spec.head_dim,
         value_dim);
  spec.context_trained = required_int(file, "llama.context_length", 1, 1 << 30);
  spec.norm_eps = checked_float(file, "llama.attention.layer_norm_rms_epsilon",
                                file.get_f64("llama.attention.layer_norm_rms_epsilon"), 0.0, 1.0);
  for (const char* key : {"llama.expert_count", "llama.attention.sliding_window"})
    if (const uint64_t value = file.get_u64(key, 0); value != 0)
      fail("{}: key {}: expected 0 (this engine does not run it yet), found {}", file.path(), key, value);
  read_rope(file, spec);
  return spec;
}

// rope_freqs is read with the spec; rotary tables stored by old converters are recomputed.
constexpr const char* kIgnored[] = {"rope_freqs.weight", "blk.{}.attn_rot_embd.weight", "blk.{}.attn_rot_embd"};

}  // namespace

const Family kLlama{
    .architecture = "llama",
    .spec = llama_spec,
    .names = {.embedding = "token_embd.weight",
              .output_norm = "output_norm.weight",
              .output = "output.weight",
              .attention_norm = "blk.{}.attn_norm.weight",
              .q = "blk.{}.attn_q.weight",
              .k = "blk.{}.attn_k.weight",
              .v = "blk.{}.attn_v.weight",
              .o = "blk.{}.attn_output.weight",
              .ffn_norm = "blk.{}.ffn_norm.weight",
              .gate = "blk.{}.ffn_gate.weight",
              .up = "blk.{}.ffn_up.weight",
              .down = "blk.{}.ffn_down.weight",
              .ignored = kIgnored},
};

}  // namespace pop
