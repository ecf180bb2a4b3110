// Prefill on AMX: bfloat16 tiles of 16 x 32, float32 sums. Weights are unpacked once for up to kTokens rows of x. W in Rows is
// the left factor, as it lies; W in Columns the right one, as it lies (two columns interleaved); x is prepared for that (acts.h).
//
// Order of additions of one output: from zero, the tile product's own order over ascending columns. Nothing else decides, so
// neither the number of rows of x nor any cut changes it.
#include "kernels/acts.h"
#include "kernels/ref/ref.h"
#include "kernels/tables.h"
#include "kernels/x86/bf16_blocks.h"
#include "kernels/x86/bf16_columns.h"

namespace pop::avx512 {
void gemm_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy);
void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy);
}  // namespace pop::avx512

namespace pop::POP_ISA {
namespace {

constexpr int kTile = 16;                   // rows, and outputs, of a tile
constexpr int kBand = 32;                   // rows of W at once: two tiles
constexpr int kPart = 256;                  // columns of a band in L1, while the next ones are unpacked
constexpr int kWhole = 768;                 // or all of them, if they are so few: their sums stay in tiles
constexpr int kSlab = 1024;                 // columns of x that stay in L2 for a block of rows of W
constexpr int kBlock = 256, kTokens = 256;  // rows of W, and of x, whose sums stay in L2
constexpr size_t kBandBytes = 2 * kWhole / kStep * kTileBytes;
constexpr size_t kSums = kTile * kTile;

struct Memory {
  alignas(64) uint8_t weights[2][kBandBytes];                          // [tile of 16 rows][step]
  alignas(64) float sums[kBlock / kBand][kTokens / kTile][2 * kSums];  // [band][group of x][tile of W]
};

// The compilers' tile intrinsics do not say that they read and write memory.
POP_INLINE void memory_barrier() { asm volatile("" ::: "memory"); }

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tile registers belong to this thread while it lives; afterwards the system need not save them.
struct Tiles {
  Tiles() {
    const TileConfig config;
    memory_barrier();
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// A stretch of columns of a band.
struct Piece {
  int band = 0, slab = 0, first = 0, count = 0;
};

// Prefetches to L2 what `ahead` says: a band is unpacked long before its rows would be found by the hardware.
POP_INLINE void prefetch_range(const uint8_t* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) asm volatile("prefetcht1 %0" ::"m"(from[i]));
}

// Unpacks the rows of a block in Rows: a unit of work is a row of a band.
struct RowSource {
  const Matrix& w;
  UnpackRow unpack;
  size_t block_elems, block_bytes;
  int bands;
  const uint8_t* row[kBlock];
  int units(const Piece&) const { return kBand; }
  POP_INLINE void run(const RowSource& s, const Piece& p, int i, uint8_t* out) {
    const uint8_t* row = s.row[p.band * kBand + i];
    s.unpack(s.w.type, row, s.w.cols, p.first, p.count,
             out + size_t(i / kTile) * kBandBytes / 2 + 64 * size_t(i % kTile));
    // The same part of the next band, or of the first one's next slab.
    const bool last = p.band + 1 == s.bands;
    const size_t first = size_t(p.first + (last ? kSlab : 0)) / s.block_elems * s.block_bytes;
    if (last && p.first + kSlab >= s.w.cols) return;
    prefetch_range(s.row[last ? i : (p.band + 1) * kBand + i] + first, size_t(p.count) / s.block_elems * s.block_bytes);
  }
};

// Unpacks the rows of a block in Columns: a unit of work is a tile.
struct ColumnSource {
  const Matrix& w;
  UnpackColumns unpack;
  int row;  // first of the block
  int units(const Piece& p) const { return 2 * ((p.count + kStep - 1) / kStep); }
  POP_INLINE void run(const ColumnSource& s, const Piece& p, int i, uint8_t* out) {
    const int k = i / 2 * kStep;
    s.unpack(s.w, s.row + p.band * kBand + i % 2 * kTile, p.first + k, p.count - k < kStep ? p.count - k : kStep,
             out + size_t(i % 2) * kBandBytes / 2 + size_t(i / 2) * kTileBytes);
  }
};

// The unpacking of the next piece, a unit at a time between the tile products of this one: the two use different parts of
// the CPU.
template <class Source>
struct Ahead {
  const Source& source;
  Piece piece;
  uint8_t* out;
  int next, units;
  POP_INLINE void step(Ahead& a) {
    if (a.next < a.units) Source::run(a.source, a.piece, a.next++, a.out);
  }
};

// Groups x0 and, if Pair, x1 of x with a piece of a band; W is the left factor (Rows) or the right one.
template <bool Left, bool Pair, class Source>
POP_INLINE void add_groups(const uint8_t* w, int steps, const uint8_t* x0, const uint8_t* x1, bool fresh, float* sums,
                           Ahead<Source>& ahead) {
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + kSums, 64);
    if constexpr (Pair) {
      _tile_loadd(2, sums + 2 * kSums, 64);
      _tile_loadd(3, sums + 3 * kSums, 64);
    }
  }
  for (size_t at = 0; at < size_t(steps) * kTileBytes; at += kTileBytes) {
    _tile_loadd(4, w + at, 64);
    _tile_loadd(5, w + at + kBandBytes / 2, 64);
    _tile_loadd(6, x0 + at, 64);
    if constexpr (Pair) _tile_loadd(7, x1 + at, 64);
    if constexpr (Left) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (Pair) {
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    } else {
      _tile_dpbf16ps(0, 6, 4);
      _tile_dpbf16ps(1, 6, 5);
      if constexpr (Pair) {
        _tile_dpbf16ps(2, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
      }
    }
    Ahead<Source>::step(ahead);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kSums, 64);
  if constexpr (Pair) {
    _tile_stored(2, sums + 2 * kSums, 64);
    _tile_stored(3, sums + 3 * kSums, 64);
  }
}

// Where the outputs of a block go: side by side, or through a list of places.
struct Places {
  size_t place[kBlock];
  int rows;
  bool together;
};

POP_INLINE void put(VF v, float* y, const Places& to, int row) {
  const int n = to.rows - row < kTile ? to.rows - row : kTile;
  const size_t* place = to.place + row;
  if (to.together) return n == kTile ? store(y + to.place[0] + row, v) : store_first(y + to.place[0] + row, n, v);
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (int i = 0; i < n; ++i) y[place[i]] = lanes[i];
}

// The finished sums of rows [first, end) of x.
template <bool Left>
void put_sums(const Memory& memory, int first, int end, const Places& to, float* y, size_t ldy) {
  for (int r = first; r < end; r += kTile)
    for (int row = 0; row < to.rows; row += kTile) {
      const float* sums = memory.sums[row / kBand][(r - first) / kTile] + row % kBand / kTile * kSums;
      __m512i v[kTile], turned[kTile];
      for (int i = 0; i < kTile; ++i) v[i] = load512(sums + i * kTile);
      if constexpr (Left) transpose16(v, turned);
      const int rows = end - r < kTile ? end - r : kTile;
#pragma GCC unroll 16
      for (int i = 0; i < kTile; ++i)
        if (i < rows) put(_mm512_castsi512_ps(Left ? turned[i] : v[i]), y + size_t(r + i) * ldy, to, row);
    }
}

POP_INLINE int part_at(int first, int cols) {
  return cols <= kWhole ? cols : cols - first < kPart ? cols - first : kPart;
}

// The piece after p: parts of a slab, bands, slabs. False at the end.
POP_INLINE bool advance(Piece& p, int bands, int cols) {
  p.first += p.count;
  if (p.first >= p.slab + kSlab || p.first >= cols) {
    if (++p.band == bands) {
      p.band = 0;
      p.slab += kSlab;
      if (p.slab >= cols) return false;
    }
    p.first = p.slab;
  }
  p.count = part_at(p.first, cols);
  return true;
}

// A block of rows of W times rows [first, end) of x.
template <bool Left, class Source>
void multiply_block(Memory& memory, const Source& source, const Acts& x, int first, int end, const Places& to, float* y,
                    size_t ldy) {
  const int bands = (to.rows + kBand - 1) / kBand;
  const size_t far = kTile * x.stride;
  Piece now{0, 0, 0, part_at(0, x.cols)};
  for (int i = 0; i < source.units(now); ++i) Source::run(source, now, i, memory.weights[0]);
  for (int buffer = 0;; buffer ^= 1) {
    Piece next = now;
    const bool more = advance(next, bands, x.cols);
    Ahead<Source> ahead{source, next, memory.weights[buffer ^ 1], 0, more ? source.units(next) : 0};
    memory_barrier();
    const int steps = (now.count + kStep - 1) / kStep;
    const uint8_t *w = memory.weights[buffer],
                  *group = x.data + size_t(first) * x.stride + size_t(now.first / kStep) * kTileBytes;
    float* sums = memory.sums[now.band][0];
    int r = first;
    for (; r + kTile < end; r += 2 * kTile, group += 2 * far, sums += 4 * kSums)
      add_groups<Left, true>(w, steps, group, group + far, now.first == 0, sums, ahead);
    if (r < end) add_groups<Left, false>(w, steps, group, group, now.first == 0, sums, ahead);
    while (ahead.next < ahead.units) Ahead<Source>::step(ahead);
    memory_barrier();
    if (!more) break;
    now = next;
  }
  put_sums<Left>(memory, first, end, to, y, ldy);
}

// Rows of W from `row` on, numbered along the list; a band is filled up with the last one, which is not stored again.
void take_rows(const Matrix& w, IndexList list, int row, int end, const uint8_t** rows, Places& to) {
  const size_t bytes = row_bytes(w.type, w.cols);
  to.rows = end - row < kBlock ? end - row : kBlock;
  for (int i = 0; i < (to.rows + kBand - 1) / kBand * kBand; ++i) {
    const int n = row + (i < to.rows ? i : to.rows - 1), unit = at(list, n / w.unit);
    const size_t offset = w.offset != nullptr ? w.offset[unit] : size_t(unit) * size_t(w.unit) * bytes;
    rows[i] = w.data + offset + size_t(n % w.unit) * bytes;
    to.place[i] = size_t(unit) * size_t(w.unit) + size_t(n % w.unit);
  }
  to.together = to.place[to.rows - 1] - to.place[0] == size_t(to.rows - 1);
}

void units_bf16(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const Tiles tiles;
  Memory memory;
  Places to;
  const DTypeTraits& type = traits(w.type);
  RowSource source{w, unpack_bf16_of(w.type), size_t(type.block_elems), size_t(type.block_bytes), 0, {}};
  for (int row = begin * w.unit; row < end * w.unit; row += kBlock) {
    take_rows(w, list, row, end * w.unit, source.row, to);
    source.bands = (to.rows + kBand - 1) / kBand;
    for (int first = 0; first < x.n; first += kTokens)
      multiply_block<true>(memory, source, x, first, x.n - first < kTokens ? x.n : first + kTokens, to, y, ldy);
  }
}

void columns_bf16(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  const Tiles tiles;
  Memory memory;
  Places to;
  to.together = true;
  for (int row = row0; row < row1; row += kBlock) {
    to.rows = row1 - row < kBlock ? row1 - row : kBlock;
    to.place[0] = size_t(row);
    const ColumnSource source{w, unpack_columns_of(w.type), row};
    for (int first = 0; first < x.n; first += kTokens)
      multiply_block<false>(memory, source, x, first, x.n - first < kTokens ? x.n : first + kTokens, to, y, ldy);
  }
}

void pack_group(Layout layout, const float* x, size_t ldx, int n, int cols, uint8_t* out) {
  for (int k = 0; k < cols; k += kStep, out += kTileBytes) {
    const int count = cols - k < kStep ? cols - k : kStep;
    __m512i rows[kTile], words[kTile];
    for (int r = 0; r < kTile; ++r) {
      const float* p = x + size_t(r) * ldx + k;
      if (r >= n) {
        rows[r] = _mm512_setzero_si512();
      } else if (count == kStep) {
        rows[r] = to_bf16(load(p), load(p + kLanes));
      } else {
        const int left = count < kLanes ? count : kLanes;
        rows[r] = to_bf16(load_first(p, left), load_first(p + left, count - left));
      }
    }
    if (layout == Layout::Rows) transpose16(rows, words);
    for (int r = 0; r < kTile; ++r) store512(out + 64 * r, layout == Layout::Rows ? words[r] : rows[r]);
  }
}

}  // namespace

static void gemm_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  (x.type == ActType::BF16 ? units_bf16 : avx512::gemm_units)(w, x, list, begin, end, y, ldy);
}
static void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  (x.type == ActType::BF16 ? columns_bf16 : avx512::gemm_columns)(w, x, row0, row1, y, ldy);
}
}  // namespace pop::POP_ISA

namespace pop {

void fill_amx_table(KernelTable& t) {
  t.name = "amx";
  t.effective_prefill = ref::effective_prefill;
  t.pack_bf16 = amx::pack_group;
  t.gemm_units = amx::gemm_units;
  t.gemm_columns = amx::gemm_columns;
}

}  // namespace pop
