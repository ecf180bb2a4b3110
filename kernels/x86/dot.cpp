// Decode with W in Rows: dot products of listed rows.
#include "kernels/x86/isa.h"
#include "kernels/x86/scales.h"

namespace pop::POP_ISA {
namespace {

// Prefetch runs along the stream of rows that will be read. Rows up to kAhead bytes fetch whole rows that far ahead: four
// at a time, or (more lines than the CPU's miss buffers hold, but also more registers) one. Longer rows (Inside) fetch `near`
// this row's beginning while it is used, and from `split` on the next row's.
constexpr size_t kAhead = 4096;  // kernels.md: 4-8 KB is best on Zen 5, less is too near
enum class How { Group, Row, Inside };
POP_INLINE void fetch_row(const uint8_t* row, size_t bytes) {
  for (size_t o = 0; o < bytes; o += 64) POP_PREFETCH(row + o);
}
struct Prefetch {
  const uint8_t *near = nullptr, *far = nullptr;
  size_t split = 0;
};

// The lines of `bytes` at `from` of the stream.
template <How H>
POP_INLINE void fetch(const Prefetch& f, size_t from, size_t bytes) {
  if constexpr (H == How::Inside) {
    const uint8_t* p = (from < f.split ? f.near : f.far) + from;
    for (size_t i = 0; i < bytes; i += 64) POP_PREFETCH(p + i);
  }
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

template <DType T, int P, How H>
POP_INLINE VF dot_row(const uint8_t* row, const ActsView& x, int blocks, const Prefetch& ahead) {
  constexpr BlockFormat kFormat = block_format(T);
  Sums s;
  for (int first = 0; first < blocks; first += kGroupBlocks) {
    const GroupPlace place = group_place(kFormat, first, blocks);
    const BlockGroup w{row + place.low, row + place.high, row + place.scales, place.n};
    int i = 0;
    for (; i + kWidest <= w.n; i += kWidest) {
      fetch<H>(ahead, place.low + group_bytes(kFormat, i), group_bytes(kFormat, kWidest));
      add_chunk<T, P, kWidest>(s, w, i, x, first + i);
    }
    if (i == w.n) continue;
    fetch<H>(ahead, place.low + group_bytes(kFormat, i), group_bytes(kFormat, w.n - i));
    if constexpr (kWidest > 8)
      if (w.n - i >= 8) add_chunk<T, P, 8>(s, w, i, x, first + i), i += 8;
    if (w.n - i >= 4) add_chunk<T, P, 4>(s, w, i, x, first + i), i += 4;
    if (w.n - i >= 2) add_chunk<T, P, 2>(s, w, i, x, first + i), i += 2;
    if (w.n - i >= 1) add_chunk<T, P, 1>(s, w, i, x, first + i);
  }
  return add(s.products, s.mins);
}

// Four accumulators, taken in turn; their order is fixed by the number of columns.
struct FloatSums {
  VF part[4] = {zero(), zero(), zero(), zero()};
};

template <DType T, How H>
POP_INLINE void add_floats(FloatSums& s, const uint8_t* w, const float* x, int n, const Prefetch& ahead) {
  constexpr size_t kBytes = kPlainBytes<T>;
  int k = 0;
  for (; k + 4 * kLanes <= n; k += 4 * kLanes) {
    fetch<H>(ahead, size_t(k) * kBytes, 4 * kLanes * kBytes);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int at = k + i * kLanes;
      s.part[i] = fma(load_plain<T>(w + size_t(at) * kBytes), load(x + at), s.part[i]);
    }
  }
  fetch<H>(ahead, size_t(k) * kBytes, size_t(n - k) * kBytes);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    if (k + kLanes > n) break;
    s.part[i] = fma(load_plain<T>(w + size_t(k) * kBytes), load(x + k), s.part[i]);
    k += kLanes;
  }
  if (k < n) s.part[3] = fma(load_plain_first<T>(w + size_t(k) * kBytes, n - k), load_first(x + k, n - k), s.part[3]);
}

POP_INLINE VF total(const FloatSums& s) { return add(add(s.part[0], s.part[1]), add(s.part[2], s.part[3])); }

VF dot_unpacked(DType type, const uint8_t* row, const float* x, int cols) {
  alignas(64) float w[256];
  FloatSums s;
  for (int k = 0; k < cols; k += 256) {
    const int n = cols - k < 256 ? cols - k : 256;
    unpack_row(type, row, cols, k, n, w);
    add_floats<DType::F32, How::Row>(s, reinterpret_cast<const uint8_t*>(w), x + k, n, {});
  }
  return total(s);
}

// What the rows of a call have in common.
struct Call {
  const Matrix& w;
  const Acts& x;
  IndexList list;
  size_t row_bytes;
  int units_ahead;  // of the prefetch, for rows up to kAhead

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
template <How H>
POP_INLINE void take_group(const Call& c, int& i, int& k, int end, Group& g) {
  for (g.n = 0; g.n < 4 && i < end; ++g.n) {
    const uint8_t* row = Call::row(c, i, k);
    g.row[g.n] = row;
    g.output[g.n] = size_t(at(c.list, i)) * size_t(c.w.unit) + size_t(k);
    if constexpr (H == How::Group)
      if (i + c.units_ahead < c.list.count) fetch_row(Call::row(c, i + c.units_ahead, k), c.row_bytes);
    if constexpr (H == How::Row)
      g.ahead[g.n].near = i + c.units_ahead < c.list.count ? Call::row(c, i + c.units_ahead, k) : row;
    if (++k == c.w.unit) k = 0, ++i;
    if constexpr (H == How::Inside) {
      const size_t split = c.row_bytes - kAhead;
      const uint8_t* next = i < c.list.count ? Call::row(c, i, k) : row + split;
      g.ahead[g.n] = {row + kAhead, next - split, split};
    }
  }
}

// Four rows at a time share their final additions; rows are read one after another all the same.
// view(row of acts) is what dot(row, view, ahead) takes of x.
template <How H, class View, class Dot>
POP_INLINE void for_rows(const Call& c, int begin, int end, float* y, size_t ldy, const View& view, const Dot& dot) {
  Group g;
  for (int i = begin, k = 0; i < end;) {
    take_group<H>(c, i, k, end, g);
    for (int r = 0; r < c.x.n; ++r) {
      const auto x = view(c.x.data + size_t(r) * c.x.stride);
      VF v[4] = {zero(), zero(), zero(), zero()};
      for (int j = 0; j < g.n; ++j) {
        if (H == How::Row && r == 0) fetch_row(g.ahead[j].near, c.row_bytes);
        v[j] = dot(g.row[j], x, g.ahead[j]);
      }
      alignas(16) float sums[4];
      _mm_store_ps(sums, sum4(v[0], v[1], v[2], v[3]));
      for (int j = 0; j < g.n; ++j) y[size_t(r) * ldy + g.output[j]] = sums[j];
    }
  }
}

template <DType T, int P, How H>
void dot_blocks(const Call& c, int begin, int end, float* y, size_t ldy) {
  const int blocks = c.w.cols / 32, cols = c.x.cols;
  for_rows<H>(
      c, begin, end, y, ldy,
      [cols](const uint8_t* x)
          __attribute__((always_inline)) { return acts_view(P == 2 ? ActType::I16 : ActType::I8, cols, x); },
      [blocks](const uint8_t* row, const ActsView& x, const Prefetch& ahead)
          __attribute__((always_inline)) { return dot_row<T, P, H>(row, x, blocks, ahead); });
}

POP_INLINE const float* float_view(const uint8_t* x) { return reinterpret_cast<const float*>(x); }

template <DType T, How H>
void dot_floats(const Call& c, int begin, int end, float* y, size_t ldy) {
  const int cols = c.w.cols;
  for_rows<H>(
      c, begin, end, y, ldy,
      float_view, [cols](const uint8_t* row, const float* x, const Prefetch& ahead) __attribute__((always_inline)) {
        FloatSums s;
        add_floats<T, H>(s, row, x, cols, ahead);
        return total(s);
      });
}

void dot_others(const Call& c, int begin, int end, float* y, size_t ldy) {
  const int cols = c.w.cols;
  const DType type = c.w.type;
  for_rows<How::Group>(c, begin, end, y, ldy, float_view, [=](const uint8_t* row, const float* x, const Prefetch&) {
    return dot_unpacked(type, row, x, cols);
  });
}

using Kernel = void (*)(const Call&, int, int, float*, size_t);

template <DType T>
Kernel block_kernel(ActType act, bool is_long) {
  if (act == ActType::I16) return is_long ? dot_blocks<T, 2, How::Inside> : dot_blocks<T, 2, How::Group>;
  if (act == ActType::I8) return is_long ? dot_blocks<T, 1, How::Inside> : dot_blocks<T, 1, How::Group>;
  return dot_others;
}

template <DType T>
Kernel plain_kernel(bool is_long) {
  return is_long ? dot_floats<T, How::Inside> : dot_floats<T, How::Row>;
}

Kernel kernel_for(DType type, ActType act, bool is_long) {
  switch (type) {
    case DType::F32: return plain_kernel<DType::F32>(is_long);
    case DType::F16: return plain_kernel<DType::F16>(is_long);
    case DType::BF16: return plain_kernel<DType::BF16>(is_long);
    case DType::Q8_0: return block_kernel<DType::Q8_0>(act, is_long);
    case DType::Q4_0: return block_kernel<DType::Q4_0>(act, is_long);
    case DType::Q4_1: return block_kernel<DType::Q4_1>(act, is_long);
    case DType::Q5_0: return block_kernel<DType::Q5_0>(act, is_long);
    case DType::Q5_1: return block_kernel<DType::Q5_1>(act, is_long);
    case DType::Q4_K: return block_kernel<DType::Q4_K>(act, is_long);
    case DType::Q5_K: return block_kernel<DType::Q5_K>(act, is_long);
    case DType::Q6_K: return block_kernel<DType::Q6_K>(act, is_long);
    case DType::IQ4_NL: return block_kernel<DType::IQ4_NL>(act, is_long);
    default: return dot_others;
  }
}

}  // namespace

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const size_t bytes = row_bytes(w.type, w.cols), unit = bytes * size_t(w.unit);
  const Call c{w, x, list, bytes, int((kAhead + unit - 1) / unit)};
  kernel_for(w.type, x.type, bytes > kAhead)(c, begin, end, y, ldy);
}

}  // namespace pop::POP_ISA
