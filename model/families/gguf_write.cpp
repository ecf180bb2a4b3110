// A ModelSpec as GGUF metadata: the keys that gguf_spec.cpp reads, as llama.cpp's converters write them.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "model/families/family.h"
#include "model/rope.h"

namespace pop {
namespace {

class Keys {
 public:
  Keys(GgufWriter& out, const Family& family) : out_(out), prefix_(std::string(family.architecture) + ".") {}
  void integer(const char* key, int value) { out_.set_u32(prefix_ + key, uint32_t(value)); }
  void real(const char* key, float value) { out_.set_f32(prefix_ + key, value); }
  void flag(const char* key, bool value) { out_.set_bool(prefix_ + key, value); }
  void text(const char* key, const char* value) { out_.set_string(prefix_ + key, value); }

 private:
  GgufWriter& out_;
  std::string prefix_;
};

void write_rope(const RopeSpec& rope, Keys& keys, GgufWriter& out) {
  keys.integer("rope.dimension_count", rope.dim);
  keys.real("rope.freq_base", rope.theta);
  if (rope.scaling == RopeSpec::Scaling::Linear || rope.scaling == RopeSpec::Scaling::Yarn) {
    const bool yarn = rope.scaling == RopeSpec::Scaling::Yarn;
    keys.text("rope.scaling.type", yarn ? "yarn" : "linear");
    keys.real("rope.scaling.factor", rope.factor);
    if (yarn) keys.integer("rope.scaling.original_context_length", rope.original_context);
    if (yarn && rope.beta_fast != 32) keys.real("rope.scaling.yarn_beta_fast", rope.beta_fast);
    if (yarn && rope.beta_slow != 1) keys.real("rope.scaling.yarn_beta_slow", rope.beta_slow);
    if (yarn && rope.attention_factor != 0) keys.real("rope.scaling.attn_factor", rope.attention_factor);
  }
  if (rope.scaling == RopeSpec::Scaling::Long) {
    keys.integer("rope.scaling.original_context_length", rope.original_context);
    keys.real("rope.scaling.attn_factor", attention_factor(rope));  // llama.cpp has no default of its own
    out.add_tensor_f32("rope_factors_long.weight", DType::F32, {rope.dim / 2}, rope.long_divisors);
    out.add_tensor_f32("rope_factors_short.weight", DType::F32, {rope.dim / 2}, rope.frequency_divisors);
  } else if (!rope.frequency_divisors.empty()) {
    out.add_tensor_f32("rope_freqs.weight", DType::F32, {rope.dim / 2}, rope.frequency_divisors);
  }
}

// A pattern ends with the first layer that sees all; it is said where it is not the family's.
void write_windows(const ModelSpec& spec, const Family& family, Keys& keys) {
  if (spec.windows.empty() && family.gguf_window_default != 0) keys.integer("attention.sliding_window", 0);
  if (spec.windows.empty()) return;
  keys.integer("attention.sliding_window", *std::max_element(spec.windows.begin(), spec.windows.end()));
  if (family.window != WindowRule::Pattern) return;
  const auto every = int(std::find(spec.windows.begin(), spec.windows.end(), 0) - spec.windows.begin()) + 1;
  if (std::min(every, spec.layers + 1) != std::min(family.window_pattern, spec.layers + 1))
    keys.integer("attention.sliding_window_pattern", every);
}

// What is not as a reader of the family takes it to be; the caps in any case, as converters write them.
void write_scores(const ModelSpec& spec, const Family& family, Keys& keys) {
  if (spec.attention_scale != usual_attention_scale(spec, family)) keys.real("attention.scale", spec.attention_scale);
  if (spec.attention_cap != 0 || family.attention_cap.value_or(0) != 0)
    keys.real("attn_logit_softcapping", spec.attention_cap);
  if (spec.logit_cap != 0 || family.logit_cap.value_or(0) != 0) keys.real("final_logit_softcapping", spec.logit_cap);
}

void write_experts(const ModelSpec& spec, const Family& family, Keys& keys) {
  const MoeSpec& moe = spec.moe;
  if (moe.experts == 0) return;
  keys.integer("expert_count", moe.experts);
  keys.integer("expert_used_count", moe.used);
  keys.integer("expert_feed_forward_length", moe.f);
  if (moe.shared_f > 0) keys.integer("expert_shared_feed_forward_length", moe.shared_f);
  if (moe.normalised != family.normalised_top_k) keys.flag("expert_weights_norm", moe.normalised);
}

void write_keys(const ModelSpec& spec, const Family& family, GgufWriter& out) {
  out.set_string("general.architecture", family.architecture);
  Keys keys(out, family);
  keys.integer("block_count", spec.layers);
  keys.integer("context_length", spec.context_trained);
  keys.integer("embedding_length", spec.d);
  keys.integer("feed_forward_length", spec.f);
  keys.integer("attention.head_count", spec.heads);
  keys.integer("attention.head_count_kv", spec.kv_heads);
  keys.integer("attention.key_length", spec.head_dim);
  keys.integer("attention.value_length", spec.head_dim);
  keys.real("attention.layer_norm_rms_epsilon", spec.norm_eps);
  if (spec.qkv_clip != 0) keys.real("attention.clamp_kqv", spec.qkv_clip);
  write_windows(spec, family, keys);
  write_scores(spec, family, keys);
  keys.integer("vocab_size", spec.vocab);
  write_experts(spec, family, keys);
  write_rope(spec.rope, keys, out);
  if (spec.window_rope) keys.real("rope.freq_base_swa", spec.window_rope->theta);
}

// What would be read of a file with these keys, and with a router in the layers that have one.
ModelSpec read_back(const ModelSpec& spec, const Family& family, const std::string& name) {
  GgufWriter probe;
  write_keys(spec, family, probe);
  const std::vector<float> one(1);
  for (int l = 0; l < spec.layers; ++l)
    if (spec.has_experts(l))
      probe.add_tensor_f32(fmt::format(fmt::runtime(kGgufNames.router), l), DType::F32, {1}, one);
  const std::vector<uint8_t> bytes = probe.to_bytes();
  ModelSpec back = read_spec(GgufFile::from_bytes(bytes, name), family);
  // Not of the keys: names, what the tensors say, the order of rows. A default of LongRoPE is written out.
  back.architecture = spec.architecture;
  back.name = spec.name;
  back.vocab = spec.vocab;
  back.tied_head = spec.tied_head;
  back.norm_offset = spec.norm_offset;
  back.rope.interleaved = spec.rope.interleaved;
  if (back.window_rope && spec.window_rope) back.window_rope->interleaved = spec.window_rope->interleaved;
  if (attention_factor(back.rope) == attention_factor(spec.rope))
    back.rope.attention_factor = spec.rope.attention_factor;
  return back;
}

}  // namespace

void write_spec(const ModelSpec& spec, const Family& family, const std::string& name, GgufWriter& out) {
  const ModelSpec back = read_back(spec, family, name);
  if (back != spec)
    fail("{}: expected a model that GGUF files of architecture {} can describe, found other {}", name,
         family.architecture,
         back.windows != spec.windows                                     ? "sliding windows (of some layers)"
         : back.rope != spec.rope || back.window_rope != spec.window_rope ? "positions (rope_scaling)"
         : back.moe != spec.moe                                           ? "experts"
                                                                          : "parts of its blocks");
  write_keys(spec, family, out);
}

}  // namespace pop
