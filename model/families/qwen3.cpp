// Qwen3 without experts.
#include "model/families/families.h"

namespace pop {

const Family kQwen3{.architecture = "qwen3", .qk_norm = true};

}  // namespace pop
