// Decode with W in Rows: dot products of listed rows. Types and activations without a path of their own are unpacked by
// the scalar table's function and multiplied as floats, or left to the scalar table whole.
#include "kernels/neon/chunk.h"
#include "kernels/neon/isa.h"
#include "kernels/ref/ref.h"

namespace pop::POP_ISA {
namespace {

constexpr size_t kAhead = 4096;  // bytes along the list that are fetched before they are used

struct Sums {
  VF products = zero(), mins = zero();
};

template <DType T, int P, int N>
POP_INLINE void add_chunk(Sums& s, const uint8_t* row, const ActsView& x, int blocks, int b) {
  const size_t first = size_t(b) * 32;
  const uint8_t* scales = row + size_t(blocks) * kCodeBytes<T> + 2 * size_t(b);
  VI sum = chunk_sum<T, P, N>(row + size_t(b) * kCodeBytes<T>, x.low + first, P == 2 ? x.high + first : x.low);
  if constexpr (T == DType::Q4_0) {  // codes count from 0
    const VI sums = first_ints<N>(x.sum + b);
    sum = {vsubq_s32(sum.a, vshlq_n_s32(sums.a, 3)), vsubq_s32(sum.b, vshlq_n_s32(sums.b, 3))};
  }
  const VF scale = mul(first_halves<N>(scales), first_floats<N>(x.scale + b));
  s.products = fma({vcvtq_f32_s32(sum.a), vcvtq_f32_s32(sum.b)}, scale, s.products);
  if constexpr (T == DType::Q4_1)
    s.mins = fma(first_halves<N>(scales + 2 * size_t(blocks)), first_floats<N>(x.scaled_sum + b), s.mins);
}

template <DType T, int P>
POP_INLINE float dot_row(const uint8_t* row, const ActsView& x, int blocks) {
  Sums s;
  int b = 0;
  for (; b + 8 <= blocks; b += 8) add_chunk<T, P, 8>(s, row, x, blocks, b);
  if (blocks - b >= 4) add_chunk<T, P, 4>(s, row, x, blocks, b), b += 4;
  if (blocks - b >= 2) add_chunk<T, P, 2>(s, row, x, blocks, b), b += 2;
  if (blocks - b >= 1) add_chunk<T, P, 1>(s, row, x, blocks, b);
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
POP_INLINE float total(const FloatSums& s) {
  return sum(add(add(s.part[0], s.part[1]), add(s.part[2], s.part[3])));
}

// f(row, x of row r) for every row of the listed units; the unit kAhead bytes on is fetched meanwhile.
template <class View, class Dot>
POP_INLINE void for_rows(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy,
                         const View& view, const Dot& dot) {
  const size_t bytes = row_bytes(w.type, w.cols), unit_bytes = bytes * size_t(w.unit);
  const int ahead = int((kAhead + unit_bytes - 1) / unit_bytes);
  const auto unit = [&](int i) {
    const int u = at(list, i);
    return w.data + (w.offset != nullptr ? size_t(w.offset[u]) : size_t(u) * unit_bytes);
  };
  for (int i = begin; i < end; ++i) {
    if (i + ahead < list.count)
      for (size_t o = 0; o < unit_bytes; o += 64) POP_PREFETCH(unit(i + ahead) + o);
    for (int k = 0; k < w.unit; ++k) {
      const uint8_t* row = unit(i) + size_t(k) * bytes;
      float* out = y + size_t(at(list, i)) * size_t(w.unit) + size_t(k);
      for (int r = 0; r < x.n; ++r) out[size_t(r) * ldy] = dot(row, view(x.row(r)));
    }
  }
}

template <DType T, int P>
void dot_blocks(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const int blocks = w.cols / 32;
  for_rows(
      w, x, list, begin, end, y, ldy, [&](const uint8_t* row) { return acts_view(x.type, x.cols, row); },
      [&](const uint8_t* row, const ActsView& acts) { return dot_row<T, P>(row, acts, blocks); });
}

POP_INLINE const float* float_view(const uint8_t* x) { return reinterpret_cast<const float*>(x); }

template <DType T>
void dot_floats(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  for_rows(w, x, list, begin, end, y, ldy, float_view, [&](const uint8_t* row, const float* acts) {
    FloatSums s;
    add_floats<T>(s, row, acts, w.cols);
    return total(s);
  });
}

void dot_others(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  for_rows(w, x, list, begin, end, y, ldy, float_view, [&](const uint8_t* row, const float* acts) {
    alignas(64) float values[256];
    FloatSums s;
    for (int k = 0; k < w.cols; k += 256) {
      const int n = w.cols - k < 256 ? w.cols - k : 256;
      ref::unpack_row(w.type, row, w.cols, k, n, values);
      add_floats<DType::F32>(s, reinterpret_cast<const uint8_t*>(values), acts + k, n);
    }
    return total(s);
  });
}

}  // namespace

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const bool one_plane = x.type == ActType::I8, integer = one_plane || x.type == ActType::I16;
  auto f = integer ? ref::dot_units : dot_others;
  if (integer && w.type == DType::Q8_0) f = one_plane ? dot_blocks<DType::Q8_0, 1> : dot_blocks<DType::Q8_0, 2>;
  if (integer && w.type == DType::Q4_0) f = one_plane ? dot_blocks<DType::Q4_0, 1> : dot_blocks<DType::Q4_0, 2>;
  if (integer && w.type == DType::Q4_1) f = one_plane ? dot_blocks<DType::Q4_1, 1> : dot_blocks<DType::Q4_1, 2>;
  if (w.type == DType::F32) f = dot_floats<DType::F32>;
  if (w.type == DType::F16) f = dot_floats<DType::F16>;
  if (w.type == DType::BF16) f = dot_floats<DType::BF16>;
  f(w, x, list, begin, end, y, ldy);
}

}  // namespace pop::POP_ISA
