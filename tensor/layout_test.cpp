#include "tensor/layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "tensor/relayout.h"

namespace pop {
namespace {

struct Case {
  DType type;
  Layout layout;
  int rows, cols, unit;
};

std::string name_of(const Case& c) {
  return fmt::format("{} {} {}x{} unit {}", traits(c.type).name, c.layout == Layout::Rows ? "rows" : "columns", c.rows,
                     c.cols, c.unit);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = DType(t);
    const int step = traits(type).block_elems;
    for (const int rows : {2, 64, 66, 130})
      for (const int blocks : {1, 2, 3, 7, 8, 15, 18, 33, 79}) {
        all.push_back({type, Layout::Rows, rows, blocks * step, 1});
        all.push_back({type, Layout::Rows, rows, blocks * step, 2});
        if (has_columns_layout(type)) all.push_back({type, Layout::Columns, rows, blocks * step, 1});
      }
  }
  return all;
}

// A file's bytes (any bits are a valid block), the loaded matrix, and what dequantize() says its values are.
struct Loaded {
  std::vector<uint8_t> file;
  std::vector<float> values;
  AlignedBuffer memory;
  Matrix w;
};

Loaded load(const Case& c, uint32_t seed) {
  Loaded m;
  const size_t row = row_bytes(c.type, c.cols);
  m.file.resize(row * size_t(c.rows));
  std::mt19937 random(seed);
  for (uint8_t& byte : m.file) byte = uint8_t(random());
  m.values.resize(size_t(c.rows) * size_t(c.cols));
  for (int r = 0; r < c.rows; ++r)
    dequantize(c.type, m.file.data() + size_t(r) * row, m.values.data() + size_t(r) * size_t(c.cols), c.cols);
  m.w = {.type = c.type, .layout = c.layout, .rows = c.rows, .cols = c.cols, .unit = c.unit};
  m.memory = AlignedBuffer(matrix_bytes(m.w));
  m.w.data = m.memory.data();
  for (int r = c.rows - 1; r >= 0; --r) write_row(m.w, r, m.file.data() + size_t(r) * row, m.memory.data());
  return m;
}

bool same(const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (std::memcmp(a + i, b + i, 4) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

std::vector<int32_t> random_list(int count, double keep, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> list;
  for (int i = 0; i < count; ++i)
    if (std::uniform_real_distribution<>(0, 1)(random) < keep) list.push_back(i);
  return list;
}

TEST(Layout, ValuesAreTheFiles) {
  for (const Case& c : cases()) {
    const Loaded m = load(c, 1);
    std::vector<float> row(size_t(c.cols));
    for (int r = 0; r < c.rows; ++r) {
      read_row(m.w, r, row.data());
      ASSERT_TRUE(same(row.data(), m.values.data() + size_t(r) * row.size(), row.size())) << name_of(c) << " row " << r;
    }
  }
}

// Many rows at once give the bytes of one after another, in pieces of any size that begin at a tile.
TEST(Layout, WriteRowsIsWriteRow) {
  for (const Case& c : cases()) {
    const Loaded m = load(c, 2);
    const size_t stride = row_bytes(c.type, c.cols);
    std::vector<const uint8_t*> rows;
    for (int r = 0; r < c.rows; ++r) rows.push_back(m.file.data() + size_t(r) * stride);
    for (const int piece : {64, 192}) {
      AlignedBuffer memory(matrix_bytes(m.w));
      for (int r = 0; r < c.rows; r += piece)
        write_rows(m.w, r, std::span(rows).subspan(size_t(r), size_t(std::min(piece, c.rows - r))), memory.data());
      ASSERT_EQ(std::memcmp(memory.data(), m.memory.data(), memory.size()), 0) << name_of(c) << " by " << piece;
    }
  }
}

// The order the kernels rely on, spelled out once by hand: 10 blocks are a chunk of 8 and one of 2.
TEST(Layout, RowOrderByHand) {
  std::vector<float> x(320);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(int(i / 32 * 16 + i % 32 % 4) - 60);  // block and place show in the code
  x[0] = 127;
  for (size_t b = 0; b < 10; ++b) x[b * 32 + 31] = -127;  // scale 1 for every block
  std::vector<uint8_t> file(row_bytes(DType::Q8_0, 320));
  quantize(DType::Q8_0, x.data(), file.data(), 320);
  Matrix w{.type = DType::Q8_0, .layout = Layout::Rows, .rows = 1, .cols = 320};
  std::vector<uint8_t> out(matrix_bytes(w));
  write_row(w, 0, file.data(), out.data());
  ASSERT_EQ(out.size(), 320u + 20u);
  EXPECT_EQ(int8_t(out[0]), 127);                        // block 0, element 0
  EXPECT_EQ(int8_t(out[1]), -59);                        // block 0, element 1
  EXPECT_EQ(int8_t(out[4]), -44);                        // block 1, element 0
  EXPECT_EQ(int8_t(out[31]), 7 * 16 + 3 - 60);           // block 7, element 3
  EXPECT_EQ(int8_t(out[32]), -60);                       // block 0, element 4
  EXPECT_EQ(int8_t(out[7 * 32 + 4 * 5 + 3]), -127);      // block 5, element 31
  EXPECT_EQ(int8_t(out[256 + 4]), 9 * 16 - 60);          // block 9, element 0
  EXPECT_EQ(int8_t(out[256 + 8 + 1]), 8 * 16 + 1 - 60);  // block 8, element 5
  EXPECT_EQ(out[320] | out[321] << 8, 0x3c00);           // scale 1 as a half
}

// Parts of a group of 33 blocks' rows: 32 blocks with their scales, then the last one with its own.
TEST(Layout, GroupsCarryTheirScales) {
  std::vector<uint8_t> file(row_bytes(DType::Q5_1, 33 * 32));
  for (size_t b = 0; b < 33;
       ++b) {  // scale 256 + b, min 512 + b, codes 31 for element 5 of block 7 and element 17 of the last
    uint8_t* p = file.data() + 24 * b;
    p[0] = uint8_t(b), p[1] = 1, p[2] = uint8_t(b), p[3] = 2;
    if (b == 7) p[4] = 1 << 5, p[8 + 5] = 15;
    if (b == 32) p[6] = 1 << 1, p[8 + 1] = 0xf0;
  }
  Matrix w{.type = DType::Q5_1, .layout = Layout::Rows, .rows = 1, .cols = 33 * 32};
  std::vector<uint8_t> out(matrix_bytes(w)), want(matrix_bytes(w));
  write_row(w, 0, file.data(), out.data());
  want[32 + 4 * 7 + 1] = 15;       // element 5 is word 1 of the low plane's low nibbles, lane 7
  want[512 + 4 * 7 + 1] = 1 << 1;  // bit 1 of the high plane's word of lane 7
  for (size_t b = 0; b < 32; ++b) {
    want[640 + 2 * b] = want[704 + 2 * b] = uint8_t(b);
    want[641 + 2 * b] = 1, want[705 + 2 * b] = 2;
  }
  want[768 + 1] = 0xf0;  // the last block alone: element 17 is in the high nibble of byte 1
  want[768 + 16 + 1] = 1 << 4;
  want[768 + 20] = want[768 + 22] = 32;
  want[768 + 21] = 1, want[768 + 23] = 2;
  EXPECT_EQ(out, want);
}

TEST(Layout, ChunksAreBinaryDigits) {
  const int expected[15][2] = {{0, 8}, {0, 8}, {0, 8}, {0, 8}, {0, 8},  {0, 8},  {0, 8}, {0, 8},
                               {8, 4}, {8, 4}, {8, 4}, {8, 4}, {12, 2}, {12, 2}, {14, 1}};
  for (int b = 0; b < 15; ++b) {
    EXPECT_EQ(block_place(b, 15).first, expected[b][0]) << b;
    EXPECT_EQ(block_place(b, 15).n, expected[b][1]) << b;
  }
  EXPECT_EQ(block_place(0, 1).n, 1);
  EXPECT_EQ(block_place(2, 3).first, 2);
}

// A packed copy holds the same bytes, contiguous, under the same indices.
TEST(Layout, PackCopiesWhatIsListed) {
  for (const Case& c : cases()) {
    const Loaded m = load(c, 2);
    const int units = c.layout == Layout::Rows ? c.rows / c.unit : c.cols;
    const std::vector<int32_t> keep = random_list(units, 0.4, 3);
    const IndexList list{keep.data(), int(keep.size())};
    AlignedBuffer memory(pack_bytes(m.w, list));
    PackedTables tables;
    const Matrix packed = pack(m.w, list, memory.data(), tables);
    size_t held = 0;
    int last_block = -1;
    for (const int32_t u : keep) {
      const size_t bytes = c.layout == Layout::Rows ? unit_bytes(m.w) : column_bytes(m.w);
      const auto at = [&](const Matrix& w) {
        return w.data + (c.layout == Layout::Rows ? unit_offset(w, u) : column_offset(w, u));
      };
      ASSERT_EQ(std::memcmp(at(packed), at(m.w), bytes), 0) << name_of(c) << " index " << u;
      held += bytes;
      if (c.layout == Layout::Rows || header_bytes(m.w) == 0 || u / column_block(c.type) == last_block) continue;
      last_block = u / column_block(c.type);
      held += header_bytes(m.w);
      ASSERT_EQ(std::memcmp(packed.data + header_offset(packed, last_block), m.w.data + header_offset(m.w, last_block),
                            header_bytes(m.w)),
                0);
    }
    EXPECT_EQ(packed.packed_bytes, held);
    EXPECT_EQ(bytes_read(packed, list), (held + 63) / 64 * 64) << name_of(c);  // contiguous: no line is half used
    EXPECT_TRUE(unread_ranges(packed, list).empty());
  }
}

// Counted against a plain bitmap of touched lines.
TEST(Layout, BytesReadAreTouchedLines) {
  for (const Case& c : cases()) {
    const Loaded m = load(c, 4);
    const int units = c.layout == Layout::Rows ? c.rows / c.unit : c.cols;
    for (const double share : {0.0, 0.1, 0.5, 1.0}) {
      const std::vector<int32_t> keep = random_list(units, share, 5);
      const IndexList list{keep.data(), int(keep.size())};
      std::vector<bool> touched((matrix_bytes(m.w) + 63) / 64);
      const auto touch = [&](size_t first, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) touched[(first + i) / 64] = true;
      };
      for (const int32_t u : keep) {
        if (c.layout == Layout::Rows) {
          touch(unit_offset(m.w, u), unit_bytes(m.w));
        } else {
          touch(column_offset(m.w, u), column_bytes(m.w));
          if (header_bytes(m.w) != 0) touch(header_offset(m.w, u / column_block(c.type)), header_bytes(m.w));
        }
      }
      size_t lines = 0;
      for (const bool t : touched) lines += t;
      ASSERT_EQ(bytes_read(m.w, list), lines * 64) << name_of(c);
      std::vector<bool> unread(touched.size());
      for (const auto& [begin, end] : unread_ranges(m.w, list))
        for (size_t b = begin; b < end; b += 64) unread[b / 64] = true;
      for (size_t i = 0; i < touched.size(); ++i) ASSERT_NE(unread[i], touched[i]) << name_of(c) << " line " << i;
    }
    EXPECT_EQ(bytes_read(m.w, {nullptr, units}), (matrix_bytes(m.w) + 63) / 64 * 64);
  }
}

TEST(Layout, ColumnsOfOtherTypesAreRefused) {
  Matrix w{.type = DType::Q2_K, .layout = Layout::Columns, .rows = 64, .cols = 256};
  std::vector<uint8_t> row(row_bytes(DType::Q2_K, 256)), out(1 << 20);
  EXPECT_THROW(write_row(w, 0, row.data(), out.data()), Error);
}

}  // namespace
}  // namespace pop
