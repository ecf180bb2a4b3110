#include "tensor/dtype.h"

#include <array>

#include "base/error.h"

namespace pop {
namespace {

constexpr std::array<DTypeTraits, kDTypeCount> kTraits = {{{"F32", 1, 4, 0},
                                                           {"F16", 1, 2, 1},
                                                           {"BF16", 1, 2, 30},
                                                           {"Q4_0", 32, 18, 2},
                                                           {"Q4_1", 32, 20, 3},
                                                           {"Q5_0", 32, 22, 6},
                                                           {"Q5_1", 32, 24, 7},
                                                           {"Q8_0", 32, 34, 8},
                                                           {"Q2_K", 256, 84, 10},
                                                           {"Q3_K", 256, 110, 11},
                                                           {"Q4_K", 256, 144, 12},
                                                           {"Q5_K", 256, 176, 13},
                                                           {"Q6_K", 256, 210, 14},
                                                           {"IQ4_NL", 32, 18, 20},
                                                           {"IQ4_XS", 256, 136, 23}}};

}  // namespace

const DTypeTraits& traits(DType type) { return kTraits[static_cast<size_t>(type)]; }

std::optional<DType> dtype_from_ggml(uint32_t ggml_type) {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].ggml_type == ggml_type) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

size_t row_bytes(DType type, int64_t elems) {
  const DTypeTraits& t = traits(type);
  if (elems < 0 || elems % t.block_elems != 0) {
    fail("{}: expected a whole number of blocks of {} elements, found {} elements", t.name, t.block_elems, elems);
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(elems / t.block_elems), static_cast<size_t>(t.block_bytes), &bytes)) {
    fail("{}: {} elements need more bytes than this machine can address", t.name, elems);
  }
  return bytes;
}

}  // namespace pop
