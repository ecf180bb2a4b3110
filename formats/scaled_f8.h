// Matrices of 8-bit floats with scales beside them, as safetensors of "FP8" checkpoints hold them: a value is the float times the scale
// of its block, rounded to bfloat16.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/json_object.h"
#include "formats/tensor_source.h"

namespace pop {

// Scales of blocks of block_rows x block_cols elements; those at the right and the lower edge may be cut.
struct F8Scales {
  int64_t block_rows = 0, block_cols = 0;
  int64_t across = 0;         // blocks beside each other
  std::vector<float> values;  // [blocks below each other, across], finite and >= 0
};

// Of config.json: matrices may be F8_E4M3. Blocks of 0 x 0: one scale for each matrix, or one for each row.
struct F8Rule {
  int64_t block_rows = 0, block_cols = 0;
};

// What quantization_config says; empty: there is none. Throws Error naming the field: another method than "fp8" or "compressed-tensors",
// and whatever is not known of these two.
std::optional<F8Rule> read_f8_rule(const JsonObject& config);

// Gives each F8_E4M3 matrix NAME its scales (TensorInfo::scales), the tensor NAME_scale_inv or NAME_scale, which is no tensor of its
// own any more. Throws Error: no scales or two, of another type or shape, negative or not finite.
void attach_scales(std::vector<TensorInfo>& tensors, const F8Rule& rule, const std::string& path);

// Row `row` of such a matrix as bfloat16, out: [cols]; returns a value that is not finite, if there is one.
std::optional<float> f8_row_to_bf16(const RawTensor& matrix, int64_t row, uint8_t* out);

}  // namespace pop
