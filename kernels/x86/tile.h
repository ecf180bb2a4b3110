// Prefill: 16 rows of W, a stretch of columns, unpacked once for all rows of x into a tile whose vectors hold one column (or
// four neighbouring ones, as bytes) of the 16 rows. Sums then need no shuffles: a lane is an output.
#pragma once
#include "kernels/x86/columns.h"

namespace pop::POP_ISA {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileBlocks = 8;               // blocks of 32 columns in a tile: 8 KB of codes, well inside L1 beside x
constexpr int kTileCols = kTileBlocks * 32;  // of a float tile: 16 KB

// 32-bit word of x: the codes of columns 4s .. 4s+3 of block b stand at first[b] + s * step[b].
struct CodePlaces {
  uint32_t first[kTileBlocks], step[kTileBlocks];
};

struct IntegerTile {
  alignas(
      64) uint8_t codes[kTileBlocks * 8 * kTileRows * 4];  // [block][s][row][4 columns]; signed ones biased if kBiased
  alignas(64) float scales[kTileBlocks * 2 * kTileRows];   // [block][half, if they have one each][row]
  alignas(64) float mins[kTileBlocks * kTileRows];         // [block][row]
  CodePlaces places;
};

struct FloatTile {
  alignas(64) float values[kTileCols * kTileRows];  // [column][row]
};

#ifdef __AVX512F__
constexpr bool kBiased = true;  // vpdpbusd wants unsigned codes
#else
constexpr bool kBiased = false;
#endif

// Eight rows of eight 32-bit words to eight columns.
POP_INLINE void transpose8(const __m256i* r, __m256i* c) {
  __m256i t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 2; ++k) {
      u[4 * i + 2 * k] = _mm256_unpacklo_epi64(t[4 * i + k], t[4 * i + 2 + k]);
      u[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(t[4 * i + k], t[4 * i + 2 + k]);
    }
  for (int i = 0; i < 4; ++i) {
    c[i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x20);
    c[4 + i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x31);
  }
}

POP_INLINE __m256i bias(__m256i codes) { return kBiased ? _mm256_xor_si256(codes, _mm256_set1_epi8(-128)) : codes; }

POP_INLINE void store256(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
POP_INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// A chunk of 8 blocks of 16 rows; codes: byte of the chunk in each row.
template <DType T>
void unpack_chunk8(const uint8_t* const* rows, size_t codes, uint8_t* out) {
  constexpr int kPieces = kFourBit<T> ? 4 : 8;
  for (int half = 0; half < 2; ++half)
    for (int piece = 0; piece < kPieces; ++piece) {
      __m256i r[8], c[8];
      for (int i = 0; i < 8; ++i) r[i] = load256(rows[8 * half + i] + codes + 32 * piece);
      transpose8(r, c);
      for (int b = 0; b < 8; ++b) {
        uint8_t* to = out + (b * 8 + piece) * 64 + 32 * half;
        if constexpr (kFourBit<T>) {
          store256(to, _mm256_and_si256(c[b], _mm256_set1_epi8(15)));
          store256(to + 4 * 64, _mm256_and_si256(_mm256_srli_epi16(c[b], 4), _mm256_set1_epi8(15)));
        } else {
          store256(to, bias(c[b]));
        }
      }
    }
}

// The last 1, 2 or 4 blocks of a row: word by word.
template <DType T>
void unpack_chunk(const uint8_t* const* rows, size_t codes, int n, uint8_t* out) {
  for (int row = 0; row < kTileRows; ++row)
    for (int piece = 0; piece < (kFourBit<T> ? 4 : 8); ++piece)
      for (int b = 0; b < n; ++b) {
        uint32_t word;
        __builtin_memcpy(&word, rows[row] + codes + 4 * (piece * n + b), 4);
        uint8_t* to = out + (b * 8 + piece) * 64 + 4 * row;
        const uint32_t low = kFourBit<T> ? word & 0x0f0f0f0fu : kBiased ? word ^ 0x80808080u : word;
        const uint32_t high = word >> 4 & 0x0f0f0f0fu;
        __builtin_memcpy(to, &low, 4);
        if constexpr (kFourBit<T>) __builtin_memcpy(to + 4 * 64, &high, 4);
      }
}

POP_INLINE void unpack_halves(const uint8_t* const* rows, size_t byte, int blocks, float* out) {
  for (int row = 0; row < kTileRows; ++row)
    for (int b = 0; b < blocks; ++b) out[b * kTileRows + row] = half(rows[row] + byte + 2 * size_t(b));
}

// Blocks first .. first + count of 16 rows in Rows; first is a multiple of 8.
template <DType T>
void unpack_tile(const uint8_t* const* rows, int cols, int first, int count, IntegerTile& tile) {
  const int blocks = cols / 32;
  const GroupPlace group = group_place(block_format(T), first, blocks);
  for (int b = first; b < first + count;) {
    const int n = chunk_at(b, blocks);
    const size_t codes = group.low + size_t(b - group.first) * kCodeBytes<T>;
    uint8_t* out = tile.codes + (b - first) * 8 * 64;
    if (n == 8) {
      unpack_chunk8<T>(rows, codes, out);
    } else {
      unpack_chunk<T>(rows, codes, n, out);
    }
    for (int lane = 0; lane < n; ++lane) {
      tile.places.first[b - first + lane] = uint32_t(b * 32 + 4 * lane);
      tile.places.step[b - first + lane] = uint32_t(4 * n);
    }
    b += n;
  }
  const size_t scales = group.scales + 2 * size_t(first - group.first);
  unpack_halves(rows, scales, count, tile.scales);
  if constexpr (T == DType::Q4_1) unpack_halves(rows, scales + 2 * size_t(group.n), count, tile.mins);
}

// Blocks first .. first + count of rows row .. row + 15 in Columns.
template <DType T>
void unpack_tile_columns(const Matrix& w, int row, int first, int count, IntegerTile& tile) {
  const ColumnShape shape = shape_of<T>(w);
  for (int b = 0; b < count; ++b) {
    const int block = (first + b) * kBlockElems;
    const uint8_t* header = header_of(shape, block);
    const auto codes = [&](int column) __attribute__((always_inline)) {
      const __m128i v = column_codes<T>(column_of(shape, header, block + column), row, size_t(shape.padded_rows));
      return kSignedCodes<T> && kBiased ? _mm_xor_si128(v, _mm_set1_epi8(-128)) : v;
    };
    for (int s = 0; s < 8; ++s) {
      const __m128i c0 = codes(4 * s), c1 = codes(4 * s + 1), c2 = codes(4 * s + 2), c3 = codes(4 * s + 3);
      const __m128i a0 = _mm_unpacklo_epi8(c0, c1), a1 = _mm_unpackhi_epi8(c0, c1);
      const __m128i b0 = _mm_unpacklo_epi8(c2, c3), b1 = _mm_unpackhi_epi8(c2, c3);
      uint8_t* out = tile.codes + (b * 8 + s) * 64;
      store256(out, _mm256_set_m128i(_mm_unpackhi_epi16(a0, b0), _mm_unpacklo_epi16(a0, b0)));
      store256(out + 32, _mm256_set_m128i(_mm_unpackhi_epi16(a1, b1), _mm_unpacklo_epi16(a1, b1)));
    }
    for (int h = 0; h < kHalves<T>; ++h)
      for (int i = 0; i < kTileRows; i += kLanes) {
        const RowScales scales = row_scales<T>(header, block + 16 * h, row + i, shape.padded_rows);
        store(tile.scales + (b * kHalves<T> + h) * kTileRows + i, scales.scale);
        if constexpr (has_mins(block_format(T).scales)) store(tile.mins + b * kTileRows + i, scales.min);
      }
    tile.places.first[b] = uint32_t(block);
    tile.places.step[b] = 4;
  }
}

// Columns first .. first + count of 16 rows in Rows, any type; first is a multiple of 256.
[[maybe_unused]] void unpack_tile(DType type, const uint8_t* const* rows, int cols, int first, int count,
                                  FloatTile& tile) {
  alignas(64) float values[8][kTileCols];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 8; ++i) unpack_row(type, rows[8 * half + i], cols, first, count, values[i]);
    for (int k = 0; k < count; k += 8) {  // reads stale values past count, which nobody uses
      __m256i r[8], c[8];
      for (int i = 0; i < 8; ++i) r[i] = load256(values[i] + k);
      transpose8(r, c);
      for (int i = 0; i < 8 && k + i < count; ++i) store256(tile.values + (k + i) * kTileRows + 8 * half, c[i]);
    }
  }
}

}  // namespace
}  // namespace pop::POP_ISA
