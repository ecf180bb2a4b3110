// Qwen3-30B-A3B and its like. Their config.json says norm_topk_prob true; GGUF files do not, and llama.cpp normalises.
#include "model/families/families.h"

namespace pop {

const Family kQwen3Moe{.architecture = "qwen3moe",
                       .hf_class = "Qwen3MoeForCausalLM",
                       .hf_type = "qwen3_moe",
                       .qk_norm = QkNorm::Heads,
                       .window = WindowRule::Unused,
                       .experts = true,
                       .normalised_top_k = true,
                       .hf_experts = {.width = "moe_intermediate_size", .dense_layers = true}};

}  // namespace pop
