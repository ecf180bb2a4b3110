// What the sources of one instruction set offer its table; contracts in kernels.h.
#pragma once
#include "kernels/kernels.h"

namespace pop::POP_ISA {

void pack_acts(ActType type, Layout layout, const float* x, int cols, uint8_t* out);
void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy);
void axpy_columns(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                  float* y);
void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy);

void rms_norm(const float* x, const float* weight, int n, float eps, float* out);
void add_to(const float* x, int n, float* y);
void silu_mul(const float* gate_up, IndexList list, int begin, int end, float* h);
void gelu_mul(const float* gate_up, IndexList list, int begin, int end, float* h);
void rope(float* head, int dim, bool interleaved, const float* cos_sin);

void soft_cap(float* x, int n, float cap);
int argmax(const float* x, int n);
void add_squares(const float* x, int n, size_t ldx, int width, double* sums);
void channel_scores(const float* h, const float* norm, IndexList list, float* out);

}  // namespace pop::POP_ISA
