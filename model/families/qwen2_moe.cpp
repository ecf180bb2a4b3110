// Qwen1.5-MoE and Qwen2-57B-A14B: a shared expert with a gate. transformers: norm_topk_prob is false unless config.json says it.
#include "model/families/families.h"

namespace pop {

const Family kQwen2Moe{
    .architecture = "qwen2moe",
    .hf_class = "Qwen2MoeForCausalLM",
    .hf_type = "qwen2_moe",
    .qkv_bias = true,
    .window = WindowRule::Unused,
    .experts = true,
    .hf_experts = {
        .width = "moe_intermediate_size", .shared_width = "shared_expert_intermediate_size", .dense_layers = true}};

}  // namespace pop
