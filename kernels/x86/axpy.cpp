// Decode with W in Columns: y = sum of the listed columns, each times its x.
#include "kernels/x86/axpy_blocks.h"
#include "kernels/x86/isa.h"

namespace pop::POP_ISA {
namespace {

// Float activations on block types: each weight exactly as dequantize() gives it, one column after another.
template <DType T>
void axpy_blocks_float(const Matrix& w, const float* x, IndexList list, int begin, int end, int row0, int row1,
                       float* y) {
  const ColumnShape s = shape_of<T>(w);
  for (int row = row0; row < row1; ++row) y[row] = 0;
  for (int i = begin; i < end; ++i) {
    const int c = at(list, i);
    const uint8_t* header = header_of(s, c);
    const uint8_t* column = column_of(s, header, c);
    const auto sum = [&](VF v, int row) __attribute__((always_inline)) {
      const RowScales scales = row_scales<T>(header, c, row, s.padded_rows);
      return fma(set1(x[c]), column_values<T>(column, row, s.padded_rows, scales), v);
    };
    int row = row0;
    for (; row + kLanes <= row1; row += kLanes) store(y + row, sum(load(y + row), row));
    if (row < row1) store_first(y + row, row1 - row, sum(load_first(y + row, row1 - row), row));
  }
}

template <DType T>
const uint8_t* plain_column(const Matrix& w, int c) {
  const size_t bytes = size_t((w.rows + 63) / 64 * 64) * kPlainBytes<T>;
  return w.data + (w.offset != nullptr ? w.offset[c] : size_t(c) * bytes);
}

// Columns of the plain types taken at once: as many streams as the CPU's prefetcher follows.
constexpr int kPlainColumns = 8;

struct PlainColumns {
  const uint8_t* column[kPlainColumns];
  float x[kPlainColumns];
};

// N columns' products with rows row .. row + kLanes - 1, added to v.
template <DType T, int N>
POP_INLINE VF add_columns(const PlainColumns& c, const VF* x, int row, VF v) {
  for (int k = 0; k < N; ++k) v = fma(x[k], load_plain<T>(c.column[k] + size_t(row) * kPlainBytes<T>), v);
  return v;
}

// Rows [row0, row1) of N columns, a line of each at a time; y is read unless these are the first. Columns are padded to whole
// lines, y is not. Fetched ahead: kAheadLines further in the same columns, at their end the next ones.
template <DType T, int N>
POP_INLINE void add_plain(const PlainColumns& c, const uint8_t* const* next, int row0, int row1, bool first, float* y) {
  constexpr int kLineRows = int(kLineBytes) / kPlainBytes<T>;
  VF x[N];
  for (int k = 0; k < N; ++k) x[k] = set1(c.x[k]);
  const int lines = (row1 - row0 + kLineRows - 1) / kLineRows, distance = lines < kAheadLines ? lines : kAheadLines;
  for (int line = 0; line < lines; ++line) {
    const bool same = line + distance < lines;
    const uint8_t* const* ahead = same ? c.column : next;
    const size_t byte = size_t(row0) * kPlainBytes<T> + size_t(line + distance - (same ? 0 : lines)) * kLineBytes;
    for (int k = 0; k < N; ++k) POP_PREFETCH(ahead[k] + byte);
#pragma GCC unroll 4
    for (int i = 0; i < kLineRows; i += kLanes) {
      const int row = row0 + line * kLineRows + i, here = row1 - row;
      if (here >= kLanes) {
        store(y + row, add_columns<T, N>(c, x, row, first ? zero() : load(y + row)));
      } else if (here > 0) {
        store_first(y + row, here, add_columns<T, N>(c, x, row, first ? zero() : load_first(y + row, here)));
      }
    }
  }
}

template <DType T>
void axpy_plain(const Matrix& w, const float* x, IndexList list, int begin, int end, int row0, int row1, float* y) {
  if (begin >= end)
    for (int row = row0; row < row1; ++row) y[row] = 0;
  PlainColumns columns;
  const uint8_t* next[kPlainColumns];
  for (int i = begin; i < end;) {
    const int n = end - i < kPlainColumns ? 1 : kPlainColumns;
    for (int k = 0; k < n; ++k) {
      columns.column[k] = plain_column<T>(w, at(list, i + k));
      columns.x[k] = x[at(list, i + k)];
      next[k] = plain_column<T>(w, at(list, i + n + k < end ? i + n + k : end - 1));
    }
    (n == 1 ? add_plain<T, 1> : add_plain<T, kPlainColumns>)(columns, next, row0, row1, i == begin, y);
    i += n;
  }
}

template <DType T>
void axpy_block_type(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                     float* y) {
  const uint8_t* row = x.row(r);
  if (x.type == ActType::I8)
    return axpy_blocks<T, 1>(w, acts_view(x.type, x.cols, row), list, begin, end, row0, row1, y);
  if (x.type == ActType::I16)
    return axpy_blocks<T, 2>(w, acts_view(x.type, x.cols, row), list, begin, end, row0, row1, y);
  axpy_blocks_float<T>(w, reinterpret_cast<const float*>(row), list, begin, end, row0, row1, y);
}

template <DType T>
void axpy_plain_type(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                     float* y) {
  axpy_plain<T>(w, reinterpret_cast<const float*>(x.row(r)), list, begin, end, row0, row1, y);
}

}  // namespace

void axpy_columns(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                  float* y) {
  const auto run = [&](auto* f) { f(w, x, r, list, begin, end, row0, row1, y); };
  switch (w.type) {
    case DType::F32: return run(axpy_plain_type<DType::F32>);
    case DType::F16: return run(axpy_plain_type<DType::F16>);
    case DType::BF16: return run(axpy_plain_type<DType::BF16>);
    case DType::Q8_0: return run(axpy_block_type<DType::Q8_0>);
    case DType::Q4_0: return run(axpy_block_type<DType::Q4_0>);
    case DType::Q4_1: return run(axpy_block_type<DType::Q4_1>);
    case DType::Q5_0: return run(axpy_block_type<DType::Q5_0>);
    case DType::Q5_1: return run(axpy_block_type<DType::Q5_1>);
    case DType::Q4_K: return run(axpy_block_type<DType::Q4_K>);
    case DType::Q5_K: return run(axpy_block_type<DType::Q5_K>);
    case DType::Q6_K: return run(axpy_block_type<DType::Q6_K>);
    case DType::IQ4_NL: return run(axpy_block_type<DType::IQ4_NL>);
    default: return;  // has no such layout
  }
}

}  // namespace pop::POP_ISA
