// One line for each file beside this one.
#pragma once
#include "model/families/family.h"

namespace pop {

extern const Family kGemma2, kGemma3, kLlama, kMistral, kMixtral, kOlmoe, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe;

}  // namespace pop
