#pragma once
#include "model/families/family.h"

namespace pop {

extern const Family kLlama;

}  // namespace pop
