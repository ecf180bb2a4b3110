#include "kernels/acts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/ref/ref.h"
#include "tensor/layout.h"

namespace pop::ref {
namespace {

// Byte of element e of `block`, and the distance between a block's groups of four.
struct CodeOrder {
  size_t first, step;
  size_t at(int e) const { return first + size_t(e / 4) * step + size_t(e % 4); }
};

CodeOrder code_order(Layout layout, int block, int blocks) {
  if (layout == Layout::Columns) return {size_t(block) * 32, 4};
  const BlockPlace place = block_place(block, blocks);
  return {size_t(place.first) * 32 + 4 * size_t(block - place.first), 4 * size_t(place.n)};
}

struct MutableActs {
  int8_t *low, *high;
  float* scale;
  int32_t* sum;
  float* scaled_sum;
  int32_t* half_sum;
};

MutableActs mutable_acts(ActType type, int cols, uint8_t* row) {
  const ActsView v = acts_view(type, cols, row);
  return {const_cast<int8_t*>(v.low),  const_cast<int8_t*>(v.high),      const_cast<float*>(v.scale),
          const_cast<int32_t*>(v.sum), const_cast<float*>(v.scaled_sum), const_cast<int32_t*>(v.half_sum)};
}

void set_sums(const MutableActs& out, int block, const int* halves) {
  out.sum[block] = halves[0] + halves[1];
  out.scaled_sum[block] = out.scale[block] * float(out.sum[block]);
  out.half_sum[block] = halves[0];
}

void pack_block(const float* x, CodeOrder order, int block, const MutableActs& out) {
  float largest = 0;
  bool finite = true;
  for (int e = 0; e < 32; ++e) {
    finite = finite && std::isfinite(x[e]);
    largest = std::max(largest, std::fabs(x[e]));
  }
  const float steps = out.high != nullptr ? kMaxCode16 : kMaxCode8;
  const bool live = finite && largest >= kTinyBlock;
  const float inverse = live ? steps / largest : 0.f;
  int sum[2] = {};
  for (int e = 0; e < 32; ++e) {
    const float q = live ? std::nearbyint(x[e] * inverse) : 0.f;
    const float high = out.high != nullptr ? std::nearbyint(q * (1.f / kHighStep)) : 0.f;
    out.low[order.at(e)] = int8_t(q - high * float(kHighStep));
    if (out.high != nullptr) out.high[order.at(e)] = int8_t(high);
    sum[e / 16] += int(q);
  }
  out.scale[block] = live ? largest / steps : finite ? 0.f : NAN;
  set_sums(out, block, sum);
}

}  // namespace

ActType effective(ActType asked, DType type, Layout) {
  const bool integer = asked == ActType::I8 || asked == ActType::I16;
  return integer && is_fast_block(type) ? asked : ActType::F32;
}

ActType effective_prefill(ActType asked, DType type, Layout layout) {
  return asked == ActType::BF16 ? asked : effective(asked, type, layout);
}

size_t acts_bytes(ActType type, Layout, int cols) { return acts_row_bytes(type, cols); }

void pack_acts(ActType type, Layout layout, const float* x, int cols, uint8_t* out) {
  std::memset(out, 0, acts_row_bytes(type, cols));
  if (type != ActType::I8 && type != ActType::I16) {
    std::memcpy(out, x, size_t(cols) * 4);
    return;
  }
  const int blocks = cols / kBlockElems;
  const MutableActs acts = mutable_acts(type, cols, out);
  for (int b = 0; b < blocks; ++b) pack_block(x + b * kBlockElems, code_order(layout, b, blocks), b, acts);
}

void pack_bf16(Layout layout, const float* x, size_t ldx, int n, int cols, uint8_t* out) {
  std::memset(out, 0, kActsGroup * acts_row_bytes(ActType::BF16, cols));
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < cols; ++c) {
      const float v = x[size_t(r) * ldx + size_t(c)];
      const uint16_t h = std::fpclassify(v) == FP_SUBNORMAL ? uint16_t(std::signbit(v) ? 0x8000 : 0) : f32_to_bf16(v);
      std::memcpy(out + bf16_place(layout, r, c), &h, 2);
    }
}

void mask_acts(ActType type, Layout layout, int cols, IndexList keep, uint8_t* acts) {
  int next = 0;  // of keep
  const auto kept = [&](int column) {
    while (next < keep.count && keep[next] < column) ++next;
    return next < keep.count && keep[next] == column;
  };
  if (type != ActType::I8 && type != ActType::I16) {
    for (int c = 0; c < cols; ++c)
      if (!kept(c)) std::memset(acts + 4 * size_t(c), 0, 4);
    return;
  }
  const int blocks = cols / kBlockElems;
  const MutableActs a = mutable_acts(type, cols, acts);
  for (int b = 0; b < blocks; ++b) {
    const CodeOrder order = code_order(layout, b, blocks);
    int sum[2] = {};
    for (int e = 0; e < kBlockElems; ++e) {
      const size_t at = order.at(e);
      if (kept(b * kBlockElems + e)) {
        sum[e / 16] += a.low[at] + (a.high != nullptr ? kHighStep * a.high[at] : 0);
        continue;
      }
      a.low[at] = 0;
      if (a.high != nullptr) a.high[at] = 0;
    }
    set_sums(a, b, sum);
  }
}

}  // namespace pop::ref
