// Weight products. The float and integer forms of one row follow the words of kernels.h as plainly as they can.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "kernels/acts.h"
#include "kernels/ref/ref.h"
#include "tensor/columns.h"
#include "tensor/layout.h"

namespace pop::ref {
namespace {

// The codes of x for elements 4s .. 4s+3 of a block in Rows, joined.
void x_words(const ActsView& x, BlockPlace chunk, int block, int s, int32_t* out) {
  const size_t at = size_t(chunk.first) * 32 + size_t(4 * (s * chunk.n + block - chunk.first));
  for (size_t i = 0; i < 4; ++i) out[i] = x.low[at + i] + (x.high != nullptr ? kHighStep * x.high[at + i] : 0);
}

// One term per scale: float(integer sum) * (weight scale * x scale), then min * scaled sum of x.
float dot_integer(DType type, const uint8_t* row, const ActsView& x, int cols) {
  const BlockFormat format = block_format(type);
  const int blocks = cols / kBlockElems;
  float y = 0;
  for (int b = 0; b < blocks; ++b) {
    const Block block = read_row_block(type, row, cols, b);
    const BlockPlace chunk = block_place(b, blocks);
    int16_t w[kBlockElems];
    block_integers(type, block, w);
    int32_t sum[2] = {}, q[4];
    for (int s = 0; s < 8; ++s) {
      x_words(x, chunk, b, s, q);
      for (int i = 0; i < 4; ++i) sum[s / 4] += w[4 * s + i] * q[i];
    }
    const BlockScales scales = block_scales(type, block);
    if (format.scales == ScaleForm::Byte16) {
      for (int i = 0; i < 2; ++i) y += float(sum[i]) * (scales.scale[i] * x.scale[b]);
    } else {
      y += float(sum[0] + sum[1]) * (scales.scale[0] * x.scale[b]);
    }
    if (has_mins(format.scales)) y += scales.min * x.scaled_sum[b];
  }
  return y;
}

float dot_float(DType type, const uint8_t* row, const float* x, int cols) {
  float w[256], y = 0;
  for (int k = 0; k < cols; k += 256) {
    const int count = std::min(256, cols - k);
    unpack_row(type, row, cols, k, count, w);
    for (int i = 0; i < count; ++i) y += w[i] * x[k + i];
  }
  return y;
}

float plain_at(DType type, const uint8_t* p, size_t i) {
  if (type == DType::F32) {
    float v;
    std::memcpy(&v, p + 4 * i, 4);
    return v;
  }
  uint16_t h;
  std::memcpy(&h, p + 2 * i, 2);
  return type == DType::F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

// The columns list[i .. end) of one block of 32, rows [row0, row1).
void axpy_block(const Matrix& w, const Acts& x, int r, IndexList list, int i, int end, int row0, int row1, float* y) {
  const BlockFormat f = block_format(w.type);
  const bool integer = x.type == ActType::I8 || x.type == ActType::I16;
  const float* xf = reinterpret_cast<const float*>(x.row(r));
  const ActsView a = integer ? acts_view(x.type, x.cols, x.row(r)) : ActsView{};
  const int block = list[i] / kBlockElems;
  const uint8_t* header = w.data + header_offset(w, list[i] / column_block(w.type));
  const uint8_t* columns[kBlockElems] = {};
  int q[kBlockElems] = {}, sum = 0;
  for (int k = i; k < end; ++k) {
    const int c = list[k];
    columns[k - i] = w.data + column_offset(w, c);
    if (integer) sum += q[k - i] = a.low[c] + (a.high != nullptr ? kHighStep * a.high[c] : 0);
  }
  for (int row = row0; row < row1; ++row) {
    const BlockScales scales = block_scales(w.type, column_scales(w, header, list[i], row));
    int total[2] = {};
    for (int k = i; k < end; ++k) {
      const int half = list[k] % kBlockElems / 16, code = code_integer(w.type, column_code(w, columns[k - i], row));
      total[half] += q[k - i] * code;
      if (integer) continue;
      const float v = float(code) * scales.scale[half];
      y[row] += xf[list[k]] * (has_mins(f.scales) ? v + scales.min : v);
    }
    if (!integer) continue;
    if (f.scales != ScaleForm::Byte16) total[0] += total[1], total[1] = 0;
    for (int half = 0; half < (f.scales == ScaleForm::Byte16 ? 2 : 1); ++half)
      y[row] += float(total[half]) * (scales.scale[half] * a.scale[block]);
    if (has_mins(f.scales)) y[row] += scales.min * (a.scale[block] * float(sum));
  }
}

// BF16: one output, columns ascending.
float dot_bf16(const float* w, const Acts& x, int r) {
  const uint8_t* group = x.row(r / kActsGroup * kActsGroup);
  float y = 0;
  for (int c = 0; c < x.cols; ++c) {
    uint16_t h;
    std::memcpy(&h, group + bf16_place(x.layout, r % kActsGroup, c), 2);
    y += bf16_to_f32(f32_to_bf16(w[c])) * bf16_to_f32(h);
  }
  return y;
}

}  // namespace

void unpack_row(DType type, const uint8_t* row, int cols, int first, int count, float* out) {
  if (is_plain(type)) {
    for (int i = 0; i < count; ++i) out[i] = plain_at(type, row, size_t(first + i));
    return;
  }
  if (!is_fast_block(type)) {
    dequantize(type, row + row_bytes(type, first), out, count);
    return;
  }
  for (int b = first / kBlockElems; b < (first + count) / kBlockElems; ++b, out += kBlockElems)
    block_values(type, read_row_block(type, row, cols, b), out);
}

void dot_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  const size_t bytes = row_bytes(w.type, w.cols);
  for (int i = begin; i < end; ++i) {
    const uint8_t* unit = w.data + unit_offset(w, list[i]);
    for (int k = 0; k < w.unit; ++k) {
      const uint8_t* row = unit + size_t(k) * bytes;
      for (int r = 0; r < x.n; ++r) {
        float& out = y[size_t(r) * ldy + size_t(list[i]) * size_t(w.unit) + size_t(k)];
        if (x.type == ActType::I8 || x.type == ActType::I16) {
          out = dot_integer(w.type, row, acts_view(x.type, x.cols, x.row(r)), w.cols);
        } else {
          out = dot_float(w.type, row, reinterpret_cast<const float*>(x.row(r)), w.cols);
        }
      }
    }
  }
}

void gemm_units(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  if (x.type != ActType::BF16) return dot_units(w, x, list, begin, end, y, ldy);
  const size_t bytes = row_bytes(w.type, w.cols);
  std::vector<float> row(size_t((w.cols + 255) / 256 * 256));
  for (int i = begin * w.unit; i < end * w.unit; ++i) {
    const int unit = list[i / w.unit];
    const uint8_t* from = w.data + unit_offset(w, unit) + size_t(i % w.unit) * bytes;
    for (int k = 0; k < w.cols; k += 256)
      unpack_row(w.type, from, w.cols, k, std::min(256, w.cols - k), row.data() + k);
    for (int r = 0; r < x.n; ++r)
      y[size_t(r) * ldy + size_t(unit) * size_t(w.unit) + size_t(i % w.unit)] = dot_bf16(row.data(), x, r);
  }
}

void axpy_columns(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                  float* y) {
  std::fill(y + row0, y + row1, 0.f);
  if (!is_plain(w.type)) {
    for (int i = begin; i < end;) {
      int next = i + 1;
      while (next < end && list[next] / kBlockElems == list[i] / kBlockElems) ++next;
      axpy_block(w, x, r, list, i, next, row0, row1, y);
      i = next;
    }
    return;
  }
  const float* xf = reinterpret_cast<const float*>(x.row(r));
  for (int i = begin; i < end; ++i) {
    const uint8_t* column = w.data + column_offset(w, list[i]);
    for (int row = row0; row < row1; ++row) y[row] += xf[list[i]] * plain_at(w.type, column, size_t(row));
  }
}

void gemm_columns(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy) {
  if (x.type == ActType::BF16) {
    std::vector<float> values(static_cast<size_t>(w.cols));
    for (int row = row0; row < row1; ++row) {
      read_row(w, row, values.data());
      for (int r = 0; r < x.n; ++r) y[size_t(r) * ldy + size_t(row)] = dot_bf16(values.data(), x, r);
    }
    return;
  }
  for (int r = 0; r < x.n; ++r) axpy_columns(w, x, r, {nullptr, w.cols}, 0, w.cols, row0, row1, y + size_t(r) * ldy);
}

}  // namespace pop::ref
