// Qwen1.5, Qwen2 and Qwen2.5 without experts.
#include "model/families/families.h"

namespace pop {

const Family kQwen2{.architecture = "qwen2",
                    .hf_class = "Qwen2ForCausalLM",
                    .qkv_bias = true,
                    .window = WindowRule::ByLayer,
                    .window_default = 4096};

}  // namespace pop
