// axpy_columns for several rows of x at once (axpy_batch) with integer activations on block types: the columns that any of
// them lists are unpacked once, rows of x that do not list one have code 0 for it. Integer sums are exact, so what each row
// gets is what axpy_columns gives it.
#pragma once
#include "kernels/x86/axpy_blocks.h"

namespace pop::POP_ISA {
namespace {

constexpr int kMostRows = 16;     // of x
constexpr int kBatchBand = 1024;  // rows of W whose sums, of all rows of x, stay near

// What one row of x multiplies the columns of a part with.
struct RowCodes {
  int32_t low[kGroups], high[kGroups];  // as Part's
  int32_t sum = 0;
  float scale = 0;
  bool present = false;  // it lists some column of the part
};

// A row of x on its way through its list.
struct RowCursor {
  ActsView x;
  IndexList list;
  int at, end;
  float* y;

  POP_INLINE int column(const RowCursor& r) { return r.at < r.end ? pop::POP_ISA::at(r.list, r.at) : INT32_MAX; }
  // Takes its columns in [first, first + n), n <= 32: bit k stands for column first + k.
  POP_INLINE uint32_t take(RowCursor& r, int first, int n) {
    const int limit = first + n;
    if (r.list.index == nullptr) {
      const int from = r.at > first ? r.at : first, to = r.end < limit ? r.end : limit;
      if (from >= to) return 0;
      r.at = to;
      return uint32_t(((uint64_t(1) << (to - first)) - 1) & ~((uint64_t(1) << (from - first)) - 1));
    }
    uint32_t bits = 0;
    for (; r.at < r.end && r.list.index[r.at] < limit; ++r.at) bits |= 1u << (r.list.index[r.at] - first);
    return bits;
  }
};

// The codes of x of the columns in `bits`, at the places of the part's columns (k-th place: column part.first + place[k]).
template <int P>
void take_codes(const ActsView& x, const Part& part, const uint8_t* place, uint32_t bits, RowCodes& out) {
  out.present = bits != 0;
  if (bits == 0) return;
  out.scale = x.scale[part.first / kBlockElems];
  out.sum = 0;
  int8_t low[kMostColumns], high[kMostColumns];
  for (int k = 0; k < part.groups * kGroup; ++k) {
    const int c = place[k];
    const bool listed = c < kMostColumns && (bits >> c & 1) != 0;
    low[k] = listed ? x.low[part.first + c] : int8_t(0);
    high[k] = listed && P == 2 ? x.high[part.first + c] : int8_t(0);
    out.sum += low[k] + kHighStep * high[k];
  }
  __builtin_memcpy(out.low, low, size_t(part.groups) * 4);
  __builtin_memcpy(out.high, high, size_t(part.groups) * 4);
}

// The part of the next columns that any row lists, and each row's codes; false at the end.
template <int P>
bool next_union(const ColumnShape& s, RowCursor* rows, int count, Part& part, RowCodes* codes) {
  int next = INT32_MAX;
  for (int r = 0; r < count; ++r) next = RowCursor::column(rows[r]) < next ? RowCursor::column(rows[r]) : next;
  if (next == INT32_MAX) return false;
  part.first = next / s.part_columns * s.part_columns;
  part.header = header_of(s, part.first);
  uint32_t bits[kMostRows], any = 0;
  for (int r = 0; r < count; ++r) any |= bits[r] = RowCursor::take(rows[r], part.first, s.part_columns);
  part.count = __builtin_popcount(any);
  part.groups = (part.count + kGroup - 1) / kGroup;
  uint8_t listed[kMostColumns], place[kMostColumns];
  for (int k = 0; any != 0; any &= any - 1) listed[k++] = uint8_t(__builtin_ctz(any));
  for (int p = 0; p < part.groups * kGroup; ++p) {
    const int k = p / kGroup + part.groups * (p % kGroup);
    place[p] = k < part.count ? listed[k] : uint8_t(kMostColumns);
    part.column[p] = column_of(s, part.header, part.first + listed[k < part.count ? k : part.count - 1]);
  }
  for (int r = 0; r < count; ++r) take_codes<P>(rows[r].x, part, place, bits[r], codes[r]);
  return true;
}

// A tile of a part, unpacked: codes of its columns, scales of its rows.
template <DType T>
struct UnpackedTile {
  VI codes[kGroups][8];
  RowScales scales[kTileRows / kLanes];
};

// y += the tile times the codes of one row of x: the order of additions of axpy_columns.
template <DType T, int P>
POP_INLINE void add_tile(const UnpackedTile<T>& tile, int groups, const RowCodes& x, int vectors, float* y) {
  VI sums[kSums<P>], rows_sums[kTileRows / kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kSums<P>; ++i) sums[i] = zero_int();
  for (int j = 0; j < groups; ++j)
    add_codes<P>(tile.codes[j], all_ints(x.low[j]), all_ints(P == 2 ? x.high[j] : 0), sums);
  total_sums<T, P>(sums, rows_sums);
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows / kLanes; ++i) {
    if (i == vectors) break;
    store(y + i * kLanes, add_scaled<T>(rows_sums[i], tile.scales[i], x.scale, x.sum, load(y + i * kLanes)));
  }
}

template <DType T, int P>
void axpy_batch_blocks(const Matrix& w, const RowCursor* rows, int count, int row0, int row1) {
  const ColumnShape s = shape_of<T>(w);
  const size_t high_at = high_plane_at(block_format(T), size_t(s.padded_rows));
  alignas(64) float y[kMostRows][kBatchBand];
  UnpackedTile<T> tile;
  for (int first = row0; first < row1; first += kBatchBand) {
    const int last = row1 - first < kBatchBand ? row1 : first + kBatchBand, padded = (last - first + 63) / 64 * 64;
    RowCursor cursors[kMostRows];
    for (int r = 0; r < count; ++r) {
      cursors[r] = rows[r];
      for (int i = 0; i < padded; ++i) y[r][i] = 0;
    }
    Part part;
    RowCodes codes[kMostRows];
    while (next_union<P>(s, cursors, count, part, codes)) {
      for (int row = 0; row < padded; row += kTileRows) {
        const bool whole = padded - row >= kTileRows;
        const int vectors = (whole ? kTileRows : padded - row) / kLanes;
        const size_t byte = code_bytes<T>(first + row);
        for (int j = 0; j < part.groups; ++j)
          (whole ? unpack_group<T, false> : unpack_group<T, true>)(part, j, byte, high_at, tile.codes[j]);
        for (int i = 0; i < vectors; ++i)
          tile.scales[i] = row_scales<T>(part.header, part.first, first + row + i * kLanes, s.padded_rows);
        for (int r = 0; r < count; ++r)
          if (codes[r].present) add_tile<T, P>(tile, part.groups, codes[r], vectors, y[r] + row);
      }
    }
    for (int r = 0; r < count; ++r) __builtin_memcpy(rows[r].y + first, y[r], size_t(last - first) * 4);
  }
}

}  // namespace
}  // namespace pop::POP_ISA
