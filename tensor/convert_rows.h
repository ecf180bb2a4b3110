// Rows of one storage type as rows of another.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tensor/dtype.h"

namespace pop {

// `rows` rows of `cols` values each, in the file's block order, from `from` to `to` (a type with a quantiser). Values that `to` can
// hold stay exact, others are rounded as quantize() does. Of the same type the bytes are copied as they are. Returns the first
// value that `to` cannot hold at all, not finite or too large (what is in `out` then has no meaning). scratch: of the calling
// thread, grown as needed. Throws nothing for whole rows.
std::optional<float> convert_rows(DType from, DType to, int64_t cols, int64_t rows, const uint8_t* in, uint8_t* out,
                                  std::vector<float>& scratch);

// The type that rows of `cols` values get where `wanted` is asked for: itself, or where its blocks do not divide a row, the nearest
// larger one that does: of Q4_K Q5_0, of Q5_K Q5_1, of Q6_K Q8_0 (as llama.cpp's quantiser), of types with blocks of 32 F16.
DType fitting_type(DType wanted, int64_t cols);

// Whether `type` holds every one of these values exactly; F32, F16, BF16 only, others: false.
bool holds_exactly(DType type, const std::vector<float>& values);

}  // namespace pop
