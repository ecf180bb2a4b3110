// Rows of random weights in any storage type, made at memory speed: the quants are raw random bits, the scales are set.
#pragma once
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace pop::app {

bool has_random_blocks(DType type);

// row: row_bytes(type, cols) bytes; weights around 0 with a standard deviation of about `deviation`. The same (type, cols,
// deviation, seed) gives the same bytes.
void random_row(DType type, int cols, double deviation, uint64_t seed, std::span<uint8_t> row);

uint64_t mix(uint64_t value);  // one step of splitmix64 (Steele, Lea, Flood 2014)

}  // namespace pop::app
