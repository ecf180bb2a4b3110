// Gemma 2: a GELU gate, norms on both sides of attention and FFN, soft caps, every second layer with a window.
#include "model/families/families.h"

namespace pop {

const Family kGemma2{.architecture = "gemma2",
                     .hf_class = "Gemma2ForCausalLM",
                     .window_in_gguf = true,
                     .post_norms = true,
                     .gate = Gate::Gelu,
                     .scaled_embedding = true,
                     .hf_norm_offset = 1.f,
                     .hf_tied = true,
                     .hf_query_scalar = true,
                     .layers_scaled_by_width = 46,
                     .attention_cap = 50.f,
                     .logit_cap = 30.f,
                     .window = WindowRule::Pattern,
                     .window_pattern = 2,
                     .window_default = 4096,
                     .gguf_window_default = 4096};  // files of its first days do not say it

}  // namespace pop
