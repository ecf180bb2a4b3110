// The innermost step of axpy_columns on block types: integer sums of a group of columns over a tile of rows.
#pragma once
#include "kernels/x86/axpy_part.h"
#include "kernels/x86/codes.h"

namespace pop::POP_ISA {
namespace {

template <DType T>
constexpr bool kNibbles = block_format(T).low_bits == 4;
// Codes that are nibbles and nothing else: the upper ones stay where they are, their sums count sixteenfold.
template <DType T>
constexpr bool kPlainNibbles = kNibbles<T>&& kHighBits<T> == 0 && !block_format(T).is_table;

}  // namespace
}  // namespace pop::POP_ISA

#ifdef __AVX512F__
#include "kernels/x86/axpy_sums_avx512.h"
#else
#include "kernels/x86/axpy_sums_avx2.h"
#endif
