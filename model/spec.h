// What a model is: numbers and choices read from its file. Data describes a family; forward() branches on these fields only.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pop {

struct RopeSpec {
  bool interleaved = false;  // pairs (2i, 2i+1), as GGUF stores the llama family; else (i, i + dim/2)
  int dim = 0;               // rotated dimensions of a head, even
  float theta = 10000.f;
  enum class Scaling : uint8_t {
    None,
    Linear,
    Yarn,
    // Other angles for all of a text once it is longer than the model was trained on: a token's result would depend on what
    // follows it. Up to there nothing is scaled, and longer contexts are refused (ModelSpec::context_limit).
    Dynamic,
    // LongRoPE (arXiv 2402.13753): other divisors for contexts longer than the original one. Which ones hold is a matter of
    // the context that was asked for, so that no token's result depends on what follows it.
    Long
  } scaling = Scaling::None;
  float factor = 1.f;        // Linear, Yarn: positions are stretched by it; Long: trained over original context
  int original_context = 0;  // Yarn, Long
  float beta_fast = 32.f, beta_slow = 1.f;  // Yarn: rotations that bound the ramp between the two regimes
  float attention_factor = 0.f;             // multiplies cos and sin; 0: Yarn's 0.1 ln(factor) + 1, Long's (RopeTable)
  std::vector<float> frequency_divisors;    // [dim / 2] or empty: Llama 3.1's scaling as the file tabulates it; Long
  std::vector<float> long_divisors;         // [dim / 2] Long: of contexts longer than the original one
  bool operator==(const RopeSpec&) const = default;
};

// A mixture of experts; no experts: every layer has one FFN.
struct MoeSpec {
  int experts = 0, used = 0;  // E, and k of them for each token
  int f = 0, shared_f = 0;    // widths of an expert and of the shared one; shared_f 0: there is none
  bool normalised = false;    // the weights of the k are divided by their sum
  std::vector<bool> layers;   // which have experts; the others have one FFN of width ModelSpec::f
  bool operator==(const MoeSpec&) const = default;
};

// What a gate's value becomes before it multiplies up's. Gelu: the form with tanh.
enum class Gate : uint8_t { Silu, Gelu };

// What RMS norms of q and k take, before the rotation: nothing, each head, or all heads of a token together.
enum class QkNorm : uint8_t { None, Heads, Whole };

struct ModelSpec {
  std::string architecture;  // as the file names it
  std::string name;
  int layers = 0, d = 0, f = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  int context_trained = 0;
  int context_limit = 0;  // no context may be longer; 0: none
  float norm_eps = 1e-5f;
  float embedding_scale = 1.f;  // of a token's embedding
  float attention_scale = 1.f;  // of q.k before the softmax
  float attention_cap = 0.f,
        logit_cap = 0.f;  // x becomes cap * tanh(x / cap): scores before the softmax, logits; 0: they stay
  Gate gate = Gate::Silu;
  bool tied_head = false;  // the embedding is the head
  bool qkv_bias = false;   // q, k and v have biases
  QkNorm qk_norm = QkNorm::None;
  float qkv_clip = 0.f;      // values of q, k and v (normed, not yet rotated) are kept within +- it; 0: they stay
  bool fused = false;        // q, k and v are one tensor of the file, gate and up another
  bool post_norms = false;   // RMS norm of what attention and FFN give, before it is added to x
  float norm_offset = 0.f;   // is added to the weights of norms as the file holds them
  std::vector<int> windows;  // [layers] or empty: how many positions a token sees, itself counted; 0: all before it
  RopeSpec rope;
  std::optional<RopeSpec> window_rope;  // of layers with a window, where it is another; of the same dim
  MoeSpec moe;

  bool has_experts(int layer) const { return !moe.layers.empty() && moe.layers[size_t(layer)]; }
  // Of the FFNs there are.
  std::vector<int> ffn_widths() const {
    std::vector<int> widths;
    for (int l = 0; l < layers && widths.empty(); ++l)
      if (!has_experts(l)) widths.push_back(f);
    if (moe.experts > 0) widths.push_back(moe.f);
    if (moe.shared_f > 0) widths.push_back(moe.shared_f);
    return widths;
  }
  int widest_ffn() const {
    const std::vector<int> widths = ffn_widths();
    return *std::max_element(widths.begin(), widths.end());
  }
  int q_dim() const { return heads * head_dim; }
  int kv_dim() const { return kv_heads * head_dim; }
  bool operator==(const ModelSpec&) const = default;
  int window(int layer) const { return windows.empty() ? 0 : windows[size_t(layer)]; }
};

}  // namespace pop
