// A model family is data: what its blocks have, and what its metadata says beyond what all families say.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/json_object.h"
#include "model/spec.h"

namespace pop {

// In which layers config.json's sliding_window holds.
enum class WindowRule : uint8_t {
  None,     // in none: the class does not look at it, and one that would cut the trained context is refused
  Unused,   // versions of transformers differ in what it would do: use_sliding_window must be false
  All,      // in all, where it is given; layer_types must agree
  ByLayer,  // layer_types says it, or use_sliding_window and max_window_layers
  Pattern,  // layer_types says it, or every n-th layer sees all and the others have it
};

// Tensor names of a file format; {} is the layer number. All families of a format share them (of folders Mixtral's experts are called
// otherwise); which of them a model has, its ModelSpec says. `output` may be absent: tied to the embedding.
struct TensorNames {
  const char* embedding;
  const char* output_norm;
  const char* output;
  const char* attention_norm;
  const char *q, *k, *v, *o;
  const char *qkv, *fused_gate_up;  // of families with `fused`, in place of q, k, v and gate, up
  const char *q_bias, *k_bias, *v_bias;
  const char *q_norm, *k_norm;
  const char* ffn_norm;
  const char *post_attention_norm, *pre_ffn_norm, *post_ffn_norm;  // of families with post_norms, in ffn_norm's place
  const char *gate, *up, *down;
  // Of a layer with experts: [experts, d]; [experts, f, d] twice, [experts, d, f]; of the shared expert its gate [d] and matrices.
  // by_expert: a tensor for each expert, whose number is a second {}: [f, d] twice, [d, f]; and the gate is [1, d].
  bool by_expert = false;
  const char* router = nullptr;
  const char *expert_gate = nullptr, *expert_up = nullptr, *expert_down = nullptr;
  const char* shared_gate = nullptr;
  const char *shared_gate_proj = nullptr, *shared_up = nullptr, *shared_down = nullptr;
  std::span<const char* const> ignored;  // tensors read elsewhere, or without effect on the result
};
extern const TensorNames kGgufNames, kHfNames, kMixtralNames;

// What config.json says of experts; width null: nothing, the family has none.
struct HfExperts {
  const char* width = nullptr;         // field of an expert's width
  const char* shared_width = nullptr;  // of the shared one's; null: there is none
  bool dense_layers = false;           // decoder_sparse_step and mlp_only_layers say which layers have one FFN
  bool normalised = false;  // the chosen experts' weights always are; else norm_topk_prob says it, false by default
};

struct Family {
  const char* architecture;          // general.architecture and the beginning of its keys
  const char* hf_class;              // in config.json's "architectures"; null: folders of it are not read
  const char* hf_type = nullptr;     // config.json's model_type; null: as architecture
  const char* gguf_as = nullptr;     // the architecture that GGUF files of such models name, if it is another family's
  bool interleaved_in_gguf = false;  // converters permute W_q and W_k so that rotated pairs are neighbours
  bool window_in_gguf = false;       // attention.sliding_window holds in all layers, or by Pattern; else it is refused
  bool qkv_bias = false;
  QkNorm qk_norm = QkNorm::None;
  bool qkv_clip = false;  // files may say one
  bool post_norms = false;
  bool fused = false;
  Gate gate = Gate::Silu;
  bool scaled_embedding = false;   // by the root of its width
  float hf_norm_offset = 0.f;      // folders keep the weights of norms without it
  bool hf_tied = false;            // where config.json has no tie_word_embeddings
  bool hf_query_scalar = false;    // q.k is divided by the root of query_pre_attn_scalar, in place of head_dim
  int layers_scaled_by_width = 0;  // GGUF: the model of so many layers divides by the root of d / heads
  // Soft caps where files do not say them, 0: none. Empty: the family has no such cap, a file that says one is refused.
  std::optional<float> attention_cap{}, logit_cap{};
  bool hf_partial_rotary = false;  // partial_rotary_factor says how much of a head is rotated; else it must be 1
  double window_theta = 0;         // of layers with a window, where files do not say it; 0: theirs are as the others'
  WindowRule window = WindowRule::None;
  int window_pattern = 0;         // Pattern: n, where files do not say it
  int window_default = 0;         // where config.json has no sliding_window at all
  int gguf_window_default = 0;    // where a GGUF file does not say it; 0: none
  bool experts = false;           // GGUF files may be of mixtures of experts
  bool normalised_top_k = false;  // where they do not say it: the chosen experts' weights are divided by their sum
  HfExperts hf_experts = {};
  const TensorNames* hf_names = &kHfNames;
  double hf_theta = 10000;  // where config.json has no rope_theta
};

// All of these throw Error naming the key or field: missing, out of range, not known, or not run by this engine.
const Family& find_family(const GgufFile& file);
const Family& find_family(const JsonObject& config);

// What all families say, and what this one adds; config: config.json of a Hugging Face folder. GGUF: `vocab` and `tied_head` are
// seen from the tensors, by the caller.
ModelSpec read_spec(const GgufFile& file, const Family& family);
ModelSpec read_spec(const JsonObject& config, const Family& family);
// rope and window_rope of config.json, head_dim known already.
void read_rope(const JsonObject& config, const Family& family, ModelSpec& spec);

// GGUF: of q.k, where a file does not say it.
float usual_attention_scale(const ModelSpec& spec, const Family& family);

// The other way: what a model is, in the words of a format. Read again it is the same model (checked), or they throw Error with
// what the format cannot say. `name` stands before messages.
//   GGUF: general.architecture and all keys of it, and the tensors of rotary divisors where there are some.
void write_spec(const ModelSpec& spec, const Family& family, const std::string& name, GgufWriter& out);
//   config.json, but for token ids; type: of the weights.
nlohmann::ordered_json config_of(const ModelSpec& spec, const Family& family, const std::string& name, DType type);
// The family that such a model has in GGUF files, and the one whose folders are like it. Throws Error: there is none.
const Family& gguf_family(const ModelSpec& spec, const std::string& name);
const Family& hf_family(const ModelSpec& spec, const std::string& name);

}  // namespace pop
