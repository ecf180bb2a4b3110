// Llama 1 to 3.x, SmolLM2, TinyLlama and their like. Mistral's GGUF files are of this family too, some with a window.
#include "model/families/families.h"

namespace pop {

const Family kLlama{.architecture = "llama", .interleaved_in_gguf = true, .window_in_all_layers = true};

}  // namespace pop
