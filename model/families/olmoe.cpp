// OLMoE: experts in every layer, none shared, their weights as softmax gives them; q and k are normed over all heads together.
#include "model/families/families.h"

namespace pop {

const Family kOlmoe{.architecture = "olmoe",
                    .hf_class = "OlmoeForCausalLM",
                    .qk_norm = QkNorm::Whole,
                    .qkv_clip = true,
                    .experts = true,
                    .hf_experts = {.width = "intermediate_size"}};

}  // namespace pop
