// GGUF files of a real shape with random weights: the same bytes for every engine, without a download.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/shapes.h"
#include "tensor/dtype.h"

namespace pop::app {

// How the channels that POP would choose lie: anywhere (random weights choose at random), or in runs of 64 channels of
// about the same importance, as packing and prefetch would like it.
enum class SelectionPattern : uint8_t { Random, Clustered };

struct SyntheticModel {
  Shape shape;
  DType type = DType::Q4_0;
  int layers = 0;  // 0: the shape's
  uint64_t seed = 1;
  SelectionPattern selection = SelectionPattern::Random;
};

// Types that can be written.
std::vector<DType> synthetic_types();
// By a name in any case ("q4_K"). Throws UsageError.
DType synthetic_type(const std::string& name);

// The name the file carries: shape, type, layers, seed.
std::string describe(const SyntheticModel& model);

// Weights have a standard deviation of about 1/sqrt(columns), so that logits stay finite and ordinary. The same arguments
// give the same bytes. Throws Error if the file cannot be written.
void write_synthetic(const SyntheticModel& model, const std::string& path);

}  // namespace pop::app
