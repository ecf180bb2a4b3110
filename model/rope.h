// Rotary position embedding: the angles, with the kinds of scaling.
#pragma once
#include <vector>

#include "model/spec.h"

namespace pop {

// What cos and sin are multiplied by: the spec's attention_factor, or where it has none what its scaling says.
float attention_factor(const RopeSpec& spec);

class RopeTable {
 public:
  RopeTable() = default;
  // Frequencies and their scaling in float32, as Hugging Face transformers computes them; context: of texts (Scaling::Long).
  explicit RopeTable(const RopeSpec& spec, int context = 0);
  int dim() const { return int(inverse_frequency_.size()) * 2; }
  // cos_sin: [dim] = cos_0, sin_0, cos_1, sin_1, ... at this position, attention factor included.
  void angles(int position, float* cos_sin) const;

 private:
  std::vector<float> inverse_frequency_;  // [dim / 2]
  float attention_factor_ = 1.f;
};

}  // namespace pop
