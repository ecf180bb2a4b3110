// Many rows at once: what write_row() does, at the speed of memory. write_row stays the definition of every layout, a test
// holds each type's bytes to it; a type or layout without a fast path here goes through it.
#pragma once
#include <cstdint>
#include <span>

#include "tensor/matrix.h"

namespace pop {

// Re-lays `file_rows` (each row_bytes(type, cols) bytes of the file, of any alignment) as rows first, first + 1, ... of w,
// whose bytes are at `out`, zeroed before the first row. Columns: calls that share no group of kRowTile rows of w may run at once.
void write_rows(const Matrix& w, int first, std::span<const uint8_t* const> file_rows, uint8_t* out);

}  // namespace pop
