// Llama 1 to 3.x, SmolLM2, TinyLlama and their like; Mistral, whose GGUF files are of this family, some with a window, and
// Mixtral's, with experts.
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
                      .in_gguf = false,
                      .window = WindowRule::All,
                      .window_default = 4096};

}  // namespace pop
