// Decode with W in Rows: dot products of listed rows. Types without a path of their own, and float activations on block
// types, are unpacked by the scalar table's function and multiplied as floats.
#include "kernels/neon/chunk.h"
#include "kernels/neon/isa.h"
#include "kernels/ref/ref.h"

namespace pop::POP_ISA {
namespace {

constexpr size_t kAhead = 4096;  // bytes along the list that are fetched before they are used

struct Sums {
  VF products = zero(), mins = zero();
};

// sum - zero * (sum of x)
template <int Zero>
POP_INLINE VI minus_zeros(VI sum, VI x) {
  if constexpr (Zero == 0) return sum;
  return {vmlsq_n_s32(sum.a, x.a, Zero), vmlsq_n_s32(sum.b, x.b, Zero)};
}

// The chunk of N blocks from `lane` on of a group, block b of the row.
template <DType T, int P, int N>
POP_INLINE void add_chunk(Sums& s, const uint8_t* row, const GroupPlace& group, int lane, const ActsView& x, int b) {
  constexpr BlockFormat kFormat = block_format(T);
  const int8_t *x_low = x.low + size_t(b) * 32, *x_high = P == 2 ? x.high + size_t(b) * 32 : x_low;
  const uint8_t *low = row + group.low + plane_bytes(kFormat.low_bits, lane),
                *high = row + group.high + plane_bytes(kFormat.high_bits, lane);
  const ChunkScales scales = chunk_scales<T, N>(row + group.scales, group.n, lane);
  const VF x_scale = first_floats<N>(x.scale + b);
  const VI x_sum = first_ints<N>(x.sum + b);
  if constexpr (kFormat.scales == ScaleForm::Byte16) {
    const VI first = first_ints<N>(x.half_sum + b), second = {vsubq_s32(x_sum.a, first.a), vsubq_s32(x_sum.b, first.b)};
    const VI sums[2] = {
        minus_zeros<kFormat.zero>(chunk_sum<T, P, N>(low, high, x_low, x_high, 0, 16 * N), first),
        minus_zeros<kFormat.zero>(chunk_sum<T, P, N>(low, high, x_low, x_high, 16 * N, 32 * N), second)};
    for (int i = 0; i < 2; ++i) s.products = fma(to_float(sums[i]), mul(scales.scale[i], x_scale), s.products);
  } else {
    const VI sum = minus_zeros<kFormat.zero>(chunk_sum<T, P, N>(low, high, x_low, x_high, 0, 32 * N), x_sum);
    s.products = fma(to_float(sum), mul(scales.scale[0], x_scale), s.products);
  }
  if constexpr (has_mins(kFormat.scales)) s.mins = fma(scales.min, first_floats<N>(x.scaled_sum + b), s.mins);
}

template <DType T, int P>
POP_INLINE float dot_row(const uint8_t* row, const ActsView& x, int blocks) {
  constexpr BlockFormat kFormat = block_format(T);
  Sums s;
  for (int first = 0; first < blocks; first += kGroupBlocks) {
    const GroupPlace group = group_place(kFormat, first, blocks);
    int i = 0;
    for (; i + 8 <= group.n; i += 8) add_chunk<T, P, 8>(s, row, group, i, x, first + i);
    if constexpr (has_super_blocks(kFormat.scales)) continue;
    if (group.n - i >= 4) add_chunk<T, P, 4>(s, row, group, i, x, first + i), i += 4;
    if (group.n - i >= 2) add_chunk<T, P, 2>(s, row, group, i, x, first + i), i += 2;
    if (group.n - i >= 1) add_chunk<T, P, 1>(s, row, group, i, x, first + i);
  }
  return sum(add(s.products, s.mins));
}

// Four accumulators, taken in turn; their order is fixed by the number of columns.
struct FloatSums {
  VF part[4] = {zero(), zero(), zero(), zero()};
};

template <DType T>
POP_INLINE void add_floats(FloatSums& s, const uint8_t* w, const float* x, int n) {
  int k = 0;
  for (; k + 4 * kLanes <= n; k += 4 * kLanes)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int place = k + i * kLanes;
      s.part[i] = fma(load_plain<T>(w + size_t(place) * kPlainBytes<T>), load(x + place), s.part[i]);
    }
  for (int i = 0; k < n; k += kLanes, ++i) {
    const uint8_t* p = w + size_t(k) * kPlainBytes<T>;
    s.part[i] = n - k < kLanes ? fma(load_plain_first<T>(p, n - k), load_first(x + k, n - k), s.part[i])
                               : fma(load_plain<T>(p), load(x + k), s.part[i]);
  }
}
POP_INLINE float total(const FloatSums& s) { return sum(add(add(s.part[0], s.part[1]), add(s.part[2], s.part[3]))); }

// f(row, where its output for row 0 of x goes) for every row of the listed units; the unit kAhead bytes on is fetched
// meanwhile.
template <class Row>
POP_INLINE void for_rows(const Matrix& w, IndexList list, int begin, int end, float* y, const Row& f) {
  const size_t bytes = row_bytes(w.type, w.cols), unit_bytes = bytes * size_t(w.unit);
  const int ahead = int((kAhead + unit_bytes - 1) / unit_bytes);
  const auto unit = [&](int i) {
    const int u = at(list, i);
    return w.data + (w.offset != nullptr ? size_t(w.offset[u]) : size_t(u) * unit_bytes);
  };
  for (int i = begin; i < end; ++i) {
    if (i + ahead < list.count)
      for (size_t o = 0; o < unit_bytes; o += 64) POP_PREFETCH(unit(i + ahead) + o);
    for (int k = 0; k < w.unit; ++k)
      f(unit(i) + size_t(k) * bytes, y + size_t(at(list, i)) * size_t(w.unit) + size_t(k));
  }
}

template <DType T, int P>
void dot_blocks(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  for_rows(w, list, begin, end, y, [&](const uint8_t* row, float* out) {
    for (int r = 0; r < x.n; ++r)
      out[size_t(r) * ldy] = dot_row<T, P>(row, acts_view(x.type, x.cols, x.row(r)), w.cols / 32);
  });
}

template <DType T>
void dot_floats(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  for_rows(w, list, begin, end, y, [&](const uint8_t* row, float* out) {
    for (int r = 0; r < x.n; ++r) {
      FloatSums s;
      add_floats<T>(s, row, reinterpret_cast<const float*>(x.row(r)), w.cols);
      out[size_t(r) * ldy] = total(s);
    }
  });
}

constexpr int kRowsOfX = 8;  // an unpacked part of W serves so many

void dot_others(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  for_rows(w, list, begin, end, y, [&](const uint8_t* row, float* out) {
    alignas(64) float values[256];
    for (int r0 = 0; r0 < x.n; r0 += kRowsOfX) {
      const int rows = x.n - r0 < kRowsOfX ? x.n - r0 : kRowsOfX;
      FloatSums s[kRowsOfX];
      for (int k = 0; k < w.cols; k += 256) {
        const int n = w.cols - k < 256 ? w.cols - k : 256;
        ref::unpack_row(w.type, row, w.cols, k, n, values);
        for (int r = 0; r < rows; ++r)
          add_floats<DType::F32>(s[r], reinterpret_cast<const uint8_t*>(values),
                                 reinterpret_cast<const float*>(x.row(r0 + r)) + k, n);
      }
      for (int r = 0; r < rows; ++r) out[size_t(r0 + r) * ldy] = total(s[r]);
    }
  });
}

using Kernel = void (*)(const Matrix&, const Acts&, IndexList, int, int, float*, size_t);

template <DType T>
Kernel block_kernel(ActType act) {
  return act == ActType::I16 ? dot_blocks<T, 2> : act == ActType::I8 ? dot_blocks<T, 1> : dot_others;
}

Kernel kernel_for(DType type, ActType act) {
  switch (type) {
    case DType::F32: return dot_floats<DType::F32>;
    case DType::F16: return dot_floats<DType::F16>;
    case DType::BF16: return dot_floats<DType::BF16>;
    case DType::Q8_0: return block_kernel<DType::Q8_0>(act);
    case DType::Q4_0: return block_kernel<DType::Q4_0>(act);
    case DType::Q4_1: return block_kernel<DType::Q4_1>(act);
    case DType::Q5_0: return block_kernel<DType::Q5_0>(act);
    case DType::Q5_1: return block_kernel<DType::Q5_1>(act);
    case DType::Q4_K: return block_kernel<DType::Q4_K>(act);
    case DType::Q5_K: return block_kernel<DType::Q5_K>(act);
    case DType::Q6_K: return block_kernel<DType::Q6_K>(act);
    case DType::IQ4_NL: return block_kernel<DType::IQ4_NL>(act);
    default: return dot_others;
  }
}

}  // namespace

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  kernel_for(w.type, x.type)(w, x, list, begin, end, y, ldy);
}

}  // namespace pop::POP_ISA
