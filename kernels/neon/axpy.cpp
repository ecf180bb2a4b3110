// W in Columns: y = sum of the listed columns, each times its x. Plain types; block types are the scalar table's.
#include "kernels/neon/isa.h"
#include "kernels/neon/simd.h"
#include "kernels/ref/ref.h"

namespace pop::POP_ISA {
namespace {

constexpr size_t kLineBytes = 64;

template <DType T>
POP_INLINE const uint8_t* column_of(const Matrix& w, int c) {
  const size_t bytes = size_t((w.rows + 63) / 64 * 64) * kPlainBytes<T>;
  return w.data + (w.offset != nullptr ? size_t(w.offset[c]) : size_t(c) * bytes);
}

// Rows [row0, row1) of N columns; y is read unless these are the first. Columns are padded to whole vectors, y is not.
template <DType T, int N>
POP_INLINE void add_columns(const uint8_t* const* column, const float* x, const uint8_t* const* next, int row0,
                            int row1, bool first, float* y) {
  VF xs[N];
  for (int k = 0; k < N; ++k) xs[k] = set1(x[k]);
  const auto sum = [&](VF v, size_t byte) __attribute__((always_inline)) {
    for (int k = 0; k < N; ++k) {
      if (byte % kLineBytes == 0 && next[k] != nullptr) POP_PREFETCH(next[k] + byte);
      v = fma(xs[k], load_plain<T>(column[k] + byte), v);
    }
    return v;
  };
  int row = row0;
  for (; row + kLanes <= row1; row += kLanes)
    store(y + row, sum(first ? zero() : load(y + row), size_t(row) * kPlainBytes<T>));
  if (row < row1) {
    const VF v = first ? zero() : load_first(y + row, row1 - row);
    store_first(y + row, row1 - row, sum(v, size_t(row) * kPlainBytes<T>));
  }
}

template <DType T>
void axpy_plain(const Matrix& w, const float* x, IndexList list, int begin, int end, int row0, int row1, float* y) {
  if (begin >= end)
    for (int row = row0; row < row1; ++row) y[row] = 0;
  const uint8_t *column[4], *next[4];
  float xs[4];
  for (int i = begin; i < end;) {
    const int n = end - i < 4 ? 1 : 4;
    for (int k = 0; k < n; ++k) {
      column[k] = column_of<T>(w, at(list, i + k));
      next[k] = i + n + k < end ? column_of<T>(w, at(list, i + n + k)) : nullptr;
      xs[k] = x[at(list, i + k)];
    }
    (n == 4 ? add_columns<T, 4> : add_columns<T, 1>)(column, xs, next, row0, row1, i == begin, y);
    i += n;
  }
}

}  // namespace

void axpy_columns(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                  float* y) {
  const float* floats = reinterpret_cast<const float*>(x.row(r));
  switch (w.type) {
    case DType::F32: return axpy_plain<DType::F32>(w, floats, list, begin, end, row0, row1, y);
    case DType::F16: return axpy_plain<DType::F16>(w, floats, list, begin, end, row0, row1, y);
    case DType::BF16: return axpy_plain<DType::BF16>(w, floats, list, begin, end, row0, row1, y);
    default: return ref::axpy_columns(w, x, r, list, begin, end, row0, row1, y);
  }
}

void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  for (int r = 0; r < x.n; ++r)
    POP_ISA::axpy_columns(w, x, r, {nullptr, w.cols}, 0, w.cols, row0, row1, y + size_t(r) * ldy);
}

}  // namespace pop::POP_ISA
