// Decode with W in Rows: dot products of listed rows.
#include "kernels/x86/isa.h"
#include "kernels/x86/scales.h"

namespace pop::POP_ISA {
namespace {

// Prefetch runs along the stream of rows that will be read, kAhead bytes ahead, a few lines at a time between the arithmetic:
// a burst fills the CPU's miss buffers and stops it. While `from` bytes of a row are used, `near` + from is fetched, and from
// `split` on `far` + from, of the next row.
constexpr size_t kAhead = 4096;  // into L2: kernels.md
struct Prefetch {
  const uint8_t *near = nullptr, *far = nullptr;
  size_t split = 0;
};

// The lines of `bytes` at `from` of the stream.
POP_INLINE void fetch(const Prefetch& f, size_t from, size_t bytes) {
  const uint8_t* p = (from < f.split ? f.near : f.far) + from;
  for (size_t i = 0; i < bytes; i += 64) POP_PREFETCH_L2(p + i);
}

// A group of n blocks of a row (tensor/block_format.h).
struct BlockGroup {
  const uint8_t *low, *high, *scales;
  int n;
};

struct Sums {
  VF products = zero(), mins = zero();
};

// The chunk of N blocks from `lane` of the group on, block b of the row.
template <DType T, int P, int N>
POP_INLINE void add_chunk(Sums& s, const BlockGroup& w, int lane, const ActsView& x, int b) {
  if constexpr (N >= 8 || !has_super_blocks(block_format(T).scales)) {  // others have rows of whole chunks of 8
    const size_t at = size_t(b) * 32;
    VI sums[kHalves<T>];
    chunk_sums<T, P, N>(w.low + plane_bytes(kLowBits<T>, lane), w.high + plane_bytes(kHighBits<T>, lane), x.low + at,
                        P == 2 ? x.high + at : x.low, sums);
    const auto scales = ChunkScales<T, N>::read(w.scales, w.n, lane);
    const VF x_scale = floats<N>(x.scale + b);
    if constexpr (kHalves<T> == 2) {
      const VI first = only_ints<N>(x.half_sum + b), second = subtract(only_ints<N>(x.sum + b), first);
      const VF a = to_float(subtract(sums[0], up(first, kZeroShift<T>)));
      const VF c = to_float(subtract(sums[1], up(second, kZeroShift<T>)));
      s.products = fma(fma(a, scales.scale[0], mul(c, scales.scale[1])), x_scale, s.products);
    } else {
      if constexpr (kZeroCode<T> != 0) sums[0] = subtract(sums[0], up(only_ints<N>(x.sum + b), kZeroShift<T>));
      s.products = fma(to_float(sums[0]), mul(scales.scale[0], x_scale), s.products);
    }
    if constexpr (has_mins(block_format(T).scales)) {
      const VF x_sums = N == kLanes ? load(x.scaled_sum + b) : load_first(x.scaled_sum + b, N);
      s.mins = fma(scales.min, x_sums, s.mins);
    }
  }
}

// R rows at once, chunk by chunk.
template <DType T, int P, int R>
POP_INLINE void dot_blocks_of(const uint8_t* const* rows, const ActsView& x, int blocks, const Prefetch* ahead, VF* v) {
  constexpr BlockFormat kFormat = block_format(T);
  Sums s[R];
  for (int first = 0; first < blocks; first += kGroupBlocks) {
    const GroupPlace place = group_place(kFormat, first, blocks);
    BlockGroup w[R];
    for (int r = 0; r < R; ++r) w[r] = {rows[r] + place.low, rows[r] + place.high, rows[r] + place.scales, place.n};
    const int n = place.n;
    int i = 0;
    for (; i + kWidest <= n; i += kWidest) {
      for (int r = 0; r < R; ++r) {
        fetch(ahead[r], place.low + group_bytes(kFormat, i), group_bytes(kFormat, kWidest));
        add_chunk<T, P, kWidest>(s[r], w[r], i, x, first + i);
      }
    }
    if (i == n) continue;
    for (int r = 0; r < R; ++r) {
      int k = i;
      fetch(ahead[r], place.low + group_bytes(kFormat, k), group_bytes(kFormat, n - k));
      if constexpr (kWidest > 8)
        if (n - k >= 8) add_chunk<T, P, 8>(s[r], w[r], k, x, first + k), k += 8;
      if (n - k >= 4) add_chunk<T, P, 4>(s[r], w[r], k, x, first + k), k += 4;
      if (n - k >= 2) add_chunk<T, P, 2>(s[r], w[r], k, x, first + k), k += 2;
      if (n - k >= 1) add_chunk<T, P, 1>(s[r], w[r], k, x, first + k);
    }
  }
  for (int r = 0; r < R; ++r) v[r] = add(s[r].products, s[r].mins);
}

// Four accumulators, taken in turn; their order is fixed by the number of columns.
struct FloatSums {
  VF part[4] = {zero(), zero(), zero(), zero()};
};
POP_INLINE VF total(const FloatSums& s) { return add(add(s.part[0], s.part[1]), add(s.part[2], s.part[3])); }

template <DType T, int R>
POP_INLINE void dot_floats_of(const uint8_t* const* rows, const float* x, int n, const Prefetch* ahead, VF* v) {
  constexpr size_t kBytes = kPlainBytes<T>;
  FloatSums s[R];
  int k = 0;
  for (; k + 4 * kLanes <= n; k += 4 * kLanes)
    for (int r = 0; r < R; ++r) {
      fetch(ahead[r], size_t(k) * kBytes, 4 * kLanes * kBytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int at = k + i * kLanes;
        s[r].part[i] = fma(load_plain<T>(rows[r] + size_t(at) * kBytes), load(x + at), s[r].part[i]);
      }
    }
  for (int r = 0; r < R; ++r) {
    const uint8_t* w = rows[r];
    int rest = k;
    fetch(ahead[r], size_t(rest) * kBytes, size_t(n - rest) * kBytes);
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      if (rest + kLanes > n) break;
      s[r].part[i] = fma(load_plain<T>(w + size_t(rest) * kBytes), load(x + rest), s[r].part[i]);
      rest += kLanes;
    }
    const int left = n - rest;
    if (left > 0)
      s[r].part[3] =
          fma(load_plain_first<T>(w + size_t(rest) * kBytes, left), load_first(x + rest, left), s[r].part[3]);
    v[r] = total(s[r]);
  }
}

// What the rows of a call have in common.
struct Call {
  const Matrix& w;
  const Acts& x;
  IndexList list;
  size_t row_bytes;
  int units_ahead;  // that prefetch runs ahead; 0: rows are longer than that

  POP_INLINE const uint8_t* row(const Call& c, int i, int k) {  // row k of the i-th unit listed
    const int unit = at(c.list, i);
    const size_t offset = c.w.offset != nullptr ? c.w.offset[unit] : size_t(unit) * size_t(c.w.unit) * c.row_bytes;
    return c.w.data + offset + size_t(k) * c.row_bytes;
  }
};

// Up to four rows, along the list.
struct Group {
  const uint8_t* row[4];
  Prefetch ahead[4];
  size_t output[4];
  int n;
};

// Takes rows from row k of the i-th unit on, and moves both on.
POP_INLINE void take_group(const Call& c, int& i, int& k, int end, Group& g) {
  for (g.n = 0; g.n < 4 && i < end; ++g.n) {
    const uint8_t* row = Call::row(c, i, k);
    g.row[g.n] = row;
    g.output[g.n] = size_t(at(c.list, i)) * size_t(c.w.unit) + size_t(k);
    const int later = i + c.units_ahead < c.list.count ? i + c.units_ahead : i;
    const uint8_t* ahead = Call::row(c, later, k);
    if (++k == c.w.unit) k = 0, ++i;
    if (c.units_ahead > 0) {
      g.ahead[g.n] = {ahead, ahead, 0};
    } else {
      const size_t split = c.row_bytes - kAhead;
      const uint8_t* next = i < c.list.count ? Call::row(c, i, k) : row + split;
      g.ahead[g.n] = {row + kAhead, next - split, split};
    }
  }
}

using RowList = const uint8_t* const*;

// Per type of weights: what it takes of a row of acts, and how it makes the sums of N rows. kTogether rows are read at once.
template <DType T, int P>
struct BlockDot {
  static constexpr int kTogether = 1;
  const Call& c;
  POP_MEMBER ActsView view(const uint8_t* x) const {
    return acts_view(P == 2 ? ActType::I16 : ActType::I8, c.x.cols, x);
  }
  template <int N>
  POP_MEMBER void sums(RowList rows, const ActsView& x, const Prefetch* ahead, VF* v) const {
    dot_blocks_of<T, P, N>(rows, x, c.w.cols / 32, ahead, v);
  }
};

template <DType T>
struct FloatDot {
  static constexpr int kTogether = 1;
  const Call& c;
  POP_MEMBER const float* view(const uint8_t* x) const { return reinterpret_cast<const float*>(x); }
  template <int N>
  POP_MEMBER void sums(RowList rows, const float* x, const Prefetch* ahead, VF* v) const {
    dot_floats_of<T, N>(rows, x, c.w.cols, ahead, v);
  }
};

// Types and arithmetic without a kernel of their own: unpacked to float32 first.
struct UnpackedDot {
  static constexpr int kTogether = 1;
  const Call& c;
  POP_MEMBER const float* view(const uint8_t* x) const { return reinterpret_cast<const float*>(x); }
  template <int N>
  POP_MEMBER void sums(RowList rows, const float* x, const Prefetch* ahead, VF* v) const {
    alignas(64) float values[256];
    const uint8_t* w = reinterpret_cast<const uint8_t*>(values);
    const Prefetch none{w, w, 0};
    *v = zero();
    for (int k = 0; k < c.w.cols; k += 256) {
      const int n = c.w.cols - k < 256 ? c.w.cols - k : 256;
      fetch(*ahead, row_bytes(c.w.type, k), row_bytes(c.w.type, n));
      unpack_row(c.w.type, *rows, c.w.cols, k, n, values);
      VF part;
      dot_floats_of<DType::F32, 1>(&w, x + k, n, &none, &part);
      *v = add(*v, part);
    }
  }
};

// Four rows at a time share their final additions.
template <class Dot>
void for_rows(const Call& c, int begin, int end, float* y, size_t ldy) {
  constexpr int kTogether = Dot::kTogether;
  const Dot dot{c};
  Group g;
  for (int i = begin, k = 0; i < end;) {
    take_group(c, i, k, end, g);
    for (int r = 0; r < c.x.n; ++r) {
      const auto x = dot.view(c.x.data + size_t(r) * c.x.stride);
      VF v[4] = {zero(), zero(), zero(), zero()};
      int j = 0;
      for (; j + kTogether <= g.n; j += kTogether) dot.template sums<kTogether>(g.row + j, x, g.ahead + j, v + j);
      if constexpr (kTogether > 1)
        for (; j < g.n; ++j) dot.template sums<1>(g.row + j, x, g.ahead + j, v + j);
      alignas(16) float sums[4];
      _mm_store_ps(sums, sum4(v[0], v[1], v[2], v[3]));
      for (j = 0; j < g.n; ++j) y[size_t(r) * ldy + g.output[j]] = sums[j];
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
  const size_t bytes = row_bytes(w.type, w.cols), unit = bytes * size_t(w.unit);
  const Call c{w, x, list, bytes, bytes > kAhead ? 0 : int((kAhead + unit - 1) / unit)};
  kernel_for(w.type, x.type)(c, begin, end, y, ldy);
}

}  // namespace pop::POP_ISA
