// Decode with W in Rows: dot products of listed rows.
#include "kernels/acts.h"
#include "kernels/x86/isa.h"
#include "kernels/x86/unpack.h"

namespace pop::POP_ISA {
namespace {

POP_INLINE double two_floats(const float* p) {
  double bits;
  __builtin_memcpy(&bits, p, 8);
  return bits;
}

// A chunk of N blocks gives sums whose lane i belongs to block i % N; kWidest is the largest N taken at once.
#ifdef __AVX512F__
constexpr int kWidest = 16;

POP_INLINE VI low_nibbles(VI v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm512_loadu_si512(p); }

// Integer sums over pieces of codes and x. Q8_0 codes are biased by 128 to be unsigned.
template <int P>
struct Products {
  VI low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
  POP_INLINE void add(Products& s, VI codes, const int8_t* x_low, const int8_t* x_high) {
    s.low = _mm512_dpbusd_epi32(s.low, codes, load_bytes(x_low));
    if constexpr (P == 2) s.high = _mm512_dpbusd_epi32(s.high, codes, load_bytes(x_high));
  }
  POP_INLINE VI total(const Products& s) {
    if constexpr (P == 1) return s.low;
    return _mm512_add_epi32(s.low, _mm512_sub_epi32(_mm512_slli_epi32(s.high, 8), s.high));  // kHighStep = 255
  }
};

template <DType T, int P, int N>
POP_INLINE VI chunk_sum(const uint8_t* codes, const int8_t* low, const int8_t* high) {
  Products<P> s;
  if constexpr (N == 16) {  // two chunks of 8: fold the halves of each
    const VI a = chunk_sum<T, P, 8>(codes, low, high);
    const VI b = chunk_sum<T, P, 8>(codes + 8 * kCodeBytes<T>, low + 256, high + 256);
    return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
  } else if constexpr (kFourBit<T> && N >= 4) {
    constexpr int kHalf = N * 16;  // low nibbles are the first half of the elements
    for (int i = 0; i < kHalf; i += 64) {
      const VI v = load_bytes(codes + i);
      Products<P>::add(s, low_nibbles(v), low + i, high + i);
      Products<P>::add(s, high_nibbles(v), low + kHalf + i, high + kHalf + i);
    }
  } else if constexpr (N >= 2) {
    for (int i = 0; i < N * 32; i += 64) {
      VI v;
      if constexpr (kFourBit<T>) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
        v = low_nibbles(_mm512_inserti64x4(_mm512_castsi256_si512(c), _mm256_srli_epi16(c, 4), 1));
      } else {
        v = _mm512_xor_si512(load_bytes(codes + i), _mm512_set1_epi8(-128));
      }
      Products<P>::add(s, v, low + i, high + i);
    }
  } else {
    __m256i v;
    if constexpr (kFourBit<T>) {
      const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
      v = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(c, 4), c), _mm256_set1_epi8(15));
    } else {
      v = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), _mm256_set1_epi8(-128));
    }
    Products<P>::add(s, _mm512_zextsi256_si512(v), low, high);  // x is padded to 64 bytes
  }
  return Products<P>::total(s);
}

template <int N>
POP_INLINE VF repeat_halves(const uint8_t* p) {
  if constexpr (N == 16) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (N == 8) return _mm512_cvtph_ps(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 4) return _mm512_cvtph_ps(_mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 2) {
    int two;
    __builtin_memcpy(&two, p, 4);
    return _mm512_cvtph_ps(_mm256_set1_epi32(two));
  }
  return set1(half(p));
}
template <int N>
POP_INLINE VF repeat_floats(const float* p) {
  if constexpr (N == 16) return load(p);
  if constexpr (N == 8) return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
  if constexpr (N == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  if constexpr (N == 2) return _mm512_castpd_ps(_mm512_set1_pd(two_floats(p)));
  return set1(*p);
}
template <int N>
POP_INLINE VF only_halves(const uint8_t* p) {
  return from_half_first(reinterpret_cast<const uint16_t*>(p), N);
}
template <int N>
POP_INLINE VI only_ints(const int32_t* p) {
  return _mm512_maskz_loadu_epi32(__mmask16((1u << N) - 1), p);
}
POP_INLINE VI subtract(VI a, VI b, int shift) { return _mm512_sub_epi32(a, _mm512_slli_epi32(b, unsigned(shift))); }
POP_INLINE VF to_float(VI v) { return _mm512_cvtepi32_ps(v); }
template <DType T>
constexpr int kBiasShift = T == DType::Q8_0 ? 7 : T == DType::Q4_0 ? 3 : 0;

#else
constexpr int kWidest = 8;

POP_INLINE VI low_nibbles(VI v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
POP_INLINE VI high_nibbles(VI v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
POP_INLINE VI load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// 4-bit codes: at most 8 pieces fit 16-bit sums (15 * 127 * 2 * 8 < 2^15). 8-bit ones are signed and widened at once; the
// product of |w| <= 128 and |x| <= 127 in pairs fits too.
template <DType T, int P>
struct Products {
  VI low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  POP_INLINE void add(Products& s, VI codes, const int8_t* x_low, const int8_t* x_high) {
    if constexpr (kFourBit<T>) {
      s.low = _mm256_add_epi16(s.low, _mm256_maddubs_epi16(codes, load_bytes(x_low)));
      if constexpr (P == 2) s.high = _mm256_add_epi16(s.high, _mm256_maddubs_epi16(codes, load_bytes(x_high)));
    } else {
      const VI size = _mm256_abs_epi8(codes);
      const VI l = _mm256_maddubs_epi16(size, _mm256_sign_epi8(load_bytes(x_low), codes));
      s.low = _mm256_add_epi32(s.low, _mm256_madd_epi16(l, _mm256_set1_epi16(1)));
      if constexpr (P == 2) {
        const VI h = _mm256_maddubs_epi16(size, _mm256_sign_epi8(load_bytes(x_high), codes));
        s.low = _mm256_add_epi32(s.low, _mm256_madd_epi16(h, _mm256_set1_epi16(kHighStep)));
      }
    }
  }
  POP_INLINE VI total(const Products& s) {
    if constexpr (!kFourBit<T>) return s.low;
    const VI low = _mm256_madd_epi16(s.low, _mm256_set1_epi16(1));
    if constexpr (P == 1) return low;
    return _mm256_add_epi32(low, _mm256_madd_epi16(s.high, _mm256_set1_epi16(kHighStep)));
  }
};

template <DType T, int P, int N>
POP_INLINE VI chunk_sum(const uint8_t* codes, const int8_t* low, const int8_t* high) {
  Products<T, P> s;
  if constexpr (kFourBit<T> && N >= 2) {
    constexpr int kHalf = N * 16;  // low nibbles are the first half of the elements
    for (int i = 0; i < kHalf; i += 32) {
      const VI v = load_bytes(codes + i);
      Products<T, P>::add(s, low_nibbles(v), low + i, high + i);
      Products<T, P>::add(s, high_nibbles(v), low + kHalf + i, high + kHalf + i);
    }
  } else if constexpr (kFourBit<T>) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    Products<T, P>::add(s, low_nibbles(_mm256_set_m128i(_mm_srli_epi16(c, 4), c)), low, high);
  } else {
    for (int i = 0; i < N * 32; i += 32) Products<T, P>::add(s, load_bytes(codes + i), low + i, high + i);
  }
  return Products<T, P>::total(s);
}

template <int N>
POP_INLINE VF repeat_halves(const uint8_t* p) {
  if constexpr (N == 8) return from_half(reinterpret_cast<const uint16_t*>(p));
  if constexpr (N == 4) return _mm256_cvtph_ps(_mm_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  if constexpr (N == 2) {
    int two;
    __builtin_memcpy(&two, p, 4);
    return _mm256_cvtph_ps(_mm_set1_epi32(two));
  }
  return set1(half(p));
}
template <int N>
POP_INLINE VF repeat_floats(const float* p) {
  if constexpr (N == 8) return load(p);
  if constexpr (N == 4) return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  if constexpr (N == 2) return _mm256_castpd_ps(_mm256_set1_pd(two_floats(p)));
  return set1(*p);
}
template <int N>
POP_INLINE VF only_halves(const uint8_t* p) {
  if constexpr (N == 8) return from_half(reinterpret_cast<const uint16_t*>(p));
  long long bits = 0;
  __builtin_memcpy(&bits, p, 2 * N);
  return _mm256_cvtph_ps(_mm_cvtsi64_si128(bits));
}
template <int N>
POP_INLINE VI only_ints(const int32_t* p) {
  return _mm256_maskload_epi32(p, first_mask(N));
}
POP_INLINE VI subtract(VI a, VI b, int shift) { return _mm256_sub_epi32(a, _mm256_slli_epi32(b, shift)); }
POP_INLINE VF to_float(VI v) { return _mm256_cvtepi32_ps(v); }
template <DType T>
constexpr int kBiasShift = T == DType::Q4_0 ? 3 : 0;
#endif

// Prefetch runs along the stream of rows that will be read: `split` bytes ahead in this row, then in the next one listed.
constexpr size_t kAhead = 4096;  // kernels.md: 4-8 KB is best on Zen 5, less is too near
struct Prefetch {
  const uint8_t* near = nullptr;  // null: nothing left to fetch
  const uint8_t* far = nullptr;
  size_t split = 0, done = 0;
  POP_INLINE void upto(Prefetch& f, size_t end) {
    for (; f.done < end; f.done += 64) {
      const uint8_t* p = f.done < f.split ? f.near : f.far;
      if (p != nullptr) POP_PREFETCH(p + f.done);
    }
  }
};

template <DType T>
struct Row {
  const uint8_t *codes, *scales, *mins;
  int blocks;
};

struct Sums {
  VF products = zero(), mins = zero();
};

template <DType T, int P, int N>
POP_INLINE void add_chunk(Sums& s, const Row<T>& w, const ActsView& x, int b) {
  const size_t at = size_t(b) * 32;
  VI sum = chunk_sum<T, P, N>(w.codes + size_t(b) * kCodeBytes<T>, x.low + at, P == 2 ? x.high + at : x.low);
  if constexpr (kBiasShift<T> != 0) sum = subtract(sum, only_ints<N>(x.sum + b), kBiasShift<T>);
  const VF scale = mul(repeat_halves<N>(w.scales + 2 * size_t(b)), repeat_floats<N>(x.scale + b));
  s.products = fma(to_float(sum), scale, s.products);
  if constexpr (T == DType::Q4_1) {
    const VF sums = N == kLanes ? load(x.scaled_sum + b) : load_first(x.scaled_sum + b, N);
    s.mins = fma(only_halves<N>(w.mins + 2 * size_t(b)), sums, s.mins);
  }
}

template <DType T, int P>
POP_INLINE VF dot_row(const uint8_t* row, const ActsView& x, int blocks, Prefetch& fetch) {
  const size_t codes = size_t(blocks) * kCodeBytes<T>;
  const Row<T> w{row, row + codes, row + codes + 2 * size_t(blocks), blocks};
  constexpr size_t kBlockBytes = kCodeBytes<T> + (T == DType::Q4_1 ? 4 : 2);
  Sums s;
  int b = 0;
  for (; b + kWidest <= blocks; b += kWidest) {
    Prefetch::upto(fetch, size_t(b + kWidest) * kBlockBytes);
    add_chunk<T, P, kWidest>(s, w, x, b);
  }
  Prefetch::upto(fetch, size_t(blocks) * kBlockBytes);
  if constexpr (kWidest > 8)
    if (blocks - b >= 8) add_chunk<T, P, 8>(s, w, x, b), b += 8;
  if (blocks - b >= 4) add_chunk<T, P, 4>(s, w, x, b), b += 4;
  if (blocks - b >= 2) add_chunk<T, P, 2>(s, w, x, b), b += 2;
  if (blocks - b >= 1) add_chunk<T, P, 1>(s, w, x, b);
  return add(s.products, s.mins);
}

// Four accumulators, taken in turn; their order is fixed by the number of columns.
struct FloatSums {
  VF part[4] = {zero(), zero(), zero(), zero()};
};

template <DType T>
POP_INLINE void add_floats(FloatSums& s, const uint8_t* w, const float* x, int n, Prefetch& fetch) {
  int k = 0;
  for (; k + 4 * kLanes <= n; k += 4 * kLanes) {
    Prefetch::upto(fetch, size_t(k + 4 * kLanes) * kPlainBytes<T>);
    for (int i = 0; i < 4; ++i) {
      const int at = k + i * kLanes;
      s.part[i] = fma(load_plain<T>(w + size_t(at) * kPlainBytes<T>), load(x + at), s.part[i]);
    }
  }
  Prefetch::upto(fetch, size_t(n) * kPlainBytes<T>);
  for (int i = 0; k + kLanes <= n; k += kLanes, ++i)
    s.part[i] = fma(load_plain<T>(w + size_t(k) * kPlainBytes<T>), load(x + k), s.part[i]);
  if (k < n) s.part[3] = fma(load_plain_first<T>(w + size_t(k) * kPlainBytes<T>, n - k), load_first(x + k, n - k), s.part[3]);
}

POP_INLINE VF total(const FloatSums& s) { return add(add(s.part[0], s.part[1]), add(s.part[2], s.part[3])); }

template <DType T>
POP_INLINE VF dot_plain(const uint8_t* row, const float* x, int cols, Prefetch& fetch) {
  FloatSums s;
  add_floats<T>(s, row, x, cols, fetch);
  return total(s);
}

VF dot_unpacked(DType type, const uint8_t* row, const float* x, int cols) {
  alignas(64) float w[256];
  FloatSums s;
  Prefetch none;
  for (int k = 0; k < cols; k += 256) {
    const int n = cols - k < 256 ? cols - k : 256;
    unpack_row(type, row, cols, k, n, w);
    add_floats<DType::F32>(s, reinterpret_cast<const uint8_t*>(w), x + k, n, none);
  }
  return total(s);
}

// What the rows of a call have in common.
struct Call {
  const Matrix& w;
  const Acts& x;
  IndexList list;
  size_t row_bytes;
  int last_row;  // rows are numbered along the list: row i is row i % unit of unit list[i / unit]

  POP_INLINE const uint8_t* row(const Call& c, int i) {
    const int unit = at(c.list, i / c.w.unit);
    const size_t offset = c.w.offset != nullptr ? c.w.offset[unit] : size_t(unit) * size_t(c.w.unit) * c.row_bytes;
    return c.w.data + offset + size_t(i % c.w.unit) * c.row_bytes;
  }
  POP_INLINE size_t output(const Call& c, int i) { return size_t(at(c.list, i / c.w.unit)) * size_t(c.w.unit) + size_t(i % c.w.unit); }

  // Short rows: whole rows ahead. Long ones: within the row, then into the next.
  POP_INLINE Prefetch prefetch(const Call& c, int i) {
    if (c.row_bytes > kAhead) {
      const uint8_t* next = i + 1 < c.last_row ? row(c, i + 1) : nullptr;
      const size_t split = c.row_bytes - kAhead;
      return {row(c, i) + kAhead, next != nullptr ? next - split : nullptr, split, 0};
    }
    const int ahead = i + int((kAhead + c.row_bytes - 1) / c.row_bytes);
    return {ahead < c.last_row ? row(c, ahead) : nullptr, nullptr, SIZE_MAX, 0};
  }
};

// Four rows at a time share their final additions; rows are read one after another all the same.
template <class Dot>
POP_INLINE void for_rows(const Call& c, int begin, int end, float* y, size_t ldy, const Dot& dot) {
  for (int i = begin * c.w.unit; i < end * c.w.unit; i += 4) {
    const int n = end * c.w.unit - i < 4 ? end * c.w.unit - i : 4;
    for (int r = 0; r < c.x.n; ++r) {
      VF v[4] = {zero(), zero(), zero(), zero()};
      for (int k = 0; k < n; ++k) {
        Prefetch fetch = Call::prefetch(c, i + k);
        if (r > 0) fetch.done = SIZE_MAX;
        v[k] = dot(Call::row(c, i + k), c.x.data + size_t(r) * c.x.stride, fetch);
      }
      alignas(16) float sums[4];
      _mm_store_ps(sums, sum4(v[0], v[1], v[2], v[3]));
      for (int k = 0; k < n; ++k) y[size_t(r) * ldy + Call::output(c, i + k)] = sums[k];
    }
  }
}

template <DType T, int P>
void dot_blocks(const Call& c, int begin, int end, float* y, size_t ldy) {
  const int blocks = c.w.cols / 32;
  const ActType type = c.x.type;
  const int cols = c.x.cols;
  for_rows(c, begin, end, y, ldy, [=](const uint8_t* row, const uint8_t* x, Prefetch& fetch) __attribute__((always_inline)) {
    return dot_row<T, P>(row, acts_view(type, cols, x), blocks, fetch);
  });
}

template <DType T>
void dot_floats(const Call& c, int begin, int end, float* y, size_t ldy) {
  const int cols = c.w.cols;
  for_rows(c, begin, end, y, ldy, [=](const uint8_t* row, const uint8_t* x, Prefetch& fetch) __attribute__((always_inline)) {
    return dot_plain<T>(row, reinterpret_cast<const float*>(x), cols, fetch);
  });
}

void dot_others(const Call& c, int begin, int end, float* y, size_t ldy) {
  const int cols = c.w.cols;
  const DType type = c.w.type;
  for_rows(c, begin, end, y, ldy, [=](const uint8_t* row, const uint8_t* x, Prefetch&) {
    return dot_unpacked(type, row, reinterpret_cast<const float*>(x), cols);
  });
}

}  // namespace

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const Call c{w, x, list, row_bytes(w.type, w.cols), list.count * w.unit};
  const bool one_plane = x.type == ActType::I8, integer = one_plane || x.type == ActType::I16;
  switch (w.type) {
    case DType::F32: return dot_floats<DType::F32>(c, begin, end, y, ldy);
    case DType::F16: return dot_floats<DType::F16>(c, begin, end, y, ldy);
    case DType::BF16: return dot_floats<DType::BF16>(c, begin, end, y, ldy);
    case DType::Q8_0:
      if (integer) return (one_plane ? dot_blocks<DType::Q8_0, 1> : dot_blocks<DType::Q8_0, 2>)(c, begin, end, y, ldy);
      break;
    case DType::Q4_0:
      if (integer) return (one_plane ? dot_blocks<DType::Q4_0, 1> : dot_blocks<DType::Q4_0, 2>)(c, begin, end, y, ldy);
      break;
    case DType::Q4_1:
      if (integer) return (one_plane ? dot_blocks<DType::Q4_1, 1> : dot_blocks<DType::Q4_1, 2>)(c, begin, end, y, ldy);
      break;
    default: break;
  }
  dot_others(c, begin, end, y, ldy);
}

}  // namespace pop::POP_ISA
