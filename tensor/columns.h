// Single weights of a matrix in Columns (column_format.h), regular or packed: at reference speed.
#pragma once
#include "tensor/block.h"
#include "tensor/matrix.h"

namespace pop {

// Row `row` from a file's row (see write_row in layout.h); reads it back.
void write_column_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out);
void read_column_row(const Matrix& w, int row, float* out);

// Of a block type: the scales of the block of 32 columns that `column` is in (its codes stay 0), and one code; header, bytes:
// where the column's header and the column itself begin.
Block column_scales(const Matrix& w, const uint8_t* header, int column, int row);
uint8_t column_code(const Matrix& w, const uint8_t* bytes, int row);

}  // namespace pop
