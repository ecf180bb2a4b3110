// Single weights of a matrix in Columns (column_format.h), regular or packed: at reference speed.
#pragma once
#include "tensor/block.h"
#include "tensor/matrix.h"

namespace pop {

// Row `row` from a file's row (see write_row in layout.h); reads it back.
void write_column_row(const Matrix& w, int row, const uint8_t* file_row, uint8_t* out);
void read_column_row(const Matrix& w, int row, float* out);

// At most 32 columns from a multiple of 32 on, for who reads every row of them: a column's cache lines serve many rows, and those
// of all columns of a matrix fit no cache.
class ColumnPart {
 public:
  ColumnPart(const Matrix& w, int begin);
  int count() const { return count_; }
  void read(int row, float* out) const;  // out: [count()]

 private:
  const Matrix& w_;
  int begin_, count_;
  bool plain_;
  size_t high_plane_ = 0;
  const uint8_t* header_ = nullptr;
  const uint8_t* columns_[kBlockElems];
};

// Of a block type: the scales of the block of 32 columns that `column` is in (its codes stay 0), and one code; header, bytes:
// where the column's header and the column itself begin.
Block column_scales(const Matrix& w, const uint8_t* header, int column, int row);
uint8_t column_code(const Matrix& w, const uint8_t* bytes, int row);

}  // namespace pop
