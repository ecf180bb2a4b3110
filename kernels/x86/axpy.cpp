// Decode with W in Columns: y = sum of the listed columns, each times its x.
#include "kernels/x86/axpy_blocks.h"
#include "kernels/x86/isa.h"

namespace pop::POP_ISA {
namespace {

// Float activations on block types: each weight exactly as dequantize() gives it, one column after another.
template <DType T>
POP_INLINE VF column_values(const uint8_t* column, const uint8_t* header, int row, int padded_rows) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(header);
  __m128i codes;  // kLanes of them
  if constexpr (kFourBit<T>) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column + row / 64 * 32));
    const __m256i n =
        _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128(row % 64 / 16 * 4)), _mm256_set1_epi16(15));
    codes = _mm_packus_epi16(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    if (row % 16 != 0) codes = _mm_srli_si128(codes, 8);
    if constexpr (T == DType::Q4_0) codes = _mm_sub_epi8(codes, _mm_set1_epi8(8));
  } else if constexpr (kLanes == 16) {
    codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(column + row));
  } else {
    codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(column + row));
  }
#ifdef __AVX512F__
  const VF v = mul(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), from_half(halves + row));
#else
  const VF v = mul(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), from_half(halves + row));
#endif
  return T == DType::Q4_1 ? add(v, from_half(halves + padded_rows + row)) : v;
}

template <DType T>
void axpy_blocks_float(const Matrix& w, const float* x, IndexList list, int begin, int end, int row0, int row1,
                       float* y) {
  const Shape s = shape_of<T>(w);
  for (int row = row0; row < row1; ++row) y[row] = 0;
  for (int i = begin; i < end; ++i) {
    const int c = at(list, i);
    const uint8_t* header = header_of(s, c / kBlockColumns);
    const uint8_t* column = column_of(s, header, c);
    const auto sum = [&](VF v, int row) __attribute__((always_inline)) {
      return fma(set1(x[c]), column_values<T>(column, header, row, s.padded_rows), v);
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

// Rows [row0, row1) of N columns; y is read unless these are the first. Columns are padded to whole vectors, y is not.
template <DType T, int N>
POP_INLINE void add_plain(const uint8_t* const* column, const float* x, const uint8_t* const* next, int row0, int row1,
                          bool first, float* y) {
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
      column[k] = plain_column<T>(w, at(list, i + k));
      next[k] = i + n + k < end ? plain_column<T>(w, at(list, i + n + k)) : nullptr;
      xs[k] = x[at(list, i + k)];
    }
    (n == 4 ? add_plain<T, 4> : add_plain<T, 1>)(column, xs, next, row0, row1, i == begin, y);
    i += n;
  }
}

}  // namespace

void axpy_columns(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                  float* y) {
  const uint8_t* row = x.data + size_t(r) * x.stride;
  const float* floats = reinterpret_cast<const float*>(row);
  switch (w.type) {
    case DType::F32: return axpy_plain<DType::F32>(w, floats, list, begin, end, row0, row1, y);
    case DType::F16: return axpy_plain<DType::F16>(w, floats, list, begin, end, row0, row1, y);
    case DType::BF16: return axpy_plain<DType::BF16>(w, floats, list, begin, end, row0, row1, y);
    default: break;
  }
  if (x.type == ActType::I8 || x.type == ActType::I16) {
    const ActsView view = acts_view(x.type, x.cols, row);
    const bool one_plane = x.type == ActType::I8;
    auto f = one_plane ? axpy_blocks<DType::Q4_1, 1> : axpy_blocks<DType::Q4_1, 2>;
    if (w.type == DType::Q8_0) f = one_plane ? axpy_blocks<DType::Q8_0, 1> : axpy_blocks<DType::Q8_0, 2>;
    if (w.type == DType::Q4_0) f = one_plane ? axpy_blocks<DType::Q4_0, 1> : axpy_blocks<DType::Q4_0, 2>;
    return f(w, view, list, begin, end, row0, row1, y);
  }
  const auto f = w.type == DType::Q8_0   ? axpy_blocks_float<DType::Q8_0>
                 : w.type == DType::Q4_0 ? axpy_blocks_float<DType::Q4_0>
                                         : axpy_blocks_float<DType::Q4_1>;
  f(w, floats, list, begin, end, row0, row1, y);
}

}  // namespace pop::POP_ISA
