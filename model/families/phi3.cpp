// Phi-3, Phi-3.5 and Phi-4-mini: fused projections, in part rotated heads, LongRoPE. A window holds in all layers, as in transformers.
#include "model/families/families.h"

namespace pop {

const Family kPhi3{.architecture = "phi3",
                   .hf_class = "Phi3ForCausalLM",
                   .window_in_gguf = true,
                   .fused = true,
                   .hf_partial_rotary = true,
                   .window = WindowRule::All};

}  // namespace pop
