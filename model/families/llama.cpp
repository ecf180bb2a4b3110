// Llama 1 to 3.x, SmolLM2, TinyLlama and their like; Mistral and Mixtral, whose GGUF files are of this family, some with a
// window, Mixtral's with experts in every layer.
#include "model/families/families.h"

namespace pop {

const Family kLlama{.architecture = "llama",
                    .hf_class = "LlamaForCausalLM",
                    .interleaved_in_gguf = true,
                    .window_in_gguf = true,
                    .experts = true,
                    .normalised_top_k = true};

const Family kMistral{.architecture = "mistral",
                      .hf_class = "MistralForCausalLM",
                      .gguf_as = "llama",
                      .window = WindowRule::All,
                      .window_default = 4096};

const Family kMixtral{.architecture = "mixtral",
                      .hf_class = "MixtralForCausalLM",
                      .gguf_as = "llama",
                      .window = WindowRule::All,
                      .hf_experts = {.width = "intermediate_size", .normalised = true},
                      .hf_names = &kMixtralNames,
                      .hf_theta = 1e6};

}  // namespace pop
