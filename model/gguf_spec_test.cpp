// Metadata of GGUF files to ModelSpec, of the families whose files leave things to the reader: what is not said is the family's, and
// what is wrong is refused by key. The numbers are those of the published models.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "model/families/family.h"

namespace pop {
namespace {

using Add = std::function<void(GgufWriter&, const std::string& prefix)>;

ModelSpec spec_of(const std::string& family, int layers, int d, int heads, int head_dim, const Add& add = {}) {
  GgufWriter writer;
  const std::string prefix = family + ".";
  writer.set_string("general.architecture", family);
  writer.set_u32(prefix + "block_count", uint32_t(layers));
  writer.set_u32(prefix + "embedding_length", uint32_t(d));
  writer.set_u32(prefix + "feed_forward_length", 64);
  writer.set_u32(prefix + "attention.head_count", uint32_t(heads));
  writer.set_u32(prefix + "attention.key_length", uint32_t(head_dim));
  writer.set_u32(prefix + "attention.value_length", uint32_t(head_dim));
  writer.set_u32(prefix + "context_length", 8192);
  writer.set_f32(prefix + "attention.layer_norm_rms_epsilon", 1e-6f);
  if (add) add(writer, prefix);
  const std::vector<uint8_t> bytes = writer.to_bytes();
  const GgufFile file = GgufFile::from_bytes(bytes, "toy.gguf");
  return read_spec(file, find_family(file));
}

std::string error_of(const std::string& family, const Add& add) {
  try {
    spec_of(family, 4, 64, 4, 16, add);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

const Add kWindow = [](GgufWriter& w, const std::string& p) { w.set_u32(p + "attention.sliding_window", 1024); };

TEST(GgufSpec, Gemma) {
  const ModelSpec two = spec_of("gemma2", 4, 64, 4, 16, kWindow);
  EXPECT_EQ(two.gate, Gate::Gelu);
  EXPECT_TRUE(two.post_norms && two.qk_norm == QkNorm::None && !two.rope.interleaved && !two.window_rope);
  EXPECT_EQ(two.norm_offset, 0.f);  // converters have added it
  EXPECT_EQ(two.embedding_scale, 8.f);
  EXPECT_EQ(two.attention_scale, 0.25f);
  EXPECT_EQ(two.attention_cap, 50.f);
  EXPECT_EQ(two.logit_cap, 30.f);
  EXPECT_EQ(two.windows, (std::vector<int>{1024, 0, 1024, 0}));

  const ModelSpec three = spec_of("gemma3", 7, 64, 4, 16, [](GgufWriter& w, const std::string& p) {
    kWindow(w, p);
    w.set_f32(p + "rope.freq_base", 1e6f);
    w.set_string(p + "rope.scaling.type", "linear");
    w.set_f32(p + "rope.scaling.factor", 8.f);
  });
  EXPECT_EQ(three.qk_norm, QkNorm::Heads);
  EXPECT_EQ(three.windows, (std::vector<int>{1024, 1024, 1024, 1024, 1024, 0, 1024}));
  EXPECT_EQ(three.rope.theta, 1e6f);
  EXPECT_EQ(three.rope.factor, 8.f);
  EXPECT_EQ(three.window_rope->theta, 1e4f);
  EXPECT_EQ(three.window_rope->scaling, RopeSpec::Scaling::None);
  EXPECT_EQ(three.window_rope->dim, 16);
  EXPECT_EQ(three.attention_cap + three.logit_cap, 0.f);
  const ModelSpec other = spec_of("gemma3", 4, 64, 4, 16, [](GgufWriter& w, const std::string& p) {
    kWindow(w, p);
    w.set_u32(p + "attention.sliding_window_pattern", 2);
    w.set_f32(p + "rope.freq_base_swa", 5e3f);
    w.set_f32(p + "attention.scale", 0.125f);
  });
  EXPECT_EQ(other.windows, (std::vector<int>{1024, 0, 1024, 0}));
  EXPECT_EQ(other.window_rope->theta, 5e3f);
  EXPECT_EQ(other.attention_scale, 0.125f);
}

// What llama.cpp's converter leaves out: of Gemma 2 in its first days, of Gemma 3 where all layers see all.
TEST(GgufSpec, GemmaWithoutAWindowInTheFile) {
  EXPECT_EQ(spec_of("gemma2", 4, 64, 4, 16).windows, (std::vector<int>{4096, 0, 4096, 0}));
  EXPECT_TRUE(spec_of("gemma3", 7, 64, 4, 16).windows.empty());
}

// The 27B models divide by the root of d / heads, 144 and 168, and their files do not say it.
TEST(GgufSpec, LargeGemmasScaleByWidth) {
  EXPECT_FLOAT_EQ(spec_of("gemma2", 46, 4608, 32, 128, kWindow).attention_scale, 1 / std::sqrt(144.f));
  EXPECT_FLOAT_EQ(spec_of("gemma3", 62, 5376, 32, 128, kWindow).attention_scale, 1 / std::sqrt(168.f));
  EXPECT_FLOAT_EQ(spec_of("gemma2", 42, 3584, 16, 256, kWindow).attention_scale, 1 / 16.f);
}

// Six pairs are rotated; `longest`: the number of long factors in the file.
void add_longrope(GgufWriter& w, const std::string& p, int longest, float factor = 2.f) {
  w.set_u32(p + "rope.dimension_count", 12);
  w.set_u32(p + "rope.scaling.original_context_length", 2048);
  const std::vector<float> shorter(6, 1.f), longer(size_t(longest), factor);
  w.add_tensor_f32("rope_factors_short.weight", DType::F32, {6}, shorter);
  w.add_tensor_f32("rope_factors_long.weight", DType::F32, {longest}, longer);
}

TEST(GgufSpec, Phi3) {
  const ModelSpec plain = spec_of("phi3", 3, 64, 4, 16, kWindow);
  EXPECT_TRUE(plain.fused && !plain.rope.interleaved);
  EXPECT_EQ(plain.windows, (std::vector<int>{1024, 1024, 1024}));
  EXPECT_EQ(plain.rope.scaling, RopeSpec::Scaling::None);
  const ModelSpec s = spec_of("phi3", 3, 64, 4, 16, [](GgufWriter& w, const std::string& p) { add_longrope(w, p, 6); });
  EXPECT_EQ(s.rope.scaling, RopeSpec::Scaling::Long);
  EXPECT_EQ(s.rope.dim, 12);
  EXPECT_EQ(s.rope.original_context, 2048);
  EXPECT_EQ(s.rope.factor, 4.f);  // 8192 over it
  EXPECT_EQ(s.rope.frequency_divisors, std::vector<float>(6, 1.f));
  EXPECT_EQ(s.rope.long_divisors, std::vector<float>(6, 2.f));
}

// llama.cpp's files of these families say nothing about it: what its graphs do (public case M01).
TEST(GgufSpec, ExpertsAreNormalisedAsTheFamilySays) {
  const auto normalised = [](const char* family, std::optional<bool> said) {
    return spec_of(family, 4, 64, 4, 16,
                   [&](GgufWriter& w, const std::string& p) {
                     w.set_u32(p + "expert_count", 8);
                     w.set_u32(p + "expert_used_count", 2);
                     w.add_tensor_f32("blk.1.ffn_gate_inp.weight", DType::F32, {8, 64}, std::vector<float>(8 * 64));
                     if (said) w.set_bool(p + "expert_weights_norm", *said);
                   })
        .moe.normalised;
  };
  EXPECT_TRUE(normalised("llama", std::nullopt));  // Mixtral
  EXPECT_TRUE(normalised("qwen3moe", std::nullopt));
  EXPECT_FALSE(normalised("qwen2moe", std::nullopt));
  for (const char* family : {"llama", "qwen3moe", "qwen2moe"}) {
    EXPECT_TRUE(normalised(family, true)) << family;
    EXPECT_FALSE(normalised(family, false)) << family;
  }
}

TEST(GgufSpec, Olmoe) {
  const auto olmoe = [](const Add& add) {
    return spec_of("olmoe", 2, 64, 4, 16, [&](GgufWriter& w, const std::string& p) {
      w.set_u32(p + "expert_count", 8);
      w.set_u32(p + "expert_used_count", 2);
      const std::vector<float> one(1);
      for (const char* router : {"blk.0.ffn_gate_inp.weight", "blk.1.ffn_gate_inp.weight"})
        w.add_tensor_f32(router, DType::F32, {1}, one);
      if (add) add(w, p);
    });
  };
  const ModelSpec s = olmoe({});
  EXPECT_EQ(s.qk_norm, QkNorm::Whole);
  EXPECT_EQ(s.qkv_clip, 0.f);
  EXPECT_EQ(s.moe.f, 64);  // feed_forward_length
  EXPECT_FALSE(s.moe.normalised || s.rope.interleaved);
  EXPECT_EQ(olmoe([](auto& w, auto& p) { w.set_f32(p + "attention.clamp_kqv", 8); }).qkv_clip, 8.f);
  EXPECT_TRUE(olmoe([](auto& w, auto& p) { w.set_bool(p + "expert_weights_norm", true); }).moe.normalised);
}

TEST(GgufSpec, RefusesByKey) {
  struct Case {
    const char* family;
    Add add;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {"gemma3", [](auto& w, auto& p) { w.set_i32(p + "attention.sliding_window", -1); }, "attention.sliding_window"},
      {"gemma3", [](auto& w, auto& p) { kWindow(w, p), w.set_u32(p + "attention.sliding_window_pattern", 0); },
       "gemma3.attention.sliding_window_pattern: expected 1 to"},
      {"gemma3", [](auto& w, auto& p) { kWindow(w, p), w.set_f32(p + "attn_logit_softcapping", 50); },
       "gemma3.attn_logit_softcapping: expected 0"},
      {"gemma2", [](auto& w, auto& p) { kWindow(w, p), w.set_f32(p + "final_logit_softcapping", NAN); },
       "gemma2.final_logit_softcapping: expected 0 to"},
      {"gemma2", [](auto& w, auto& p) { kWindow(w, p), w.set_f32(p + "attention.scale", 0); },
       "gemma2.attention.scale: expected"},
      {"gemma3", [](auto& w, auto& p) { kWindow(w, p), w.set_f32(p + "rope.freq_base_swa", -1); },
       "gemma3.rope.freq_base_swa: expected 1 to"},
      {"gemma3", [](auto& w, auto& p) { kWindow(w, p), w.set_u32(p + "expert_count", 8); }, "gemma3.expert_count"},
      {"llama", [](auto& w, auto& p) { w.set_f32(p + "final_logit_softcapping", 30); },
       "llama.final_logit_softcapping: expected 0"},
      {"phi3", [](auto& w, auto& p) { add_longrope(w, p, 5); }, "rope_factors_long.weight"},
      {"phi3", [](auto& w, auto& p) { add_longrope(w, p, 6, -1.f); },
       "rope_factors_long.weight: expected positive numbers"},
      {"phi3", [](auto& w, auto& p) { w.set_string(p + "rope.scaling.type", "longrope"); },
       "phi3.rope.scaling.type: expected none, linear, yarn, or longrope with its factors"},
      {"phi3",
       [](auto& w, auto& p) {
         add_longrope(w, p, 6);
         w.set_string(p + "rope.scaling.type", "linear");
         w.set_f32(p + "rope.scaling.factor", 2);
       },
       "rope_factors_long.weight: expected no other scaling"},
      {"olmoe", [](auto& w, auto& p) { w.set_f32(p + "attention.clamp_kqv", -1); },
       "olmoe.attention.clamp_kqv: expected 0 to"},
      {"llama", [](auto& w, auto& p) { w.set_f32(p + "attention.clamp_kqv", 8); },
       "llama.attention.clamp_kqv: expected 0 (this"},
      {"qwen2", kWindow, "qwen2.attention.sliding_window: expected 0"},
  };
  for (const Case& c : cases) {
    const std::string error = error_of(c.family, c.add);
    EXPECT_NE(error.find(c.expected), std::string::npos) << c.expected << "\n" << error;
    EXPECT_TRUE(error.starts_with("toy.gguf: ")) << error;
  }
}

}  // namespace
}  // namespace pop
