// How select.cpp builds the tables: each starts as a copy of the next slower one and replaces what it does better.
#pragma once
#include "kernels/kernels.h"

namespace pop {

void fill_scalar_table(KernelTable& table);
#if defined(__x86_64__)
void fill_avx2_table(KernelTable& table);
void fill_avx512_table(KernelTable& table);
void fill_amx_table(KernelTable& table);
void fill_avx512_simde_table(KernelTable& table);  // of the tests only
#elif defined(__aarch64__)
void fill_neon_table(KernelTable& table);
void fill_dotprod_table(KernelTable& table);
#endif

}  // namespace pop
