// Prefill: many rows of x at once against tiles of 16 rows of W (tile.h). An output is one lane's chain of additions over
// ascending blocks (or columns), so neither the number of rows of x nor any cut can change it.
#include "kernels/acts.h"
#include "kernels/x86/chunk.h"
#include "kernels/x86/isa.h"
#include "kernels/x86/tile.h"

namespace pop::POP_ISA {
namespace {

constexpr int kVectors = kTileRows / kLanes;  // per tile row

// 16 outputs of each row of x: y itself where they lie side by side, else through a list of places.
struct Outputs {
  float* y;
  size_t ldy;
  size_t place[kTileRows];
  int rows;  // of the tile that exist
  bool together;

  POP_INLINE void load_row(const Outputs& o, int r, VF* v) {
    const float* p = o.y + size_t(r) * o.ldy;
    if (o.together) {
      for (int i = 0; i < kVectors; ++i) v[i] = load(p + o.place[0] + size_t(i * kLanes));
      return;
    }
    alignas(64) float held[kTileRows] = {};
    for (int i = 0; i < o.rows; ++i) held[i] = p[o.place[i]];
    for (int i = 0; i < kVectors; ++i) v[i] = load(held + i * kLanes);
  }
  POP_INLINE void store_row(const Outputs& o, int r, const VF* v) {
    float* p = o.y + size_t(r) * o.ldy;
    if (o.together) {
      for (int i = 0; i < kVectors; ++i) store(p + o.place[0] + size_t(i * kLanes), v[i]);
      return;
    }
    alignas(64) float held[kTileRows];
    for (int i = 0; i < kVectors; ++i) store(held + i * kLanes, v[i]);
    for (int i = 0; i < o.rows; ++i) p[o.place[i]] = held[i];
  }
};

POP_INLINE VF broadcast(const float* p) { return set1(*p); }
POP_INLINE int32_t word_at(const int8_t* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return v;
}
// The next word of x. The compiler must not look through the addition: it would keep all addresses of both planes at once,
// far more than there are registers.
POP_INLINE const int8_t* next_word(const int8_t* p, size_t step) {
  p += step;
  asm("" : "+r"(p));
  return p;
}

template <DType T>
constexpr int kWords = 8 / kHalves<T>;  // 32-bit words of x that share a scale

#ifdef __AVX512F__
constexpr int kIntegerRows = 8, kFloatRows = 8;  // rows of x whose sums stand in registers

// Sums over a block, or half of one, of N rows of x (acts rows `stride` bytes apart) with the 16 rows of the tile.
template <DType T, int P, int N>
POP_INLINE void block_sums(const uint8_t* codes, const int8_t* low, const int8_t* high, size_t stride, uint32_t step,
                           VI (*sums)[kVectors]) {
  VI s[N];
  for (int t = 0; t < N; ++t) s[t] = _mm512_setzero_si512();
  if constexpr (P == 2) {
#pragma GCC unroll 8
    for (int k = 0; k < kWords<T>; ++k, high = next_word(high, step)) {
      const VI w = _mm512_loadu_si512(codes + 64 * k);
      for (int t = 0; t < N; ++t)
        s[t] = _mm512_dpbusd_epi32(s[t], w, _mm512_set1_epi32(word_at(high + size_t(t) * stride)));
    }
    for (int t = 0; t < N; ++t) s[t] = _mm512_sub_epi32(_mm512_slli_epi32(s[t], 8), s[t]);  // kHighStep = 255
  }
#pragma GCC unroll 8
  for (int k = 0; k < kWords<T>; ++k, low = next_word(low, step)) {
    const VI w = _mm512_loadu_si512(codes + 64 * k);
    for (int t = 0; t < N; ++t)
      s[t] = _mm512_dpbusd_epi32(s[t], w, _mm512_set1_epi32(word_at(low + size_t(t) * stride)));
  }
  for (int t = 0; t < N; ++t) sums[t][0] = s[t];
}
POP_INLINE VI add_constant(VI v, int c) { return _mm512_add_epi32(v, _mm512_set1_epi32(c)); }
POP_INLINE VF to_float(VI v) { return _mm512_cvtepi32_ps(v); }

#else
constexpr int kIntegerRows = 2, kFloatRows = 6;

// One plane of x. Products of unsigned codes are added up in 16 bits, as many as fit; signed ones are widened at once.
template <DType T, int N>
POP_INLINE void plane_sums(const uint8_t* codes, const int8_t* x, size_t stride, uint32_t step, VI (*s)[2]) {
  constexpr int kBatch = kSignedCodes<T> ? 1 : kPieces<T> < kWords<T> ? kPieces<T> : kWords<T>;
  const VI ones = _mm256_set1_epi16(1);
  for (int t = 0; t < N; ++t) s[t][0] = s[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int first = 0; first < kWords<T>; first += kBatch) {
    VI sums[N][2];
#pragma GCC unroll 8
    for (int k = first; k < first + kBatch; ++k, x = next_word(x, step)) {
      const VI w[2] = {load256(codes + 64 * k), load256(codes + 64 * k + 32)};
      for (int t = 0; t < N; ++t) {
        const VI v = _mm256_set1_epi32(word_at(x + size_t(t) * stride));
        for (int i = 0; i < 2; ++i) {
          const VI products = kSignedCodes<T> ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(v, w[i]))
                                              : _mm256_maddubs_epi16(w[i], v);
          sums[t][i] = k == first ? products : _mm256_add_epi16(sums[t][i], products);
        }
      }
    }
    for (int t = 0; t < N; ++t)
      for (int i = 0; i < 2; ++i) s[t][i] = _mm256_add_epi32(s[t][i], _mm256_madd_epi16(sums[t][i], ones));
  }
}

template <DType T, int P, int N>
POP_INLINE void block_sums(const uint8_t* codes, const int8_t* low, const int8_t* high, size_t stride, uint32_t step,
                           VI (*sums)[kVectors]) {
  plane_sums<T, N>(codes, low, stride, step, sums);
  if constexpr (P == 2) {
    VI h[N][2];
    plane_sums<T, N>(codes, high, stride, step, h);
    for (int t = 0; t < N; ++t)
      for (int i = 0; i < 2; ++i)
        sums[t][i] =
            _mm256_add_epi32(sums[t][i], _mm256_sub_epi32(_mm256_slli_epi32(h[t][i], 8), h[t][i]));  // kHighStep = 255
  }
}
POP_INLINE VI add_constant(VI v, int c) { return _mm256_add_epi32(v, _mm256_set1_epi32(c)); }
POP_INLINE VF to_float(VI v) { return _mm256_cvtepi32_ps(v); }
#endif

// N rows of x from row r on, all blocks of the tile.
template <DType T, int P, int N>
void add_integer(const IntegerTile& tile, int first, int count, const Acts& x, int r, bool fresh, const Outputs& out) {
  const ActsView a = acts_view(P == 1 ? ActType::I8 : ActType::I16, x.cols, x.data + size_t(r) * x.stride);
  const size_t values = x.stride / 4;  // from row to row of the 32-bit parts
  VF y[N][kVectors];
  for (int t = 0; t < N; ++t) {
    if (fresh) {
      for (int i = 0; i < kVectors; ++i) y[t][i] = zero();
    } else {
      Outputs::load_row(out, r + t, y[t]);
    }
  }
  constexpr int kParts = kHalves<T>;
  for (int part = 0; part < kParts * count; ++part) {
    VI s[N][kVectors];
    const int b = part / kParts;
    const size_t step = tile.places.step[b];
    const size_t at = tile.places.first[b] + size_t(part % kParts * kWords<T>) * step;
    block_sums<T, P, N>(tile.codes + part * kWords<T> * 64, a.low + at, P == 2 ? a.high + at : nullptr, x.stride,
                        uint32_t(step), s);
    for (int i = 0; i < kVectors; ++i) {
      const VF scale = load(tile.scales + part * kTileRows + i * kLanes);
      for (int t = 0; t < N; ++t) {
        const size_t value = size_t(t) * values + size_t(first + b);
        VI sum = s[t][i];
        if constexpr (kZeroCode<T> != 0) {
          int of_x = a.sum[value];
          if constexpr (kParts == 2) of_x = part % 2 == 0 ? a.half_sum[value] : of_x - a.half_sum[value];
          sum = add_constant(sum, -kZeroCode<T> * of_x);
        }
        y[t][i] = fma(to_float(sum), mul(scale, broadcast(a.scale + value)), y[t][i]);
        if constexpr (has_mins(block_format(T).scales))
          y[t][i] = fma(load(tile.mins + b * kTileRows + i * kLanes), broadcast(a.scaled_sum + value), y[t][i]);
      }
    }
  }
  for (int t = 0; t < N; ++t) Outputs::store_row(out, r + t, y[t]);
}

template <DType T, int P>
void integer_tile(const IntegerTile& tile, int first, int count, const Acts& x, const Outputs& out) {
  const bool fresh = first == 0;
  int r = 0;
  for (; r + kIntegerRows <= x.n; r += kIntegerRows)
    add_integer<T, P, kIntegerRows>(tile, first, count, x, r, fresh, out);
  if constexpr (kIntegerRows > 4)
    for (; r + 4 <= x.n; r += 4) add_integer<T, P, 4>(tile, first, count, x, r, fresh, out);
  for (; r < x.n; ++r) add_integer<T, P, 1>(tile, first, count, x, r, fresh, out);
}

template <int N>
void add_float(const FloatTile& tile, int first, int count, const Acts& x, int r, bool fresh, const Outputs& out) {
  const float* xs = reinterpret_cast<const float*>(x.data + size_t(r) * x.stride) + first;
  const size_t stride = x.stride / 4;
  VF y[N][kVectors];
  for (int t = 0; t < N; ++t) {
    if (fresh) {
      for (int i = 0; i < kVectors; ++i) y[t][i] = zero();
    } else {
      Outputs::load_row(out, r + t, y[t]);
    }
  }
  for (int k = 0; k < count; ++k) {
    VF w[kVectors];
    for (int i = 0; i < kVectors; ++i) w[i] = load(tile.values + k * kTileRows + i * kLanes);
    for (int t = 0; t < N; ++t) {
      const VF v = broadcast(xs + size_t(t) * stride + k);
      for (int i = 0; i < kVectors; ++i) y[t][i] = fma(w[i], v, y[t][i]);
    }
  }
  for (int t = 0; t < N; ++t) Outputs::store_row(out, r + t, y[t]);
}

void float_tile(const FloatTile& tile, int first, int count, const Acts& x, const Outputs& out) {
  const bool fresh = first == 0;
  int r = 0;
  for (; r + kFloatRows <= x.n; r += kFloatRows) add_float<kFloatRows>(tile, first, count, x, r, fresh, out);
  for (; r < x.n; ++r) add_float<1>(tile, first, count, x, r, fresh, out);
}

// 16 rows from `row` on, numbered along the list; those past the end repeat the last and are not stored.
void take_rows(const Matrix& w, IndexList list, int row, int end, const uint8_t** rows, Outputs& out) {
  const size_t bytes = row_bytes(w.type, w.cols);
  out.rows = end - row < kTileRows ? end - row : kTileRows;
  for (int i = 0; i < kTileRows; ++i) {
    const int n = row + (i < out.rows ? i : out.rows - 1), unit = at(list, n / w.unit);
    const size_t offset = w.offset != nullptr ? w.offset[unit] : size_t(unit) * size_t(w.unit) * bytes;
    rows[i] = w.data + offset + size_t(n % w.unit) * bytes;
    out.place[i] = size_t(unit) * size_t(w.unit) + size_t(n % w.unit);
  }
  out.together = out.rows == kTileRows && out.place[kTileRows - 1] - out.place[0] == kTileRows - 1;
}

template <DType T, int P>
void units_integer(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const uint8_t* rows[kTileRows];
  IntegerTile tile;
  Outputs out{y, ldy, {}, 0, false};
  const int blocks = w.cols / 32;
  for (int row = begin * w.unit; row < end * w.unit; row += kTileRows) {
    take_rows(w, list, row, end * w.unit, rows, out);
    for (int first = 0; first < blocks; first += kTileBlocks) {
      const int count = blocks - first < kTileBlocks ? blocks - first : kTileBlocks;
      unpack_tile<T>(rows, w.cols, first, count, tile);
      integer_tile<T, P>(tile, first, count, x, out);
    }
  }
}

void units_float(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const uint8_t* rows[kTileRows];
  FloatTile tile;
  Outputs out{y, ldy, {}, 0, false};
  for (int row = begin * w.unit; row < end * w.unit; row += kTileRows) {
    take_rows(w, list, row, end * w.unit, rows, out);
    for (int first = 0; first < w.cols; first += kTileCols) {
      const int count = w.cols - first < kTileCols ? w.cols - first : kTileCols;
      unpack_tile(w.type, rows, w.cols, first, count, tile);
      float_tile(tile, first, count, x, out);
    }
  }
}

void take_places(int row, int row1, Outputs& out) {
  out.rows = row1 - row < kTileRows ? row1 - row : kTileRows;
  for (int i = 0; i < kTileRows; ++i) out.place[i] = size_t(row + i);
  out.together = out.rows == kTileRows;
}

template <DType T, int P>
void columns_integer(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  IntegerTile tile;
  Outputs out{y, ldy, {}, 0, false};
  const int blocks = w.cols / 32;
  for (int row = row0; row < row1; row += kTileRows) {
    take_places(row, row1, out);
    for (int first = 0; first < blocks; first += kTileBlocks) {
      const int count = blocks - first < kTileBlocks ? blocks - first : kTileBlocks;
      unpack_tile_columns<T>(w, row, first, count, tile);
      integer_tile<T, P>(tile, first, count, x, out);
    }
  }
}

template <DType T>
void unpack_columns_float(const Matrix& w, int row, int first, int count, FloatTile& tile) {
  const size_t column = size_t((w.rows + 63) / 64 * 64) * kPlainBytes<T>;
  for (int k = 0; k < count; ++k)
    for (int i = 0; i < kTileRows; i += kLanes)
      store(tile.values + k * kTileRows + i,
            load_plain<T>(w.data + size_t(first + k) * column + size_t(row + i) * kPlainBytes<T>));
}

// Of block types: exactly dequantize()'s values.
template <DType T>
void unpack_columns_blocks(const Matrix& w, int row, int first, int count, FloatTile& tile) {
  const ColumnShape s = shape_of<T>(w);
  for (int k = 0; k < count; k += s.part_columns) {
    const uint8_t* header = header_of(s, first + k);
    RowScales scales[kVectors];
    for (int i = 0; i < kVectors; ++i) scales[i] = row_scales<T>(header, first + k, row + i * kLanes, s.padded_rows);
    for (int c = k; c < k + s.part_columns; ++c) {
      const uint8_t* column = column_of(s, header, first + c);
      for (int i = 0; i < kVectors; ++i)
        store(tile.values + c * kTileRows + i * kLanes,
              column_values<T>(column, row + i * kLanes, s.padded_rows, scales[i]));
    }
  }
}

template <DType T>
void columns_float(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  FloatTile tile;
  Outputs out{y, ldy, {}, 0, false};
  for (int row = row0; row < row1; row += kTileRows) {
    take_places(row, row1, out);
    for (int first = 0; first < w.cols; first += kTileCols) {
      const int count = w.cols - first < kTileCols ? w.cols - first : kTileCols;
      if constexpr (T == DType::F32 || T == DType::F16 || T == DType::BF16) {
        unpack_columns_float<T>(w, row, first, count, tile);
      } else {
        unpack_columns_blocks<T>(w, row, first, count, tile);
      }
      float_tile(tile, first, count, x, out);
    }
  }
}

}  // namespace

void gemm_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const bool one_plane = x.type == ActType::I8;
  auto f = units_float;
  if (one_plane || x.type == ActType::I16) {
    f = dot_units;  // types without a tile of codes: row by row
    if (w.type == DType::Q8_0) f = one_plane ? units_integer<DType::Q8_0, 1> : units_integer<DType::Q8_0, 2>;
    if (w.type == DType::Q4_0) f = one_plane ? units_integer<DType::Q4_0, 1> : units_integer<DType::Q4_0, 2>;
    if (w.type == DType::Q4_1) f = one_plane ? units_integer<DType::Q4_1, 1> : units_integer<DType::Q4_1, 2>;
  }
  f(w, x, list, begin, end, y, ldy);
}

namespace {

template <DType T>
void columns_block_type(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  if (x.type != ActType::I8 && x.type != ActType::I16) return columns_float<T>(w, x, row0, row1, y, ldy);
  (x.type == ActType::I8 ? columns_integer<T, 1> : columns_integer<T, 2>)(w, x, row0, row1, y, ldy);
}

}  // namespace

void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  const auto run = [&](auto* f) { f(w, x, row0, row1, y, ldy); };
  switch (w.type) {
    case DType::F32: return run(columns_float<DType::F32>);
    case DType::F16: return run(columns_float<DType::F16>);
    case DType::BF16: return run(columns_float<DType::BF16>);
    case DType::Q8_0: return run(columns_block_type<DType::Q8_0>);
    case DType::Q4_0: return run(columns_block_type<DType::Q4_0>);
    case DType::Q4_1: return run(columns_block_type<DType::Q4_1>);
    case DType::Q5_0: return run(columns_block_type<DType::Q5_0>);
    case DType::Q5_1: return run(columns_block_type<DType::Q5_1>);
    case DType::Q4_K: return run(columns_block_type<DType::Q4_K>);
    case DType::Q5_K: return run(columns_block_type<DType::Q5_K>);
    case DType::Q6_K: return run(columns_block_type<DType::Q6_K>);
    case DType::IQ4_NL: return run(columns_block_type<DType::IQ4_NL>);
    default: return;  // has no such layout
  }
}

}  // namespace pop::POP_ISA
