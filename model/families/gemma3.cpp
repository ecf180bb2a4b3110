// The text side of Gemma 3: as Gemma 2 with norms of the heads of q and k in place of the caps; of six layers one sees all, the
// others have a window and positions of their own.
#include "model/families/families.h"

namespace pop {

const Family kGemma3{.architecture = "gemma3",
                     .hf_class = "Gemma3ForCausalLM",
                     .hf_type = "gemma3_text",
                     .window_in_gguf = true,
                     .qk_norm = QkNorm::Heads,
                     .post_norms = true,
                     .gate = Gate::Gelu,
                     .scaled_embedding = true,
                     .hf_norm_offset = 1.f,
                     .hf_tied = true,
                     .hf_query_scalar = true,
                     .layers_scaled_by_width = 62,
                     .logit_cap = 0.f,
                     .window_theta = 10000,
                     .window = WindowRule::Pattern,
                     .window_pattern = 6,
                     .window_default = 4096,
                     .hf_theta = 1000000};

}  // namespace pop
