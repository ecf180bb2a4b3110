// Internal to tensor/: float32 to the super-block formats. There is no published rounding to be equal to: for each block the
// codes, scales and minima are searched that leave the least squared error.
#pragma once
#include <cstdint>

namespace pop {

void quantize_q4_k(const float* in, uint8_t* block);  // in: [256], finite; block: 144 bytes
void quantize_q6_k(const float* in, uint8_t* block);  // in: [256], finite; block: 210 bytes

}  // namespace pop
