// The scalar table's functions, one contract each in kernels.h. Other tables call them for what they do not speed up, so
// this header declares and defines nothing else.
#pragma once
#include "kernels/kernels.h"

namespace pop::ref {

ActType effective(ActType asked, DType type, Layout layout);
ActType effective_prefill(ActType asked, DType type, Layout layout);
size_t acts_bytes(ActType type, Layout layout, int cols);
void pack_acts(ActType type, Layout layout, const float* x, int cols, uint8_t* out);
void pack_bf16(Layout layout, const float* x, size_t ldx, int n, int cols, uint8_t* out);
void mask_acts(ActType type, Layout layout, int cols, IndexList keep, uint8_t* acts);

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy);
void axpy_columns(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                  float* y);
void gemm_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy);
void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy);

void rms_norm(const float* x, const float* weight, int n, float eps, float* out);
void add(const float* x, int n, float* y);
void silu_mul(const float* gate_up, IndexList list, int begin, int end, float* h);
void gelu_mul(const float* gate_up, IndexList list, int begin, int end, float* h);
void rope(float* head, int dim, bool interleaved, const float* cos_sin);
void store_key(const float* x, int head_dim, KvType type, int position, void* keys);
void store_value(const float* x, int head_dim, KvType type, int position, void* values);
void attention(const AttentionArgs& args);
void attention_merge(const float* parts, size_t stride, const float* tops, const float* totals, size_t step, int count,
                     int head_dim, float* y);

void soft_cap(float* x, int n, float cap);
int argmax(const float* x, int n);
double log_sum_exp(const float* x, int n);
bool all_finite(const float* x, int n);

void add_squares(const float* x, int n, size_t ldx, int width, double* sums);
void abs_scores(const Matrix& w, const float* x, Norm norm, IndexList list, int begin, int end, float* out);
void channel_scores(const float* h, const float* norm, IndexList list, float* out);
int select_scores(const float* x, const float* norm, int n, float tau, int32_t* out);

uint64_t read_lines(const uint8_t* data, size_t lines, int streams, int ahead);
double multiply_adds(ActType type, int rounds);

// Elements first .. first+count of a row in Rows as float32, exactly dequantize()'s; row: the row's bytes, first a
// multiple of 256, count <= 256. Block types take whole blocks.
void unpack_row(DType type, const uint8_t* row, int cols, int first, int count, float* out);

}  // namespace pop::ref
