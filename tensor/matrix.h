// A loaded weight matrix: which values, how they lie in memory, where a unit that can be skipped begins.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace pop {

// How y = W x, W : [rows (outputs), cols (inputs)], lies in memory.
//   Rows     one output row after another; units of `unit` rows can be skipped (FFN channels of gate_proj and up_proj).
//   Columns  input-major: one input column after another, so that an input channel can be skipped. In block types the
//            scales of `block` neighbouring columns are shared; they stand before the columns as the block's header.
enum class Layout : uint8_t { Rows, Columns };

// A view; the bytes belong to a model (or to a packed copy made for one sequence). Values are exactly the file's.
// Byte positions inside a row or a column are defined in layout.h, the one place that writes and reads them.
struct Matrix {
  DType type = DType::F32;
  Layout layout = Layout::Rows;
  int rows = 0, cols = 0;
  int unit = 1;  // Rows: rows per unit; 2 when row 2i is gate_proj's row i and row 2i+1 is up_proj's
  const uint8_t* data = nullptr;

  // Regular matrices: null. A packed copy holds a part of the units (Rows) or columns (Columns) in ascending order;
  // indices stay those of the whole matrix, these tables say where they begin (bytes from data).
  const uint64_t* offset = nullptr;         // Rows: [rows / unit]; Columns: [cols]; meaningful only for what is held
  const uint64_t* header_offset = nullptr;  // Columns, block types: [cols / block]
  size_t packed_bytes = 0;                  // of the packed copy
};

// A list of unit or column indices, ascending. index == nullptr: 0 .. count-1 (everything, read in order).
struct IndexList {
  const int32_t* index = nullptr;
  int count = 0;
  int operator[](int i) const { return index != nullptr ? index[i] : i; }
};

}  // namespace pop
