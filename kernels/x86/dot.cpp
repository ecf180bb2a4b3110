// Decode with W in Rows: dot products of listed rows.
#include "kernels/x86/isa.h"
#include "kernels/x86/scales.h"

namespace pop::POP_ISA {
namespace {

// Prefetch runs along the stream of rows that will be read, into L2 kFar bytes ahead and, for block types, into L1 kNear bytes
// ahead, a few lines at a time between the arithmetic: a burst fills the CPU's miss buffers and stops it. Distances: kernels.md.
constexpr size_t kFar = 4096, kNear = 1024;
// While byte `from` of a row is used, `here` + from is fetched, and from `split` on `next` + from, of a later row.
struct Place {
  const uint8_t *here, *next;
  size_t split;
  POP_INLINE const uint8_t* of(const Place& p, size_t from) { return (from < p.split ? p.here : p.next) + from; }
};
struct Ahead {
  Place far, near;
};
POP_INLINE void fetch_far(const Ahead& a, size_t from, size_t bytes) {
  const uint8_t* p = Place::of(a.far, from);
  for (size_t i = 0; i < bytes; i += 64) POP_PREFETCH_L2(p + i);
}
POP_INLINE void fetch(const Ahead& a, size_t from, size_t bytes) {
  fetch_far(a, from, bytes);
  const uint8_t* p = Place::of(a.near, from);
  for (size_t i = 0; i < bytes; i += 64) POP_PREFETCH(p + i);
}

// A group of n blocks of a row (tensor/block_format.h).
struct BlockGroup {
  const uint8_t *low, *high, *scales;
  int n;
};

struct Sums {
  VF products = zero(), mins = zero();
};

// The chunk of N blocks from `lane` of the group on, block b of the row, with X rows of x.
template <DType T, int P, int N, int X>
POP_INLINE void add_chunk(Sums* s, const BlockGroup& w, int lane, const ActsView* x, int b) {
  if constexpr (N >= 8 || !has_super_blocks(block_format(T).scales)) {  // others have rows of whole chunks of 8
    VI sums[X][kHalves<T>];
    chunk_sums<T, P, N, X>(w.low + plane_bytes(kLowBits<T>, lane), w.high + plane_bytes(kHighBits<T>, lane), x,
                           size_t(b) * 32, sums);
    const auto scales = ChunkScales<T, N>::read(w.scales, w.n, lane);
#pragma GCC unroll 8
    for (int r = 0; r < X; ++r) {
      const VF x_scale = floats<N>(x[r].scale + b);
      if constexpr (kHalves<T> == 2) {
        const VI first = only_ints<N>(x[r].half_sum + b), second = subtract(only_ints<N>(x[r].sum + b), first);
        const VF a = to_float(subtract(sums[r][0], up(first, kZeroShift<T>)));
        const VF c = to_float(subtract(sums[r][1], up(second, kZeroShift<T>)));
        s[r].products = fma(fma(a, scales.scale[0], mul(c, scales.scale[1])), x_scale, s[r].products);
      } else {
        VI sum = sums[r][0];
        if constexpr (kZeroCode<T> != 0) sum = subtract(sum, up(only_ints<N>(x[r].sum + b), kZeroShift<T>));
        s[r].products = fma(to_float(sum), mul(scales.scale[0], x_scale), s[r].products);
      }
      if constexpr (has_mins(block_format(T).scales)) {
        const VF x_sums = N == kLanes ? load(x[r].scaled_sum + b) : load_first(x[r].scaled_sum + b, N);
        s[r].mins = fma(scales.min, x_sums, s[r].mins);
      }
    }
  }
}

// The n blocks from `first` of the row on, a group that begins `at` bytes into it. Of whole groups n is a constant.
template <DType T, int P, int X>
POP_INLINE void add_group(Sums* s, const uint8_t* row, size_t at, int n, const ActsView* x, int first,
                          const Ahead& ahead) {
  constexpr BlockFormat kFormat = block_format(T);
  const uint8_t *low = row + at, *high = low + plane_bytes(kFormat.low_bits, n);
  const BlockGroup w{low, high, high + plane_bytes(kFormat.high_bits, n), n};
  int i = 0;
#pragma GCC unroll 4
  for (; i + kWidest <= n; i += kWidest) {
    fetch(ahead, at + group_bytes(kFormat, i), group_bytes(kFormat, kWidest));
    add_chunk<T, P, kWidest, X>(s, w, i, x, first + i);
  }
  if (i == n) return;
  fetch(ahead, at + group_bytes(kFormat, i), group_bytes(kFormat, n - i));
  if constexpr (kWidest > 8)
    if (n - i >= 8) add_chunk<T, P, 8, X>(s, w, i, x, first + i), i += 8;
  if (n - i >= 4) add_chunk<T, P, 4, X>(s, w, i, x, first + i), i += 4;
  if (n - i >= 2) add_chunk<T, P, 2, X>(s, w, i, x, first + i), i += 2;
  if (n - i >= 1) add_chunk<T, P, 1, X>(s, w, i, x, first + i);
}

// Sums of a row with X rows of x; of each there is the one order of additions, whatever X is.
template <DType T, int P, int X>
POP_INLINE void dot_blocks(const uint8_t* row, const ActsView* x, int blocks, const Ahead& ahead, VF* v) {
  Sums s[X];
  size_t at = 0;
  int first = 0;
  for (; first + kGroupBlocks <= blocks; first += kGroupBlocks, at += group_bytes(block_format(T), kGroupBlocks))
    add_group<T, P, X>(s, row, at, kGroupBlocks, x, first, ahead);
  if (first < blocks) add_group<T, P, X>(s, row, at, blocks - first, x, first, ahead);
  for (int r = 0; r < X; ++r) v[r] = add(s[r].products, s[r].mins);
}

// Four accumulators, taken in turn; their order is fixed by the number of columns.
template <DType T>
POP_INLINE VF dot_floats(const uint8_t* w, const float* x, int n, const Ahead& ahead) {
  constexpr size_t kBytes = kPlainBytes<T>;
  VF s[4] = {zero(), zero(), zero(), zero()};
  int k = 0;
  for (; k + 4 * kLanes <= n; k += 4 * kLanes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int at = k + i * kLanes;
      if (i * kLanes * int(kBytes) % 64 == 0) fetch_far(ahead, size_t(at) * kBytes, 64);
      s[i] = fma(load_plain<T>(w + size_t(at) * kBytes), load(x + at), s[i]);
    }
  }
  fetch_far(ahead, size_t(k) * kBytes, size_t(n - k) * kBytes);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    if (k + kLanes > n) break;
    s[i] = fma(load_plain<T>(w + size_t(k) * kBytes), load(x + k), s[i]);
    k += kLanes;
  }
  if (k < n) s[3] = fma(load_plain_first<T>(w + size_t(k) * kBytes, n - k), load_first(x + k, n - k), s[3]);
  return add(add(s[0], s[1]), add(s[2], s[3]));
}

// How far prefetch runs ahead: `bytes` along the row, from `split` on in the row that is `rows` later. 0: always in that row.
struct Distance {
  size_t bytes, split;
  int rows;
};
constexpr int kMostLater = 64;  // rows
POP_INLINE Distance distance(size_t row_bytes, size_t ahead) {
  if (row_bytes > ahead) return {ahead, row_bytes - ahead, 1};
  const size_t rows = (ahead + row_bytes - 1) / row_bytes;
  return {0, 0, rows < size_t(kMostLater) ? int(rows) : kMostLater};
}

// What the rows of a call have in common.
struct Call {
  const Matrix& w;
  const Acts& x;
  IndexList list;
  size_t row_bytes;
  Distance far, near;
};

// Rows along the list, and those after them where prefetch goes; past the list's end its last row stands.
constexpr int kRunRows = 64;
struct Run {
  const uint8_t* row[kRunRows + kMostLater];
  size_t output[kRunRows];

  // n rows from row `begin` of the list's rows on.
  POP_INLINE void take(Run& run, const Call& c, int begin, int n) {
    const Matrix& w = c.w;
    const uint8_t* p = w.data;
    int i = begin / w.unit, k = begin % w.unit;
    for (int j = 0; j < n + c.far.rows; ++j) {
      if (i < c.list.count) {
        const size_t unit = size_t(at(c.list, i)), first = unit * size_t(w.unit);
        p = w.data + (w.offset != nullptr ? w.offset[unit] : first * c.row_bytes) + size_t(k) * c.row_bytes;
        if (j < n) run.output[j] = first + size_t(k);
        if (++k == w.unit) k = 0, ++i;
      }
      run.row[j] = p;
    }
  }
  POP_INLINE Place ahead(const uint8_t* const* row, const Distance& d) {
    return {row[0] + d.bytes, row[d.rows] - d.split, d.split};
  }
};

// Per type of weights: what it takes of a row of acts, and the sums of a row with X rows of x; kMost: the largest X.
template <DType T, int P>
struct BlockDot {
  using View = ActsView;
#ifdef POP_TEST_SIMDE  // takes minutes to compile with more
  static constexpr int kMost = 1;
#else
  static constexpr int kMost =
      P == 2 ? kLanes / 4 : 1;  // as many as leave their sums in registers; P = 1 is no default
#endif
  POP_INLINE ActsView view(const Call& c, const uint8_t* x) {
    return acts_view(P == 2 ? ActType::I16 : ActType::I8, c.x.cols, x);
  }
  template <int X>
  POP_INLINE void dot(const Call& c, const uint8_t* row, const ActsView* x, const Ahead& ahead, VF* v) {
    dot_blocks<T, P, X>(row, x, c.w.cols / 32, ahead, v);
  }
};

template <DType T>
struct FloatDot {
  using View = const float*;
  static constexpr int kMost = 1;
  POP_INLINE const float* view(const Call&, const uint8_t* x) { return reinterpret_cast<const float*>(x); }
  template <int X>
  POP_INLINE void dot(const Call& c, const uint8_t* row, const float* const* x, const Ahead& ahead, VF* v) {
    *v = dot_floats<T>(row, *x, c.w.cols, ahead);
  }
};

// Types and arithmetic without a kernel of their own: unpacked to float32 first.
struct UnpackedDot {
  using View = const float*;
  static constexpr int kMost = 1;
  POP_INLINE const float* view(const Call&, const uint8_t* x) { return reinterpret_cast<const float*>(x); }
  template <int X>
  POP_INLINE void dot(const Call& c, const uint8_t* row, const float* const* x, const Ahead& ahead, VF* v) {
    alignas(64) float values[256];
    const uint8_t* w = reinterpret_cast<const uint8_t*>(values);
    const Ahead none{{w, w, 0}, {w, w, 0}};
    VF sum = zero();
    for (int k = 0; k < c.w.cols; k += 256) {
      const int n = c.w.cols - k < 256 ? c.w.cols - k : 256;
      fetch_far(ahead, row_bytes(c.w.type, k), row_bytes(c.w.type, n));
      unpack_row(c.w.type, row, c.w.cols, k, n, values);
      sum = add(sum, dot_floats<DType::F32>(w, *x + k, n, none));
    }
    *v = sum;
  }
};

// n <= 4 rows of W with X rows of x from row r on. The four share their final additions; they are read one after another all
// the same.
template <class Dot, int X>
POP_INLINE void dot_rows(const Call& c, const Run& run, int i, int n, int r, float* y, size_t ldy) {
  typename Dot::View x[X];
  for (int k = 0; k < X; ++k) x[k] = Dot::view(c, c.x.data + size_t(r + k) * c.x.stride);
  VF v[4][X];
  for (int j = 0; j < 4; ++j)
    for (int k = 0; k < X; ++k) v[j][k] = zero();
  for (int j = 0; j < n; ++j) {
    const uint8_t* const* row = run.row + i + j;
    Dot::template dot<X>(c, *row, x, {Run::ahead(row, c.far), Run::ahead(row, c.near)}, v[j]);
  }
#pragma GCC unroll 8
  for (int k = 0; k < X; ++k) {
    alignas(16) float sums[4];
    _mm_store_ps(sums, sum4(v[0][k], v[1][k], v[2][k], v[3][k]));
    for (int j = 0; j < n; ++j) y[size_t(r + k) * ldy + run.output[i + j]] = sums[j];
  }
}

template <class Dot>
void for_rows(const Call& c, int begin, int end, float* y, size_t ldy) {
  Run run;
  for (int first = begin * c.w.unit, after = end * c.w.unit; first < after; first += kRunRows) {
    const int n = after - first < kRunRows ? after - first : kRunRows;
    Run::take(run, c, first, n);
    for (int i = 0; i < n; i += 4) {
      const int here = n - i < 4 ? n - i : 4;
      int r = 0;
      if constexpr (Dot::kMost >= 4)
        for (; r + 4 <= c.x.n; r += 4) dot_rows<Dot, 4>(c, run, i, here, r, y, ldy);
      if constexpr (Dot::kMost >= 2)
        for (; r + 2 <= c.x.n; r += 2) dot_rows<Dot, 2>(c, run, i, here, r, y, ldy);
      for (; r < c.x.n; ++r) dot_rows<Dot, 1>(c, run, i, here, r, y, ldy);
    }
  }
}

using Kernel = void (*)(const Call&, int, int, float*, size_t);

template <DType T>
Kernel block_kernel(ActType act) {
  return act == ActType::I16  ? for_rows<BlockDot<T, 2>>
         : act == ActType::I8 ? for_rows<BlockDot<T, 1>>
                              : for_rows<UnpackedDot>;
}

Kernel kernel_for(DType type, ActType act) {
  switch (type) {
    case DType::F32: return for_rows<FloatDot<DType::F32>>;
    case DType::F16: return for_rows<FloatDot<DType::F16>>;
    case DType::BF16: return for_rows<FloatDot<DType::BF16>>;
    case DType::Q8_0: return block_kernel<DType::Q8_0>(act);
    case DType::Q4_0: return block_kernel<DType::Q4_0>(act);
    case DType::Q4_1: return block_kernel<DType::Q4_1>(act);
    case DType::Q5_0: return block_kernel<DType::Q5_0>(act);
    case DType::Q5_1: return block_kernel<DType::Q5_1>(act);
    case DType::Q4_K: return block_kernel<DType::Q4_K>(act);
    case DType::Q5_K: return block_kernel<DType::Q5_K>(act);
    case DType::Q6_K: return block_kernel<DType::Q6_K>(act);
    case DType::IQ4_NL: return block_kernel<DType::IQ4_NL>(act);
    default: return for_rows<UnpackedDot>;
  }
}

}  // namespace

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const size_t bytes = row_bytes(w.type, w.cols);
  const Call c{w, x, list, bytes, distance(bytes, kFar), distance(bytes, kNear)};
  kernel_for(w.type, x.type)(c, begin, end, y, ldy);
}

}  // namespace pop::POP_ISA
