// axpy_columns with integer activations on block types: which columns are read when, and what their integer sums become.
#pragma once
#include "kernels/x86/axpy_sums.h"

namespace pop::POP_ISA {
namespace {

constexpr size_t kLineBytes = 64;
constexpr int kBandRows = 8192;  // rows taken at once, so that their sums (64 KB) stay within L2

// Of the low plane of a column.
template <DType T>
constexpr size_t code_bytes(int rows) {
  return size_t(rows) * size_t(block_format(T).low_bits) / 8;
}

// Takes the columns of the next scale from list[i .. end); returns the index after them.
POP_INLINE int next_part(const ColumnShape& s, const ActsView& x, IndexList list, int i, int end, Part& part) {
  part.count = part.groups = 0;
  if (i >= end) return i;
  part.first = at(list, i) / s.part_columns * s.part_columns;
  int after = i + 1;
  if (list.index == nullptr) {
    after = part.first + s.part_columns < end ? part.first + s.part_columns : end;
  } else {
    const int most = end - i < s.part_columns ? end - i : s.part_columns, limit = part.first + s.part_columns;
    int count = 0;  // the list ascends: without branches, since what is skipped cannot be predicted
    for (int k = 0; k < most; ++k) count += list.index[i + k] < limit;
    after = i + count;
  }
  part.count = after - i;
  part.groups = (part.count + kGroup - 1) / kGroup;
  part.header = header_of(s, part.first);
  part.scale = x.scale[part.first / kBlockElems];
  if (s.w.offset != nullptr) {
    take_columns(s, x, list, i, part);
  } else {
    take_columns_fast(s, x, list, i, part);
  }
  return after;
}

// y += sum * (scale * x scale) + min * scaled sum of x, for one vector of rows.
template <DType T>
POP_INLINE void add_rows(const Part& part, VI sum, int row, int padded_rows, float* y) {
  if constexpr (kSumBias<T> != 0) sum = add_int(sum, all_ints(-kSumBias<T> * part.sum));
  const RowScales s = row_scales<T>(part.header, part.first, row, padded_rows);
  VF v = fma(to_float(sum), mul(s.scale, set1(part.scale)), load(y));
  if constexpr (has_mins(block_format(T).scales)) v = fma(s.min, set1(part.scale * float(part.sum)), v);
  store(y, v);
}

// The order in which the lines of a part are read. All groups of a part go through a tile at once, if columns are short: sums
// then stay in registers. Long columns go in passes of a few groups over all rows: so few streams the CPU's prefetcher can
// follow. A prototype (Q4_1, 4096 x 4096 from memory, one core of an Intel server) had, as shares of the rate of 8 plain
// streams, with all columns / 60 % of them: 32 columns at once 0.76 / 0.76 (without prefetch 0.51 / 0.48), passes of 4 groups
// 0.88 / 0.78, of 2 groups 0.87 / 0.78, of 2 groups of neighbouring columns 0.80 / 0.76.
template <DType T>
struct Order {
  explicit Order(int rows) {
    const size_t run = code_bytes<T>(rows);
    most = run < 1024 ? kGroups : run < 2048 ? 8 / kGroup : 16 / kGroup;
  }
  int passes(const Part& part) const { return (part.groups + most - 1) / most; }
  int most;  // groups in a pass
};

constexpr int kAheadLines = 8;  // of a column, fetched ahead: 4 is too near, 16 too far

// Lines of the next part's scales for the rows at hand, fetched evenly over the arithmetic of the present one: a burst would
// fill the CPU's miss buffers and stop it.
struct ScaleFetch {
  const uint8_t* piece[4];
  int lines[4];
  int pieces = 0, all = 0, at = 0, in_piece = 0;  // in_piece: lines of piece `at` that are fetched
  int64_t turn = 0, turns = 1;

  POP_INLINE void add(ScaleFetch& f, const uint8_t* p, int bytes) {
    f.piece[f.pieces] = p;
    f.all += f.lines[f.pieces++] = (bytes + int(kLineBytes) - 1) / int(kLineBytes);
  }
};
template <DType T>
POP_INLINE ScaleFetch plan_scales(const ColumnShape& s, const Part& next, int row0, int rows, int turns) {
  constexpr ScaleForm form = block_format(T).scales;
  ScaleFetch f;
  if (next.count == 0) return f;
  f.turns = turns;
  const size_t padded = size_t(s.padded_rows), row = size_t(row0);
  const int in_header = next.first % s.header_columns;
  if (in_header == 0) {
    ScaleFetch::add(f, next.header + 2 * row, 2 * rows);
    if constexpr (has_mins(form)) ScaleFetch::add(f, next.header + 2 * (padded + row), 2 * rows);
  }
  if constexpr (form == ScaleForm::SixBit) {
    const uint8_t* small = next.header + six_bit_at(padded, in_header / 32);
    ScaleFetch::add(f, small + row, rows);
    ScaleFetch::add(f, small + padded + row / 2, rows / 2);
  }
  if constexpr (form == ScaleForm::Byte16)
    ScaleFetch::add(f, next.header + byte16_at(padded, in_header / 16) + row, rows);
  return f;
}
POP_INLINE void fetch_scales(ScaleFetch& f) {
  const int64_t before = f.turn * f.all / f.turns, after = ++f.turn * f.all / f.turns;
  for (int64_t i = before; i < after; ++i) {
    POP_PREFETCH(f.piece[f.at] + size_t(f.in_piece) * kLineBytes);
    if (++f.in_piece == f.lines[f.at]) ++f.at, f.in_piece = 0;
  }
}

// One tile of one pass: groups pass, pass + step, ...
template <DType T, int P, bool kHalf>
POP_INLINE void add_pass(const Part& part, int pass, int step, size_t byte, const Part& ahead, int ahead_pass,
                         int ahead_step, size_t ahead_byte, bool fetch, [[maybe_unused]] size_t high_at, VI* sums) {
  for (int j = pass, a = ahead_pass; j < part.groups; j += step, a += ahead_step) {
    if (fetch) {
      const uint8_t* const* column = ahead.column + kGroup * (a < ahead.groups ? a : ahead.groups - 1);
#pragma GCC unroll 4
      for (int i = 0; i < kGroup; ++i) {
        POP_PREFETCH(column[i] + ahead_byte);
        if constexpr (code_bytes<T>(kTileRows) > kLineBytes) POP_PREFETCH(column[i] + ahead_byte + kLineBytes);
        if constexpr (kHighBits<T> != 0)
          if (ahead_byte * kHighBits<T> / 4 % kLineBytes == 0)
            POP_PREFETCH(column[i] + high_at + ahead_byte * kHighBits<T> / 4);
      }
    }
    add_group<T, P, kHalf>(part, j, byte, high_at, sums);
  }
}

template <DType T, int P>
struct Band {
  alignas(64) float y[kBandRows];
  alignas(64) uint8_t sums[size_t(kBandRows / kTileRows) * kSums<P> * sizeof(VI)];
};

// All rows of the band ([row0, row0 + rows), rows a multiple of 64) of one part.
template <DType T, int P>
void add_part(const ColumnShape& s, const Part& part, const Part& next, const Order<T>& order, int row0, int rows,
              Band<T, P>& band) {
  const int tiles = (rows + kTileRows - 1) / kTileRows, passes = order.passes(part);
  constexpr int kTilesPerLine = code_bytes<T>(kTileRows) < kLineBytes ? int(kLineBytes / code_bytes<T>(kTileRows)) : 1;
  constexpr int kLines = kAheadLines / int(code_bytes<T>(kTileRows) > kLineBytes ? 2 : 1) * kTilesPerLine;
  const int distance = tiles < kLines ? tiles : kLines;
  const size_t high_at = high_plane_at(block_format(T), size_t(s.padded_rows));
  ScaleFetch scales = plan_scales<T>(s, next, row0, rows, passes * tiles);
  for (int pass = 0; pass < passes; ++pass) {
    const bool last = pass + 1 == passes;
    for (int tile = 0; tile < tiles; ++tile) {
      const int row = tile * kTileRows, here = rows - row < kTileRows ? rows - row : kTileRows;
      uint8_t* held = band.sums + size_t(tile) * kSums<P> * sizeof(VI);
      VI sums[kSums<P>];
      for (int i = 0; i < kSums<P>; ++i) sums[i] = pass == 0 ? zero_int() : load_int(held + size_t(i) * sizeof(VI));
      fetch_scales(scales);
      const size_t byte = code_bytes<T>(row0 + row);
      // The lines ahead: of the same columns, or at the end of the rows of the next pass's or part's.
      const bool same = tile + distance < tiles;
      const bool of_next = !same && last && next.count > 0;
      const int ahead_tile = same ? tile + distance : tile + distance - tiles;
      const Part& ahead = of_next ? next : part;
      const int ahead_pass = same ? pass : last ? 0 : pass + 1;
      const int ahead_step = of_next ? order.passes(next) : passes;
      const size_t ahead_byte = code_bytes<T>(row0 + ahead_tile * kTileRows);
      const bool fetch = ahead_tile % kTilesPerLine == 0;
      if (here == kTileRows) {
        add_pass<T, P, false>(part, pass, passes, byte, ahead, ahead_pass, ahead_step, ahead_byte, fetch, high_at,
                              sums);
      } else {
        add_pass<T, P, true>(part, pass, passes, byte, ahead, ahead_pass, ahead_step, ahead_byte, fetch, high_at, sums);
      }
      if (!last) {
        for (int i = 0; i < kSums<P>; ++i) store_int(held + size_t(i) * sizeof(VI), sums[i]);
        continue;
      }
      VI rows_sums[kTileRows / kLanes];
      total_sums<T, P>(sums, rows_sums);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows / kLanes; ++i)
        if (i * kLanes < here)
          add_rows<T>(part, rows_sums[i], row0 + row + i * kLanes, s.padded_rows, band.y + row + i * kLanes);
    }
  }
}

// Bands end where whole tiles end, so that padding never reaches the caller's y.
template <DType T, int P>
void axpy_blocks(const Matrix& w, const ActsView& x, IndexList list, int begin, int end, int row0, int row1, float* y) {
  const ColumnShape s = shape_of<T>(w);
  Band<T, P> band;
  const int bands = (row1 - row0 + kBandRows - 1) / kBandRows;
  const int size = ((row1 - row0 + bands - 1) / bands + 127) / 128 * 128;
  for (int first = row0; first < row1; first += size) {
    const int last = row1 - first < size ? row1 : first + size, padded = (last - first + 63) / 64 * 64;
    for (int i = 0; i < padded; ++i) band.y[i] = 0;
    const Order<T> order(padded);
    Part parts[2];
    int after = next_part(s, x, list, begin, end, parts[0]);
    for (int turn = 0; parts[turn].count > 0; turn ^= 1) {
      after = next_part(s, x, list, after, end, parts[turn ^ 1]);
      add_part<T, P>(s, parts[turn], parts[turn ^ 1], order, first, padded, band);
    }
    __builtin_memcpy(y + first, band.y, size_t(last - first) * 4);
  }
}

}  // namespace
}  // namespace pop::POP_ISA
