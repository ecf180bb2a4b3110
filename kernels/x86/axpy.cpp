// Decode with W in Columns: y = sum of the listed columns, each times its x.
#include "kernels/acts.h"
#include "kernels/x86/isa.h"
#include "kernels/x86/unpack.h"

namespace pop::POP_ISA {
namespace {

// Rows whose integer sums stand in kSums registers at once, and how many vectors of floats those are.
constexpr int kSums = 8;

// The listed columns of one block of 32.
struct Part {
  const uint8_t* header = nullptr;
  const uint8_t* column[33];  // one more than a block has, so that the last pair is whole
  int count = 0, block = 0;
};

struct Shape {
  const Matrix& w;
  size_t column_bytes, header_bytes, block_bytes;
  int padded_rows;
};

template <DType T>
Shape shape_of(const Matrix& w) {
  const int padded = (w.rows + 63) / 64 * 64;
  const size_t column = kFourBit<T> ? size_t(padded) / 2 : size_t(padded),
               header = size_t(padded) * (T == DType::Q4_1 ? 4 : 2);
  return {w, column, header, header + 32 * column, padded};
}

// Takes the columns of the next block from list[i .. end); returns the index after them.
int next_part(const Shape& s, IndexList list, int i, int end, Part& part) {
  part.count = 0;
  if (i >= end) return i;
  part.block = at(list, i) / 32;
  const size_t first =
      s.w.header_offset != nullptr ? s.w.header_offset[part.block] : size_t(part.block) * s.block_bytes;
  part.header = s.w.data + first;
  const uint8_t* columns = part.header + s.header_bytes;
  for (; i < end && at(list, i) / 32 == part.block; ++i) {
    const int c = at(list, i);
    part.column[part.count++] =
        s.w.offset != nullptr ? s.w.data + s.w.offset[c] : columns + size_t(c % 32) * s.column_bytes;
  }
  part.column[part.count] = part.column[part.count - 1];
  return i;
}

// x of the part's columns: q in pairs of 16 bits, the second of an odd last pair 0; their sum.
struct Codes {
  int32_t pair[16];
  int32_t sum = 0;
  float scale = 0;
};

void take_codes(const ActsView& x, IndexList list, int first, const Part& part, Codes& out) {
  out.sum = 0;
  out.scale = x.scale[part.block];
  int16_t q[32];
  for (int k = 0; k < part.count; ++k) {
    const int c = at(list, first + k);
    const int v = x.low[c] + (x.high != nullptr ? kHighStep * x.high[c] : 0);
    q[k] = int16_t(v);
    out.sum += v;
  }
  if (part.count % 2 != 0) q[part.count] = 0;
  __builtin_memcpy(out.pair, q, size_t(part.count + 1) / 2 * 4);
}

#ifdef __AVX512F__
constexpr int kTileRows = 128;

POP_INLINE VI set_pair(int32_t v) { return _mm512_set1_epi32(v); }
POP_INLINE VI zero_int() { return _mm512_setzero_si512(); }
POP_INLINE VI dot_pairs(VI sum, VI w, VI x) { return _mm512_dpwssd_epi32(sum, w, x); }
POP_INLINE VI upper_bytes(VI v) { return _mm512_srli_epi16(v, 8); }
POP_INLINE VI masked(VI v, int16_t mask) { return _mm512_and_si512(v, _mm512_set1_epi16(mask)); }
POP_INLINE VI sixteenth(VI v) { return _mm512_srai_epi32(v, 4); }
POP_INLINE VI low_words(VI a, VI b) { return _mm512_unpacklo_epi16(a, b); }
POP_INLINE VI high_words(VI a, VI b) { return _mm512_unpackhi_epi16(a, b); }
// 64 bytes of codes, or 32 and zeros when only 64 rows of 4-bit codes are left.
POP_INLINE VI load_nibbles(const uint8_t* p, int rows) {
  if (rows >= 128) return _mm512_loadu_si512(p);
  return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
POP_INLINE VI load_words(const uint8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Sums of words interleaved by unpacklo and unpackhi, put back in the order of the words: lower half, upper half.
POP_INLINE VI first_half(VI low, VI high) {
  const VI index = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  return _mm512_permutex2var_epi32(low, index, high);
}
POP_INLINE VI second_half(VI low, VI high) {
  const VI index = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  return _mm512_permutex2var_epi32(low, index, high);
}
POP_INLINE VI add_int(VI a, VI b) { return _mm512_add_epi32(a, b); }
POP_INLINE VF to_float(VI v) { return _mm512_cvtepi32_ps(v); }
constexpr int kWordsPerLoad = 32;
#else
constexpr int kTileRows = 64;

POP_INLINE VI set_pair(int32_t v) { return _mm256_set1_epi32(v); }
POP_INLINE VI zero_int() { return _mm256_setzero_si256(); }
POP_INLINE VI dot_pairs(VI sum, VI w, VI x) { return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x)); }
POP_INLINE VI upper_bytes(VI v) { return _mm256_srli_epi16(v, 8); }
POP_INLINE VI masked(VI v, int16_t mask) { return _mm256_and_si256(v, _mm256_set1_epi16(mask)); }
POP_INLINE VI sixteenth(VI v) { return _mm256_srai_epi32(v, 4); }
POP_INLINE VI low_words(VI a, VI b) { return _mm256_unpacklo_epi16(a, b); }
POP_INLINE VI high_words(VI a, VI b) { return _mm256_unpackhi_epi16(a, b); }
POP_INLINE VI load_nibbles(const uint8_t* p, int) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
POP_INLINE VI load_words(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
POP_INLINE VI first_half(VI low, VI high) { return _mm256_permute2x128_si256(low, high, 0x20); }
POP_INLINE VI second_half(VI low, VI high) { return _mm256_permute2x128_si256(low, high, 0x31); }
POP_INLINE VI add_int(VI a, VI b) { return _mm256_add_epi32(a, b); }
POP_INLINE VF to_float(VI v) { return _mm256_cvtepi32_ps(v); }
constexpr int kWordsPerLoad = 16;
#endif

// sums[2k], sums[2k + 1] += nibble k of the words of low and high, times the pair of x. Nibbles 1 and 3 are left where they
// stand in their byte, so that one shift serves all: their sums count sixteenfold (15 * 16 * 32512 * 32 columns < 2^31).
POP_INLINE void add_nibbles(VI low, VI high, VI pair, VI* sums) {
  const VI part[4] = {low, high, upper_bytes(low), upper_bytes(high)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    VI* s = sums + i / 2 * 4 + i % 2;
    s[0] = dot_pairs(s[0], masked(part[i], 0x0f), pair);
    s[2] = dot_pairs(s[2], masked(part[i], 0xf0), pair);
  }
}

// y += sum * (scale * x scale) + min * sum of x, for one vector of rows.
template <DType T>
POP_INLINE void add_rows(const Part& part, const Codes& x, VI sum, int row, int padded_rows, float* y) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(part.header);
  if constexpr (T == DType::Q4_0) sum = add_int(sum, set_pair(-8 * x.sum));
  VF v = fma(to_float(sum), mul(from_half(halves + row), set1(x.scale)), load(y));
  if constexpr (T == DType::Q4_1) v = fma(from_half(halves + padded_rows + row), set1(x.scale * float(x.sum)), v);
  store(y, v);
}

// Where the rows of sums[i] (once put in order) begin inside a tile.
template <DType T>
POP_INLINE int first_row(int i) {
  if constexpr (!kFourBit<T>) return i * kLanes;
  if constexpr (kLanes == 8) return i / 2 * 16 + i % 2 * 8;
  return i / 2 * 16 + i % 2 * 64;  // two tiles of 64 rows in one vector
}

constexpr size_t kLineBytes = 64;

// The lines of the next part, in the order of addresses, fetched a few at a time between the arithmetic of the present one:
// a burst would fill the CPU's miss buffers and stop it.
constexpr int kBandRows = 2048;  // rows taken at once: the lines of two parts stay within L2, their sums within L1
struct Fetch {
  const uint8_t* line[(kBandRows / kLineBytes + 1) * 32 + 2 * (2 * kBandRows / kLineBytes + 1)];
  int count = 0, next = 0, step = 0;

  POP_INLINE void add(Fetch& f, const uint8_t* p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += kLineBytes) f.line[f.count++] = p + i;
  }
  POP_INLINE void some(Fetch& f) {
    for (const int end = f.next + f.step < f.count ? f.next + f.step : f.count; f.next < end; ++f.next)
      POP_PREFETCH(f.line[f.next]);
  }
};

// For rows [row0, row1) of `next`; `turns` calls of some() will fetch them all.
template <DType T>
void plan_fetch(const Shape& s, const Part& next, int row0, int row1, int turns, Fetch& f) {
  constexpr int kRowsPerByte = kFourBit<T> ? 2 : 1;
  f.count = f.next = 0;
  if (next.count == 0) return;
  const size_t byte = size_t(row0 / kRowsPerByte), bytes = size_t((row1 - row0) / kRowsPerByte);
  Fetch::add(f, next.header + 2 * size_t(row0), 2 * size_t(row1 - row0));
  if (T == DType::Q4_1) Fetch::add(f, next.header + 2 * size_t(s.padded_rows + row0), 2 * size_t(row1 - row0));
  for (int k = 0; k < next.count; ++k) Fetch::add(f, next.column[k] + byte, bytes);
  f.step = (f.count + turns - 1) / turns;
}

// Integer sums of kTileRows rows over the part's columns, of each vector of words two: interleaved halves.
template <DType T>
POP_INLINE void sum_columns(const Part& part, const Codes& x, size_t byte, int rows, Fetch& fetch, VI* sums) {
  for (int i = 0; i < kSums; ++i) sums[i] = zero_int();
  for (int k = 0; k < part.count; k += 2) {
    const uint8_t *a = part.column[k] + byte, *b = part.column[k + 1] + byte;
    const VI pair = set_pair(x.pair[k / 2]);
    Fetch::some(fetch);
    if constexpr (kFourBit<T>) {
      const VI va = load_nibbles(a, rows), vb = load_nibbles(b, rows);
      add_nibbles(low_words(va, vb), high_words(va, vb), pair, sums);
    } else {
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        if (n * kWordsPerLoad >= rows) break;
        const VI va = load_words(a + n * kWordsPerLoad), vb = load_words(b + n * kWordsPerLoad);
        sums[2 * n] = dot_pairs(sums[2 * n], low_words(va, vb), pair);
        sums[2 * n + 1] = dot_pairs(sums[2 * n + 1], high_words(va, vb), pair);
      }
    }
  }
  if constexpr (kFourBit<T>)
    for (const int i : {2, 3, 6, 7}) sums[i] = sixteenth(sums[i]);
}

// Rows [row0, row1), y : [row1 - row0].
template <DType T>
void add_part(const Shape& s, const Part& part, const Part& next, const Codes& x, int row0, int row1, Fetch& fetch,
              float* y) {
  plan_fetch<T>(s, next, row0, row1, (row1 - row0 + kTileRows - 1) / kTileRows * ((part.count + 1) / 2), fetch);
  for (int row = row0; row < row1; row += kTileRows) {
    const int rows = row1 - row < kTileRows ? 64 : kTileRows;
    const size_t byte = kFourBit<T> ? size_t(row) / 2 : size_t(row);
    VI sums[kSums];
    sum_columns<T>(part, x, byte, rows, fetch, sums);
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) {
      const int at_row = first_row<T>(i);
      if (at_row >= rows) continue;
      const VI low = sums[i / 2 * 2], high = sums[i / 2 * 2 + 1];
      const VI sum = i % 2 == 0 ? first_half(low, high) : second_half(low, high);
      add_rows<T>(part, x, sum, row + at_row, s.padded_rows, y + (row - row0) + at_row);
    }
  }
}

// Rows are taken in bands that end where whole tiles end, so that padding never reaches the caller's y.

template <DType T>
void axpy_blocks(const Matrix& w, const ActsView& x, IndexList list, int begin, int end, int row0, int row1, float* y) {
  const Shape s = shape_of<T>(w);
  alignas(64) float band[kBandRows];
  for (int first = row0; first < row1; first += kBandRows) {
    const int last = row1 - first < kBandRows ? row1 : first + kBandRows, padded = (last - first + 63) / 64 * 64;
    for (int i = 0; i < padded; ++i) band[i] = 0;
    Part parts[2];
    Codes codes;
    Fetch fetch;
    int i = begin, after = next_part(s, list, begin, end, parts[0]);
    for (int turn = 0; parts[turn].count > 0; turn ^= 1) {
      const int following = next_part(s, list, after, end, parts[turn ^ 1]);
      take_codes(x, list, i, parts[turn], codes);
      add_part<T>(s, parts[turn], parts[turn ^ 1], codes, first, first + padded, fetch, band);
      i = after;
      after = following;
    }
    __builtin_memcpy(y + first, band, size_t(last - first) * 4);
  }
}

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
  Part part;
  for (int i = begin; i < end;) {
    const int first = i;
    i = next_part(s, list, i, end, part);
    const auto sum = [&](VF v, int row) __attribute__((always_inline)) {
      for (int k = 0; k < part.count; ++k)
        v = fma(set1(x[at(list, first + k)]), column_values<T>(part.column[k], part.header, row, s.padded_rows), v);
      return v;
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
    const auto f = w.type == DType::Q8_0   ? axpy_blocks<DType::Q8_0>
                   : w.type == DType::Q4_0 ? axpy_blocks<DType::Q4_0>
                                           : axpy_blocks<DType::Q4_1>;
    return f(w, view, list, begin, end, row0, row1, y);
  }
  const auto f = w.type == DType::Q8_0   ? axpy_blocks_float<DType::Q8_0>
                 : w.type == DType::Q4_0 ? axpy_blocks_float<DType::Q4_0>
                                         : axpy_blocks_float<DType::Q4_1>;
  f(w, floats, list, begin, end, row0, row1, y);
}

}  // namespace pop::POP_ISA
