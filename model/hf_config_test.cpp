// config.json to ModelSpec: both spellings of everything, windows, kinds of positions; and what is not known is refused by name.
// Numbers of RoPE are compared through logits (tests/golden_logits_test.cpp); here the formulas' borders, computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "model/families/family.h"
#include "model/rope.h"

namespace pop {
namespace {

ModelSpec spec_of(const std::string& family, const std::string& more = "") {
  const JsonObject config = JsonObject::parse(
      R"({"architectures":[")" + family +
          R"("],"num_hidden_layers":4,"hidden_size":64,"intermediate_size":96,"vocab_size":100,"num_attention_heads":4,)"
          R"("max_position_embeddings":128,"rms_norm_eps":1e-5)" +
          (more.empty() ? "" : "," + more) + "}",
      "config.json");
  return read_spec(config, find_family(config));
}

std::string error_of(const std::string& family, const std::string& more) {
  try {
    spec_of(family, more);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(HfConfig, DefaultsAreTransformers) {
  const ModelSpec s = spec_of("LlamaForCausalLM");
  EXPECT_EQ(s.kv_heads, 4);
  EXPECT_EQ(s.head_dim, 16);
  EXPECT_FALSE(s.tied_head || s.qkv_bias || s.qk_norm != QkNorm::None || s.rope.interleaved);
  EXPECT_EQ(s.rope.theta, 10000.f);
  EXPECT_EQ(s.rope.dim, 16);
  EXPECT_TRUE(s.windows.empty());
  EXPECT_TRUE(spec_of("Qwen2ForCausalLM").qkv_bias);
  EXPECT_EQ(spec_of("Qwen3ForCausalLM").qk_norm, QkNorm::Heads);
  EXPECT_EQ(spec_of("LlamaForCausalLM", R"("head_dim":8,"num_key_value_heads":2,"tie_word_embeddings":true)").q_dim(),
            32);
}

TEST(HfConfig, Windows) {
  using List = std::vector<int>;
  const auto windows = [](const std::string& family, const std::string& more) { return spec_of(family, more).windows; };
  for (const char* wide : {"null", "0", "128"})  // of 128 positions
    EXPECT_EQ(windows("LlamaForCausalLM", R"("sliding_window":)" + std::string(wide)), List{}) << wide;
  EXPECT_EQ(windows("MistralForCausalLM", R"("sliding_window":9)"), (List{9, 9, 9, 9}));
  EXPECT_EQ(windows("MistralForCausalLM", R"("sliding_window":null)"), List{});
  EXPECT_EQ(windows("MistralForCausalLM", ""), List(4, 4096));
  const std::string slide = R"("sliding_attention")", full = R"("full_attention")";
  const auto types = [](const std::string& a, const std::string& b) {
    return R"("layer_types":[)" + a + "," + b + "," + a + "," + b + "]";
  };
  EXPECT_EQ(windows("MistralForCausalLM", R"("sliding_window":9,)" + types(slide, slide)), (List{9, 9, 9, 9}));
  EXPECT_EQ(windows("MistralForCausalLM", R"("sliding_window":null,)" + types(full, full)), List{});
  EXPECT_NE(error_of("MistralForCausalLM", R"("sliding_window":9,)" + types(slide, full))
                .find("layer_types: expected sliding_attention alone"),
            std::string::npos);
  EXPECT_NE(error_of("MistralForCausalLM", R"("sliding_window":null,)" + types(slide, full))
                .find("layer_types: expected full_attention alone"),
            std::string::npos);
  for (const char* family : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    EXPECT_EQ(windows(family, R"("sliding_window":9,"use_sliding_window":false,"max_window_layers":0)"), List{});
    EXPECT_EQ(windows(family, R"("sliding_window":9,"use_sliding_window":true,"max_window_layers":3)"),
              (List{0, 0, 0, 9}));
    EXPECT_EQ(windows(family, R"("sliding_window":9,"use_sliding_window":true)"), List{});  // from layer 28 on
    EXPECT_EQ(windows(family, R"("use_sliding_window":true,"max_window_layers":2)"), (List{0, 0, 4096, 4096}));
    EXPECT_EQ(windows(family, R"("sliding_window":null,"use_sliding_window":true,"max_window_layers":2)"), List{});
    EXPECT_EQ(windows(family, R"("sliding_window":9,"use_sliding_window":true,"layer_types":["sliding_attention",)"
                              R"("full_attention","full_attention","sliding_attention"])"),
              (List{9, 0, 0, 9}));
  }
}

TEST(HfConfig, PositionsInBothSpellings) {
  for (const char* spelling : {R"("rope_theta":5e5,"rope_scaling":{"type":"KIND","factor":2.0REST})",
                               R"("rope_theta":5e5,"rope_scaling":{"rope_type":"KIND","factor":2.0REST})",
                               R"("rope_parameters":{"rope_type":"KIND","rope_theta":5e5,"factor":2.0REST})"}) {
    const auto with = [&](const std::string& kind, const std::string& rest = "") {
      std::string text = spelling;
      text.replace(text.find("KIND"), 4, kind);
      text.replace(text.find("REST"), 4, rest);
      return spec_of("LlamaForCausalLM", text);
    };
    EXPECT_EQ(with("default").rope.scaling, RopeSpec::Scaling::None);
    EXPECT_EQ(with("default").rope.theta, 5e5f);
    EXPECT_EQ(with("linear").rope.scaling, RopeSpec::Scaling::Linear);
    EXPECT_EQ(with("linear").rope.factor, 2.f);
    EXPECT_EQ(with("dynamic").context_limit, 128);
    EXPECT_EQ(with("linear").context_limit, 0);
    const RopeSpec yarn = with("yarn", R"(,"original_max_position_embeddings":32,"beta_fast":16)").rope;
    EXPECT_EQ(yarn.scaling, RopeSpec::Scaling::Yarn);
    EXPECT_EQ(yarn.original_context, 32);
    EXPECT_EQ(yarn.beta_fast, 16.f);
    EXPECT_EQ(yarn.attention_factor, 0.f);
    EXPECT_EQ(with("yarn", R"(,"attention_factor":1.25)").rope.attention_factor, 1.25f);
    EXPECT_EQ(with("yarn").rope.original_context, 128);
    EXPECT_NEAR(with("yarn", R"(,"mscale":2.0,"mscale_all_dim":1.0)").rope.attention_factor,
                (0.2 * std::log(2.0) + 1) / (0.1 * std::log(2.0) + 1), 1e-6);
    // theta 5e5, 16 dimensions: waves of 2 pi 5e5^(i/8): 6.3, 32.4, 167, 861, ... Of 64 positions those over 64 are long.
    const RopeSpec llama3 =
        with("llama3", R"(,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64)").rope;
    ASSERT_EQ(llama3.frequency_divisors.size(), 8u);
    EXPECT_EQ(llama3.frequency_divisors[0], 1.f);
    const double smooth = (64 / (2 * M_PI * std::pow(5e5, 0.125)) - 1) / 3;
    EXPECT_NEAR(llama3.frequency_divisors[1], 1 / ((1 - smooth) / 2 + smooth), 1e-5);
    for (size_t i = 2; i < 8; ++i) EXPECT_EQ(llama3.frequency_divisors[i], 2.f);
  }
}

// Every kind of positions and every field that changes one: cos and sin as transformers' own functions make them, from either
// name of the kind (python/make_rope_goldens.py).
TEST(HfConfig, AnglesAreTransformers) {
  const auto goldens = nlohmann::json::parse(std::ifstream("tests/goldens/rope.json"));
  for (const nlohmann::json& golden : goldens.at("cases"))
    for (const bool older : {false, true}) {
      nlohmann::json config = golden.at("config");
      if (older && config.contains("rope_scaling")) {
        config["rope_scaling"]["type"] = config["rope_scaling"]["rope_type"];
        config["rope_scaling"].erase("rope_type");
      }
      const JsonObject object = JsonObject::parse(config.dump(), "config.json");
      const RopeTable table(read_spec(object, find_family(object)).rope, golden.at("context"));
      const auto expected = golden.at("inverse_frequencies").get<std::vector<double>>();
      ASSERT_EQ(size_t(table.dim()), 2 * expected.size()) << config;
      std::vector<float> cos_sin(2 * expected.size());
      for (const int position : {1, 3}) {
        table.angles(position, cos_sin.data());
        for (size_t i = 0; i < expected.size(); ++i) {
          const double factor = golden.at("factor"), angle = position * expected[i];
          EXPECT_NEAR(cos_sin[2 * i], factor * std::cos(angle), 2e-6) << config << " " << i;
          EXPECT_NEAR(cos_sin[2 * i + 1], factor * std::sin(angle), 1e-6 + 2e-6 * angle) << config << " " << i;
        }
      }
    }
}

// Gemma by defaults of the classes, in the words of transformers 4 and 5.
TEST(HfConfig, Gemma) {
  const ModelSpec two = spec_of("Gemma2ForCausalLM", R"("head_dim":12)");
  EXPECT_EQ(two.gate, Gate::Gelu);
  EXPECT_TRUE(two.tied_head && two.post_norms && two.qk_norm == QkNorm::None);
  EXPECT_EQ(two.embedding_scale, 8.f);         // the root of 64
  EXPECT_EQ(two.attention_scale, 1.f / 16.f);  // of query_pre_attn_scalar 256
  EXPECT_EQ(two.norm_offset, 1.f);
  EXPECT_EQ(two.attention_cap, 50.f);
  EXPECT_EQ(two.logit_cap, 30.f);
  EXPECT_EQ(two.windows, (std::vector<int>{4096, 0, 4096, 0}));
  EXPECT_FALSE(two.window_rope.has_value());
  const ModelSpec bare = spec_of("Gemma2ForCausalLM", R"("attn_logit_softcapping":null,"final_logit_softcapping":null,)"
                                                      R"("query_pre_attn_scalar":16,"tie_word_embeddings":false)");
  EXPECT_EQ(bare.attention_cap + bare.logit_cap, 0.f);
  EXPECT_EQ(bare.attention_scale, 0.25f);
  EXPECT_FALSE(bare.tied_head);

  const auto three = [](const std::string& more) {
    return spec_of("Gemma3ForCausalLM", R"("sliding_window":9,)" + more);
  };
  for (const char* spelling :
       {R"("sliding_window_pattern":3,"rope_scaling":{"rope_type":"linear","factor":8.0},"rope_local_base_freq":2e4)",
        R"("layer_types":["sliding_attention","sliding_attention","full_attention","sliding_attention"],)"
        R"("rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0},)"
        R"("sliding_attention":{"rope_type":"default","rope_theta":2e4}})"}) {
    const ModelSpec s = three(spelling);
    EXPECT_TRUE(s.qk_norm == QkNorm::Heads && s.post_norms);
    EXPECT_EQ(s.windows, (std::vector<int>{9, 9, 0, 9})) << spelling;
    EXPECT_EQ(s.rope.theta, 1e6f);
    EXPECT_EQ(s.rope.scaling, RopeSpec::Scaling::Linear);
    EXPECT_EQ(s.rope.factor, 8.f);
    ASSERT_TRUE(s.window_rope.has_value());
    EXPECT_EQ(s.window_rope->theta, 2e4f);
    EXPECT_EQ(s.window_rope->scaling, RopeSpec::Scaling::None);
    EXPECT_EQ(s.attention_cap + s.logit_cap, 0.f);
  }
  EXPECT_EQ(three(R"("rope_theta":5e5,"final_logit_softcapping":20)").logit_cap, 20.f);
  EXPECT_EQ(three(R"("rope_theta":5e5)").window_rope->theta, 1e4f);
  EXPECT_EQ(three(R"("rope_theta":5e5)").windows, (std::vector<int>{9, 9, 9, 9}));  // the sixth is the first
}

// LongRoPE in both spellings; heads rotated in part; which divisors hold is a matter of the context.
TEST(HfConfig, Phi3) {
  const std::string factors = R"("short_factor":[1,1,1,1,1,2],"long_factor":[1,1,1,1,1,64])";
  for (const std::string& spelling :
       {R"("partial_rotary_factor":0.75,"rope_scaling":{"type":"longrope",)" + factors + "}",
        R"("rope_parameters":{"rope_type":"longrope","factor":4.0,"partial_rotary_factor":0.75,)" + factors +
            R"(,"original_max_position_embeddings":32})"}) {
    const ModelSpec s = spec_of("Phi3ForCausalLM", R"("original_max_position_embeddings":32,)" + spelling);
    EXPECT_TRUE(s.fused && s.windows.empty());
    EXPECT_EQ(s.gate, Gate::Silu);
    EXPECT_EQ(s.rope.scaling, RopeSpec::Scaling::Long);
    EXPECT_EQ(s.rope.dim, 12);
    EXPECT_EQ(s.rope.factor, 4.f);
    EXPECT_EQ(s.rope.original_context, 32);
    const float scale = std::sqrt(1 + std::log(4.f) / std::log(32.f));
    for (const auto& [context, divisor] : {std::pair{32, 2.f}, {33, 64.f}}) {
      std::vector<float> cos_sin(12);
      RopeTable(s.rope, context).angles(100, cos_sin.data());
      EXPECT_NEAR(cos_sin[11], scale * std::sin(100 / (divisor * std::pow(10000.f, 10.f / 12.f))), 1e-6) << context;
      EXPECT_NEAR(cos_sin[0], scale * std::cos(100.f), 1e-6);
    }
  }
  EXPECT_EQ(spec_of("Phi3ForCausalLM", R"("sliding_window":9)").windows, (std::vector<int>{9, 9, 9, 9}));
}

// What is said twice must be the same: transformers 4 and 5 read one or the other.
TEST(HfConfig, PositionsSaidTwice) {
  const auto rope = [](const std::string& more) { return spec_of("LlamaForCausalLM", more).rope; };
  const RopeSpec both = rope(R"("rope_scaling":{"rope_type":"linear","factor":2},)"
                             R"("rope_parameters":{"factor":2.0,"rope_type":"linear"})");
  EXPECT_EQ(both.scaling, RopeSpec::Scaling::Linear);
  EXPECT_EQ(rope(R"("rope_scaling":null,"rope_parameters":{"rope_type":"linear","factor":2})").factor, 2.f);
  EXPECT_EQ(rope(R"("rope_scaling":{"rope_type":"linear","factor":2},"rope_parameters":null)").factor, 2.f);
  EXPECT_EQ(rope(R"("rope_scaling":{"rope_type":null,"type":"linear","factor":2})").factor, 2.f);
  EXPECT_EQ(rope(R"("rope_scaling":{"rope_type":"linear","type":"linear","factor":2})").factor, 2.f);
  EXPECT_EQ(rope(R"("rope_theta":5e5,"rope_parameters":{"rope_theta":500000})").theta, 5e5f);
  EXPECT_EQ(rope(R"("rope_theta":5e5,"rope_parameters":{"rope_theta":null})").theta, 5e5f);
  const std::string outside = R"("original_max_position_embeddings":32,)";
  EXPECT_EQ(rope(outside + R"("rope_scaling":{"type":"yarn","factor":2,"original_max_position_embeddings":32})")
                .original_context,
            32);
  const std::vector<std::array<std::string, 2>> cases = {
      {R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"type":"linear","factor":4})",
       "rope_scaling: expected what rope_parameters says, or null"},
      {R"("rope_scaling":{"factor":2.0})", "rope_scaling.rope_type: expected the kind that factor is of, found none"},
      {R"("rope_parameters":{"rope_type":null,"factor":2.0})", "rope_parameters.rope_type: expected the kind"},
      {R"("rope_scaling":{"rope_type":"default","type":"linear","factor":2})",
       "rope_scaling.type: expected default as in rope_type, found \"linear\""},
      {R"("rope_theta":5e5,"rope_parameters":{"rope_theta":1e4})", "rope_theta: expected 10000"},
      {outside + R"("rope_scaling":{"type":"yarn","factor":2,"original_max_position_embeddings":64})",
       "original_max_position_embeddings: expected 64, the one"},
      {outside + R"("rope_scaling":{"type":"yarn","factor":2})", "original_max_position_embeddings: expected 128"},
  };
  for (const auto& [more, expected] : cases) {
    const std::string error = error_of("LlamaForCausalLM", more);
    EXPECT_NE(error.find(expected), std::string::npos) << more << "\n" << error;
    EXPECT_TRUE(error.starts_with("config.json: ")) << error;
  }
}

// Up to the trained context the angles of "dynamic" are the plain ones.
TEST(HfConfig, DynamicAnglesArePlain) {
  const RopeTable plain(spec_of("LlamaForCausalLM").rope),
      dynamic(spec_of("LlamaForCausalLM", R"("rope_scaling":{"type":"dynamic","factor":4.0})").rope);
  std::vector<float> a(16), b(16);
  plain.angles(127, a.data());
  dynamic.angles(127, b.data());
  EXPECT_EQ(a, b);
}

const std::string kExperts = R"("num_experts":8,"num_experts_per_tok":2)",
                  kWide = kExperts + R"(,"moe_intermediate_size":24)",
                  kShared = kWide + R"(,"shared_expert_intermediate_size":40)";

// What transformers' classes make of fields that are there, absent, or called otherwise (norm_topk_prob: public case M01).
TEST(HfConfig, Experts) {
  using Layers = std::vector<bool>;
  const ModelSpec shared = spec_of("Qwen2MoeForCausalLM", kShared);
  EXPECT_EQ(shared.architecture, "qwen2moe");  // as GGUF files call it
  EXPECT_EQ(shared.moe.experts, 8);
  EXPECT_EQ(shared.moe.used, 2);
  EXPECT_EQ(shared.moe.f, 24);
  EXPECT_EQ(shared.moe.shared_f, 40);
  EXPECT_EQ(shared.moe.layers, Layers(4, true));
  EXPECT_TRUE(shared.qkv_bias);
  EXPECT_FALSE(spec_of("Qwen2MoeForCausalLM", kShared + R"(,"qkv_bias":false)").qkv_bias);
  EXPECT_TRUE(
      spec_of("Qwen2MoeForCausalLM", kShared + R"(,"use_sliding_window":false,"sliding_window":0)").windows.empty());
  for (const char* family : {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}) {
    const auto moe = [&](const std::string& more) { return spec_of(family, kShared + more).moe; };
    EXPECT_FALSE(moe("").normalised);
    EXPECT_FALSE(moe(R"(,"norm_topk_prob":null)").normalised);
    EXPECT_FALSE(moe(R"(,"norm_topk_prob":false)").normalised);
    EXPECT_TRUE(moe(R"(,"norm_topk_prob":true)").normalised);
    EXPECT_EQ(moe(R"(,"decoder_sparse_step":2)").layers, (Layers{false, true, false, true}));
    EXPECT_EQ(moe(R"(,"decoder_sparse_step":3)").layers, (Layers{false, false, true, false}));
    EXPECT_EQ(moe(R"(,"decoder_sparse_step":2,"mlp_only_layers":[3])").layers, (Layers{false, true, false, false}));
    EXPECT_EQ(moe(R"(,"mlp_only_layers":[0,2])").layers, (Layers{false, true, false, true}));
  }
  EXPECT_EQ(
      spec_of("Qwen3MoeForCausalLM", R"("num_local_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":24)")
          .moe.experts,
      8);
  EXPECT_EQ(spec_of("Qwen3MoeForCausalLM", kWide).qk_norm, QkNorm::Heads);
  // Mixtral: experts as wide as an FFN in every layer, their weights always normalised; its own theta, no window unless said.
  const ModelSpec mixtral = spec_of("MixtralForCausalLM", R"("num_local_experts":4,"num_experts_per_tok":2)");
  EXPECT_EQ(mixtral.moe.f, 96);
  EXPECT_EQ(mixtral.moe.shared_f, 0);
  EXPECT_EQ(mixtral.moe.layers, Layers(4, true));
  EXPECT_TRUE(mixtral.moe.normalised);
  EXPECT_TRUE(mixtral.windows.empty());
  EXPECT_EQ(mixtral.rope.theta, 1e6f);
  // OLMoE: as wide as intermediate_size says, normalised only if said; norms over all heads of q and of k.
  const ModelSpec olmoe = spec_of("OlmoeForCausalLM", kExperts + R"(,"clip_qkv":null)");
  EXPECT_EQ(olmoe.moe.f, 96);
  EXPECT_EQ(olmoe.moe.shared_f, 0);
  EXPECT_EQ(olmoe.moe.layers, Layers(4, true));
  EXPECT_FALSE(olmoe.moe.normalised || olmoe.tied_head);
  EXPECT_EQ(olmoe.qk_norm, QkNorm::Whole);
  EXPECT_EQ(olmoe.qkv_clip, 0.f);
  EXPECT_EQ(spec_of("OlmoeForCausalLM", kExperts + R"(,"clip_qkv":8)").qkv_clip, 8.f);
  EXPECT_TRUE(spec_of("OlmoeForCausalLM", kExperts + R"(,"norm_topk_prob":true)").moe.normalised);
  EXPECT_EQ(spec_of("LlamaForCausalLM", kShared).moe.experts, 0);  // means nothing there
}

TEST(HfConfig, RefusesByName) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"GPT2LMHeadModel", "", "architectures: expected one of Gemma2ForCausalLM, Gemma3ForCausalLM"},
      {"GPT2LMHeadModel", "", "found [\"GPT2LMHeadModel\"]"},
      {"LlamaForCausalLM", R"("model_type":"mistral")",
       "model_type: expected llama, that of LlamaForCausalLM, found \"mistral\""},
      {"LlamaForCausalLM", R"("hidden_act":"gelu")", "hidden_act: expected silu, found \"gelu\""},
      {"LlamaForCausalLM", R"("attention_bias":true)", "attention_bias: expected false, found true"},
      {"LlamaForCausalLM", R"("mlp_bias":true)", "mlp_bias"},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"gptq","bits":4})",
       "quantization_config.quant_method: expected fp8 or compressed-tensors (weights in F8_E4M3), or no "
       "quantization_config, found \"gptq\""},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true})",
       "found \"bitsandbytes\""},
      {"LlamaForCausalLM", R"("quantization_config":{"bits":4})", "quantization_config.quant_method: expected fp8"},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"fp8","activation_scheme":"static"})",
       "quantization_config.activation_scheme: expected dynamic, found \"static\""},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"fp8","fmt":"e5m2"})",
       "quantization_config.fmt: expected e4m3"},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"fp8","weight_block_size":[128]})",
       "quantization_config.weight_block_size: expected two integers"},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"fp8","weight_block_size":[128,0]})",
       "quantization_config.weight_block_size: expected integers from 1"},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized"})",
       "quantization_config.format: expected float-quantized or naive-quantized"},
      {"LlamaForCausalLM", R"("quantization_config":{"quant_method":"compressed-tensors","config_groups":{}})",
       "quantization_config.config_groups: expected an object of groups"},
      {"LlamaForCausalLM",
       R"("quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"weights":{"type":"float",)"
       R"("num_bits":4}}}})",
       "weights.num_bits: expected 8, found 4"},
      {"LlamaForCausalLM",
       R"("quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"weights":{"type":"int",)"
       R"("num_bits":8}}}})",
       "weights.type: expected float, found \"int\""},
      {"LlamaForCausalLM", R"("compression_config":{"quant_method":"compressed-tensors"})",
       "compression_config: expected"},
      {"LlamaForCausalLM", R"("num_key_value_heads":3)", "num_key_value_heads: expected a divisor"},
      {"LlamaForCausalLM", R"("num_key_value_heads":5)", "num_key_value_heads"},
      {"LlamaForCausalLM", R"("num_hidden_layers":0)", "num_hidden_layers: expected an integer from 1"},
      {"LlamaForCausalLM", R"("num_hidden_layers":2.5)", "num_hidden_layers"},
      {"LlamaForCausalLM", R"("num_hidden_layers":18446744073709551615)", "num_hidden_layers"},
      {"LlamaForCausalLM", R"("hidden_size":null)", "hidden_size: expected an integer from 1 to 1048576, found null"},
      {"LlamaForCausalLM", R"("hidden_size":66)", "num_attention_heads: expected a divisor of hidden_size 66"},
      {"LlamaForCausalLM", R"("head_dim":15)", "head_dim: expected an even number"},
      {"LlamaForCausalLM", R"("rms_norm_eps":"1e-5")", "rms_norm_eps: expected a number"},
      {"LlamaForCausalLM", R"("partial_rotary_factor":0.5)", "partial_rotary_factor: expected 1"},
      {"LlamaForCausalLM", R"("rope_parameters":{"partial_rotary_factor":0.5})",
       "rope_parameters.partial_rotary_factor"},
      {"LlamaForCausalLM", R"("rope_scaling":{"type":"foo"})", "rope_scaling.type: expected default, linear"},
      {"LlamaForCausalLM", R"("rope_scaling":{"type":"longrope","factor":2})",
       "original_max_position_embeddings: expected an"},
      {"LlamaForCausalLM", R"("rope_scaling":{"type":"proportional"})", "found \"proportional\""},
      {"Phi3ForCausalLM", R"("original_max_position_embeddings":32,"rope_scaling":{"type":"longrope"})",
       "rope_scaling.short_factor: expected an array of numbers, found none"},
      {"Phi3ForCausalLM", R"("original_max_position_embeddings":32,"rope_scaling":{"type":"su","short_factor":[1,2]})",
       "rope_scaling.short_factor: expected an array of 8 numbers"},
      {"Phi3ForCausalLM", R"("original_max_position_embeddings":32,"rope_scaling":{"type":"su","short_factor":[1,0]})",
       "rope_scaling.short_factor: expected numbers from"},
      {"Phi3ForCausalLM", R"("original_max_position_embeddings":32,"rope_scaling":{"type":"longrope","factor":3})",
       "rope_scaling.factor: expected 4, max_position_embeddings over"},
      {"Phi3ForCausalLM",
       R"("original_max_position_embeddings":32,"rope_parameters":{"rope_type":"longrope",)"
       R"("original_max_position_embeddings":64})",
       "original_max_position_embeddings: expected 64"},
      {"Phi3ForCausalLM", R"("rope_scaling":{"type":"yarn","factor":4,"long_factor":[1]})",
       "rope_scaling.type: expected longrope"},
      {"Phi3ForCausalLM", R"("partial_rotary_factor":0.2)", "partial_rotary_factor: expected what makes an even"},
      {"Phi3ForCausalLM", R"("partial_rotary_factor":0.5,"rope_parameters":{"partial_rotary_factor":1})",
       "partial_rotary_factor: expected 1 as beside"},
      {"LlamaForCausalLM", R"("rope_scaling":{"type":"linear"})", "rope_scaling.factor: expected a number"},
      {"LlamaForCausalLM", R"("rope_scaling":{"type":"yarn","factor":2,"truncate":false})", "rope_scaling.truncate"},
      {"LlamaForCausalLM", R"("rope_scaling":{"type":"llama3","factor":2,"low_freq_factor":4,"high_freq_factor":4})",
       "rope_scaling.high_freq_factor: expected more than"},
      {"LlamaForCausalLM", R"("rope_scaling":[1])", "rope_scaling: expected an object"},
      {"LlamaForCausalLM", R"("rope_parameters":{"full_attention":{"rope_type":"default"}})",
       "rope_parameters.full_attention: expected one kind"},
      {"LlamaForCausalLM", R"("sliding_window":127)",
       "sliding_window: expected null, as the class does not look at it"},
      {"LlamaForCausalLM", R"("use_sliding_window":true)", "use_sliding_window: expected false"},
      {"LlamaForCausalLM", R"("layer_types":["full_attention","sliding_attention","full_attention","full_attention"])",
       "layer_types: expected full_attention alone"},
      {"Qwen2ForCausalLM", R"("layer_types":["full_attention"])", "layer_types: expected one for each of 4 layers"},
      {"Qwen2ForCausalLM", R"("layer_types":["a","b","c","d"])", "layer_types: expected full_attention or"},
      {"Qwen2ForCausalLM", R"("layer_types":["full_attention","full_attention","full_attention","sliding_attention"])",
       "sliding_window: expected a window"},
      {"MistralForCausalLM", R"("sliding_window":0)", "sliding_window: expected an integer from 1"},
      {"Gemma3ForConditionalGeneration", "", "found [\"Gemma3ForConditionalGeneration\"]"},
      {"Gemma3ForCausalLM", R"("model_type":"gemma3")", "model_type: expected gemma3_text, that of Gemma3ForCausalLM"},
      {"Gemma3ForCausalLM", R"("sliding_window":null)", "sliding_window: expected a window for the layers that slide"},
      {"Gemma3ForCausalLM", R"("attn_logit_softcapping":50.0)", "attn_logit_softcapping: expected null"},
      {"Gemma3ForCausalLM", R"("final_logit_softcapping":-1)", "final_logit_softcapping: expected a number"},
      {"Gemma3ForCausalLM", R"("hidden_activation":"gelu")",
       "hidden_activation: expected gelu_pytorch_tanh, found \"gelu\""},
      {"Gemma3ForCausalLM", R"("use_bidirectional_attention":true)", "use_bidirectional_attention: expected false"},
      {"Gemma3ForCausalLM", R"("query_pre_attn_scalar":0)", "query_pre_attn_scalar: expected a number"},
      {"Gemma3ForCausalLM", R"("rope_parameters":{"rope_type":"linear","factor":2})",
       "rope_parameters.factor: expected full_attention and sliding_attention alone"},
      {"Gemma3ForCausalLM", R"("rope_parameters":{"full_attention":{"rope_theta":5}},"rope_scaling":{"factor":2})",
       "rope_scaling: expected null beside rope_parameters"},
      {"Gemma3ForCausalLM", R"("rope_local_base_freq":5,"rope_parameters":{"sliding_attention":{"rope_theta":6}})",
       "rope_local_base_freq: expected 6"},
      {"LlamaForCausalLM", R"("final_logit_softcapping":30.0)", "final_logit_softcapping: expected null"},
      {"Qwen3MoeForCausalLM", R"("model_type":"qwen3moe")", "model_type: expected qwen3_moe, that of Qwen3MoeFor"},
      {"Qwen3MoeForCausalLM", "", "num_experts: expected an integer from 1 to 65536, found none"},
      {"Qwen3MoeForCausalLM", R"("num_experts":8)", "num_experts_per_tok: expected an integer from 1 to 8, found none"},
      {"Qwen3MoeForCausalLM", R"("num_experts":8,"num_experts_per_tok":9)", "num_experts_per_tok: expected"},
      {"Qwen3MoeForCausalLM", kExperts, "moe_intermediate_size: expected an integer"},
      {"Qwen3MoeForCausalLM", kExperts + R"(,"num_local_experts":4)", "num_local_experts: expected 8 as num_experts"},
      {"Qwen3MoeForCausalLM", kWide + R"(,"decoder_sparse_step":5)", "decoder_sparse_step: expected a layer with"},
      {"Qwen3MoeForCausalLM", kWide + R"(,"decoder_sparse_step":0)", "decoder_sparse_step: expected an integer from 1"},
      {"Qwen3MoeForCausalLM", kWide + R"(,"mlp_only_layers":[0,1,2,3])", "mlp_only_layers: expected a layer with"},
      {"Qwen3MoeForCausalLM", kWide + R"(,"mlp_only_layers":[4])", "mlp_only_layers: expected integers from 0 to 3"},
      {"Qwen3MoeForCausalLM", kWide + R"(,"use_sliding_window":true)", "use_sliding_window: expected false"},
      {"Qwen2MoeForCausalLM", kWide, "shared_expert_intermediate_size: expected an integer"},
      {"Qwen2MoeForCausalLM", kShared + R"(,"layer_types":["full_attention","sliding_attention"])",
       "layer_types: expected full_attention alone"},
      {"Qwen2MoeForCausalLM", kShared + R"(,"norm_topk_prob":1)", "norm_topk_prob: expected true or false"},
      {"OlmoeForCausalLM", kExperts + R"(,"clip_qkv":0)", "clip_qkv: expected a number from"},
      {"OlmoeForCausalLM", kExperts + R"(,"clip_qkv":"8")", "clip_qkv: expected a number"},
      {"OlmoeForCausalLM", "", "num_experts: expected an integer from 1 to 65536, found none"},
      {"MixtralForCausalLM", R"("num_local_experts":0)", "num_local_experts: expected an integer from 1"},
  };
  for (const auto& [family, more, expected] : cases) {
    const std::string error = error_of(family, more);
    EXPECT_NE(error.find(expected), std::string::npos) << more << "\n" << error;
    EXPECT_TRUE(error.starts_with("config.json: ")) << error;
  }
  const JsonObject nameless = JsonObject::parse("{}", "config.json");
  EXPECT_THROW(find_family(nameless), Error);
}

}  // namespace
}  // namespace pop
