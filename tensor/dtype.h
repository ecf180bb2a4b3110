// The storage types a weight can have in a file: their names, numbers and block sizes, and the reference conversions.
//
// A block type stores `block_elems` consecutive elements of a row in `block_bytes` bytes (little-endian). The meaning of
// the bytes is the GGUF format's; values are checked bit for bit against the `gguf` Python package.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pop {

enum class DType : uint8_t {
  F32,
  F16,
  BF16,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS
};
inline constexpr int kDTypeCount = 15;

struct DTypeTraits {
  const char* name;    // as in the enum
  int block_elems;     // elements per block; 1 for the float types
  int block_bytes;     // bytes per block
  uint32_t ggml_type;  // the number in a GGUF file
};

const DTypeTraits& traits(DType type);
std::optional<DType> dtype_from_ggml(uint32_t ggml_type);
std::optional<DType> dtype_from_name(std::string_view name);  // exactly as traits().name spells it

// Bytes of a row of `elems` elements. Throws Error if elems is negative, not a whole number of blocks, or the bytes overflow.
size_t row_bytes(DType type, int64_t elems);

// Reference speed, any CPU. blocks: row_bytes(type, elems) bytes, of any alignment; out: [elems]; elems a whole number of
// blocks (else throws Error). Float32 results are exactly the reference's; a NaN stays a NaN, its payload is not specified.
void dequantize(DType type, const uint8_t* blocks, float* out, int64_t elems);

// Types that quantize() writes: all but Q2_K, Q3_K, Q5_K, IQ4_NL, IQ4_XS.
bool has_quantizer(DType type);

// float32 to `type`, any CPU, the same bytes on each. F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: the bytes of the `gguf`
// package. Q4_K, Q6_K: a search for the least squared error (quant_k.cpp). in: [elems], finite and below 65504 in magnitude
// (F32, BF16: finite). Throws Error for other types and for elems not a whole number of blocks.
void quantize(DType type, const float* in, uint8_t* blocks, int64_t elems);

}  // namespace pop
