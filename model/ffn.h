// The feed-forward part of a layer: one network, or a router and its experts.
#pragma once
#include "model/project.h"

namespace pop {

// x += FFN(normed), normed : [rows, d]. Of a mixture of experts (arXiv 2401.04088, eq. of section 2.1) FFN(x) is
// the sum of weight_e(x) * expert_e(x) over the row's experts, ascending, plus, where there is one,
// sigmoid(shared_gate . x) * shared(x).
void ffn(const Pass& pass, int layer, const float* normed);

}  // namespace pop
