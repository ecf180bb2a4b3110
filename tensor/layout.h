// The bytes of a loaded matrix: the only place that knows where a value lies. Re-lays a file's rows at load, gives values
// back one row or column at a time (reference speed), copies a selection of units (packing), counts the bytes a selection reads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "tensor/matrix.h"

namespace pop {

constexpr int kLine = 64;  // bytes are counted in cache lines

// Can `type` lie in Columns? (Rows: every type.) Types that cannot stay in Rows; methods that skip columns then read all of them.
bool has_columns_layout(DType type);

int column_block(DType type);             // columns that share scales: 32 for block types, 1 for F32, F16, BF16
size_t matrix_bytes(const Matrix& w);     // of a regular matrix with w's type, layout, rows, cols, unit
size_t unit_bytes(const Matrix& w);       // Rows: bytes of one unit
size_t column_bytes(const Matrix& w);     // Columns: bytes of one column, without the header
size_t header_bytes(const Matrix& w);     // Columns: bytes of one block's header, 0 for plain types
size_t unit_offset(const Matrix& w, int unit);      // bytes from w.data, packed or not
size_t column_offset(const Matrix& w, int column);
size_t header_offset(const Matrix& w, int block);

// Re-lays one file row (GGUF block order, row_bytes(type, cols) bytes) as row `row` of w, whose bytes are at `out`
// (matrix_bytes(w) long, zeroed before the first row). Columns: rows may come in any order, each once.
void write_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out);

// Values back, exactly dequantize()'s: out : [cols]. Regular matrices of both layouts.
void read_row(const Matrix& w, int row, float* out);

// A copy of the listed units (Rows) or columns (Columns, with the headers of their blocks) in ascending order, same indices.
// `memory` must outlive the returned view and is grown if too small; offsets belong to the caller as well.
struct PackedTables {
  std::vector<uint64_t> offset, header_offset;
};
Matrix pack(const Matrix& w, IndexList keep, AlignedBuffer& memory, PackedTables& tables);

// Bytes a lone decode reads from w for this list: the union of the 64-byte lines of its units or columns and headers.
size_t bytes_read(const Matrix& w, IndexList list);

// Byte ranges [begin, end) from w.data, in whole lines, that such a read leaves untouched (for the sanitizer test).
std::vector<std::pair<size_t, size_t>> unread_ranges(const Matrix& w, IndexList list);

}  // namespace pop
