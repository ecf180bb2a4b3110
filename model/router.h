// Which experts of a layer each token goes through.
#pragma once
#include <span>

#include "model/project.h"

namespace pop {

// The k experts of every row of the pass, x : [rows, d], by ascending expert and, within one, ascending row. Scores are float32
// products with the router in either phase, whatever --activations says; a row's own are looked at alone. The weights are
// softmax(scores) over all experts, of them the k largest, divided by their sum where the model says so: as Qwen2MoE, Qwen3MoE and
// Mixtral in transformers. Of equal ones the lower expert is chosen (torch.topk leaves it open). Throws Error if a score is
// not finite.
std::span<const Routed> route(const Pass& pass, int layer, const float* x);

}  // namespace pop
