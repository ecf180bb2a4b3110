// Qwen1.5-MoE and Qwen2-57B-A14B: a shared expert with a gate. transformers: norm_topk_prob is false unless config.json says it.
#include "model/families/families.h"

namespace pop {

const Family kQwen2Moe{.architecture = "qwen2moe", .hf_class = nullptr, .qkv_bias = true, .experts = true};

}  // namespace pop
