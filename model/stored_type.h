// Which type a weight gets where one is asked for (pop convert --type, --load-as): one rule for both, so that a model quantised on
// load has the bits of the converted file.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace pop {

enum class WeightUse : uint8_t {
  Matrix,
  Head,  // the output matrix, also where it is the embedding
  Kept,  // norms, biases, routers of experts: never of fewer bits than float32
};

// wanted, but: F32 for what is kept; Q6_K for the head where `wanted` has four or five bits; and in place of a type whose blocks do not
// divide a row of `cols` values, fitting_type() (tensor/convert_rows.h).
DType stored_type(DType wanted, WeightUse use, int64_t cols);

// Types that can be asked for, in lower case: f32, f16, bf16, q8_0, q6_k, ...
std::vector<std::string> stored_type_names();
// By such a name, in any case. Throws Error: "OPTION: expected one of .., found ..".
DType stored_type_named(std::string_view name, std::string_view option);

}  // namespace pop
