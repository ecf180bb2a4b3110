// Preparing the inputs of a prefill's products.
#pragma once
#include "kernels/kernels.h"

namespace pop {

// Rows [begin, end) of x (ldx floats apart), begin a multiple of kActsGroup, into `data`, a buffer of acts.h.
inline void pack_rows(const KernelTable& kernels, ActType type, Layout layout, const float* x, size_t ldx, int begin,
                      int end, int cols, uint8_t* data) {
  const size_t stride = kernels.acts_bytes(type, layout, cols);
  const int step = type == ActType::BF16 ? kActsGroup : 1;
  for (int r = begin; r < end; r += step) {
    const float* from = x + size_t(r) * ldx;
    uint8_t* to = data + size_t(r) * stride;
    if (type != ActType::BF16) {
      kernels.pack_acts(type, layout, from, cols, to);
    } else {
      kernels.pack_bf16(layout, from, ldx, end - r < step ? end - r : step, cols, to);
    }
  }
}

}  // namespace pop
