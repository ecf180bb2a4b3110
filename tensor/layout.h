// The bytes of a loaded matrix: the only place that knows where a value lies. Re-lays a file's rows at load, gives values
// back one row or column at a time (reference speed), copies a selection of units (packing), counts the bytes a selection reads.
//
// Fast types: F32, F16, BF16 and the block types of block_format.h. Other types lie in Rows only, each row as in the file.
//
// Rows: plain and slow types as in the file; fast block types as block_format.h says ("lane = block").
// Columns: plain types one column of R elements after another, R = rows rounded up to 64 (zeros), so that kernels have no row
// tails; block types as column_format.h says.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "tensor/block.h"
#include "tensor/matrix.h"

namespace pop {

constexpr int kLine = 64;  // bytes are counted in cache lines

bool is_fast_block(DType type);  // block_format() has it
bool is_plain(DType type);       // F32, F16, BF16

// Where block `block` of `blocks` stands in "lane = block" order: its chunk holds n blocks from `first` on.
struct BlockPlace {
  int first, n;
};
BlockPlace block_place(int block, int blocks);

// Can `type` lie in Columns? Fast types can. The others stay in Rows; methods that skip columns then read all of them.
bool has_columns_layout(DType type);

int column_block(DType type);          // columns that share a header: 32, 256 for K types, 1 for F32, F16, BF16
size_t matrix_bytes(const Matrix& w);  // of a regular matrix with w's type, layout, rows, cols, unit
size_t unit_bytes(const Matrix& w);    // Rows: bytes of one unit
size_t column_bytes(const Matrix& w);  // Columns: bytes of one column, without the header
size_t header_bytes(const Matrix& w);  // Columns: bytes of one block's header, 0 for plain types
size_t unit_offset(const Matrix& w, int unit);  // bytes from w.data, packed or not
size_t column_offset(const Matrix& w, int column);
size_t header_offset(const Matrix& w, int block);

// Re-lays one file row (GGUF block order, row_bytes(type, cols) bytes) as row `row` of w, whose bytes are at `out`
// (matrix_bytes(w) long, zeroed before the first row). Columns: rows may come in any order, each once.
void write_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out);

// A block of a row of a fast block type in Rows, back from where write_row put it. row: the row's first byte.
Block read_row_block(DType type, const uint8_t* row, int cols, int block);

// Values back, exactly dequantize()'s: out : [cols]. Regular matrices of both layouts.
void read_row(const Matrix& w, int row, float* out);

// A copy of the listed units (Rows) or columns (Columns, with the headers of their blocks) in ascending order, same indices.
// `memory`, 64-byte aligned and pack_bytes() long (whole lines), must outlive the returned view; offsets belong to the caller as well.
struct PackedTables {
  std::vector<uint64_t> offset, header_offset;
};
size_t pack_bytes(const Matrix& w, IndexList keep);
Matrix pack(const Matrix& w, IndexList keep, uint8_t* memory, PackedTables& tables);

// Bytes (w.data 64-byte aligned) a lone decode reads from w for this list: the union of the 64-byte lines of its units or columns and headers.
size_t bytes_read(const Matrix& w, IndexList list);

// Byte ranges [begin, end) from w.data (64-byte aligned), in whole lines, that such a read leaves untouched (for the sanitizer test).
std::vector<std::pair<size_t, size_t>> unread_ranges(const Matrix& w, IndexList list);

}  // namespace pop
