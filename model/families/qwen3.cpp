// Qwen3 without experts.
#include "model/families/families.h"

namespace pop {

const Family kQwen3{.architecture = "qwen3",
                    .hf_class = "Qwen3ForCausalLM",
                    .qk_norm = QkNorm::Heads,
                    .window = WindowRule::ByLayer,
                    .window_default = 4096};

}  // namespace pop
