// The arithmetic: one table of functions per instruction set, chosen once at load (select.h) and passed by reference.
//
// Contract of every table (the scalar one is the specification; the others are compared with it by name):
//  - A result never depends on how the work was cut: of each output element there is one order of additions, fixed by the
//    shapes alone. Rows of x never influence each other. That is what makes thread counts, batches, prefill chunks and
//    packed copies invisible in the bits ("Bits", HACKING.md).
//  - Nothing is read from a matrix but the units or columns listed (for Columns also the headers of their blocks), rounded
//    out to 64-byte lines.
//  - Pointers need no alignment beyond their element type unless said; sizes may be any positive number the types allow.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace pop {

// Arithmetic of weight products. F32: weights widened, float32 sums; the reference. BF16: x rounded to bfloat16 first.
// I16, I8: x in blocks of 32 with one float32 scale each, integer products inside a block, float32 sums over blocks.
// BF16 is for prefill alone and rounds the weights too; products are exact, sums float32.
enum class ActType : uint8_t { F32, BF16, I16, I8 };

// What stands before a site's matrices: n rows of x, prepared once by pack_acts (BF16: pack_bf16) for the given (type,
// layout).
struct Acts {
  ActType type = ActType::F32;
  Layout layout = Layout::Rows;
  int n = 0, cols = 0;
  size_t stride = 0;  // bytes from row to row: acts_bytes(type, layout, cols)
  const uint8_t* data = nullptr;
  const uint8_t* row(int i) const { return data + size_t(i) * stride; }
};

// Of cached keys and values; how they lie in memory: kv.h. Q8_0: blocks of 32 elements, a half-float scale and int8 codes.
enum class KvType : uint8_t { F32, F16, BF16, Q8_0 };
// Positions whose keys lie together, and between two looks at the largest score; counted from position 0.
constexpr int kKeyBlock = 64;
// Positions of one head that follow each other in memory; the next so many lie elsewhere.
constexpr int kKvRange = 256;

// BF16: rows of x are interleaved in groups of so many; a buffer holds whole groups.
constexpr int kActsGroup = 16;

// Consecutive tokens of one sequence against a range of the positions of one key-value head. Of every token and query head
// the result is a part: out = sum of e^(score - top) * value, total = sum of e^(score - top), over the positions of the range
// that the token sees (up to its own, within its window), by key blocks in ascending order, each with the largest score so far
// as top; where it sees none: 0, total 0, top -inf. Parts depend on the range and on nothing else; attention_merge makes one
// answer of them.
struct AttentionArgs {
  const float* q =
      nullptr;  // token t, head g of the group that shares this key-value head: q + t * q_stride + g * head_dim
  size_t q_stride = 0;
  int tokens = 1, group = 1, head_dim = 0;
  const void* keys = nullptr;  // of the head's positions from 0 on
  const void* values = nullptr;
  size_t range_stride = 0;  // bytes from the first position of a range to that of the next, in both
  KvType type = KvType::F16;
  int position = 0;          // of token 0, >= first
  int window = 0;            // positions that a token sees at most, its own counted; 0: all
  int first = 0, last = 0;   // [first, last) take part; first a multiple of kKeyBlock
  float scale = 1.f;         // of q before the scores
  float cap = 0.f;           // a score s counts as cap * tanh(s / cap); 0: as it is
  float* out = nullptr;      // [tokens, group, head_dim]
  float* tops = nullptr;     // [tokens, group]
  float* totals = nullptr;   // [tokens, group]
  float* scratch = nullptr;  // [attention_scratch()], 64-byte aligned
};

enum class Norm : uint8_t { One, Two, Max };  // aggregation A of pop-method eq. (2): sum, Euclidean, maximum

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx512", ...

  // --- activations
  // The arithmetic really used for a matrix of `type` in `layout` when `asked` was asked for: types without a fast path use F32.
  ActType (*effective)(ActType asked, DType type, Layout layout);
  // The same of gemm_units and gemm_columns.
  ActType (*effective_prefill)(ActType asked, DType type, Layout layout);
  size_t (*acts_bytes)(ActType type, Layout layout, int cols);  // a multiple of 64
  void (*pack_acts)(ActType type, Layout layout, const float* x, int cols,
                    uint8_t* out);  // one row, not BF16; out 64-byte aligned
  // BF16: n <= kActsGroup rows (ldx floats apart) as one group of acts.h; out: kActsGroup * acts_bytes(), 64-byte aligned.
  void (*pack_bf16)(Layout layout, const float* x, size_t ldx, int n, int cols, uint8_t* out);
  // Columns skipped at a site whose matrix lies in Rows: sets the packed values outside `keep` to zero, block scales untouched.
  void (*mask_acts)(ActType type, Layout layout, int cols, IndexList keep, uint8_t* acts);

  // --- decode: y[r * ldy + row] = W[row, :] . x_r for the rows of units list[begin .. end), each r < x.n. W in Rows.
  // Prefetches along the list. x.type must be effective(...).
  void (*dot_units)(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy);
  // --- decode: y[row] = sum over the columns list[begin .. end) of x[column] * W[row, column], rows [row0, row1), one row
  // of x (row `r` of acts). W in Columns. Overwrites y[row0 .. row1). row0 and row1 are multiples of 64 or the end.
  void (*axpy_columns)(const Matrix& w, const Acts& x, int r, IndexList list, int begin, int end, int row0, int row1,
                       float* y);

  // --- prefill: as dot_units, for many rows of x; its own arithmetic order (but the same for any x.n).
  void (*gemm_units)(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy);
  // --- prefill: y[r * ldy + row], rows [row0, row1), all columns in ascending order (skipped ones have x = 0).
  void (*gemm_columns)(const Matrix& w, const Acts& x, int row0, int row1, float* y, size_t ldy);

  // --- the rest of a layer, float32
  void (*rms_norm)(const float* x, const float* weight, int n, float eps,
                   float* out);                  // mean of squares in float32, eps inside the root; out may be x
  void (*add)(const float* x, int n, float* y);  // y += x
  // gate_up: [2 * f], pairs (gate, up) of a unit-2 matrix's output; h[i] = silu(gate_i) * up_i for channels list[begin .. end).
  void (*silu_mul)(const float* gate_up, IndexList list, int begin, int end, float* h);
  // The same with gelu(gate_i), the form with tanh: gelu(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))).
  void (*gelu_mul)(const float* gate_up, IndexList list, int begin, int end, float* h);
  // Rotates pairs of one head. interleaved: pairs (2i, 2i+1), else (i, i + dim/2). cos_sin: [dim] as cos_0, sin_0, cos_1, ...
  void (*rope)(float* head, int dim, bool interleaved, const float* cos_sin);
  // One position's key or value, x : [head_dim], into a head's range (kv.h); position: within it.
  void (*store_key)(const float* x, int head_dim, KvType type, int position, void* keys);
  void (*store_value)(const float* x, int head_dim, KvType type, int position, void* values);
  void (*attention)(const AttentionArgs& args);
  // One head of one token from its parts, ascending: part p at parts + p * stride, its top and total at tops[p * step],
  // totals[p * step]. y : [head_dim] = sum of e^(top_p - top) * part_p / sum of e^(top_p - top) * total_p.
  void (*attention_merge)(const float* parts, size_t stride, const float* tops, const float* totals, size_t step,
                          int count, int head_dim, float* y);

  // --- logits
  void (*soft_cap)(float* x, int n, float cap);  // x = cap * tanh(x / cap)
  int (*argmax)(const float* x, int n);          // ties to the lowest index; NaN never wins
  double (*log_sum_exp)(const float* x, int n);  // natural logarithm, sum in float64
  bool (*all_finite)(const float* x, int n);

  // --- pruning
  // sums[i] += x[t][i]^2 for t ascending, float64: x : [n, width], row stride ldx.
  void (*add_squares)(const float* x, int n, size_t ldx, int width, double* sums);
  // gate-up metric: out[u] = A_k((|W[2u,k]| + |W[2u+1,k]|) * |x_k|) for units list[begin .. end) of a unit-2 matrix in Rows
  // (of a unit-1 matrix: A_k(|W[u,k]| * |x_k|)).
  void (*abs_scores)(const Matrix& w, const float* x, Norm norm, IndexList list, int begin, int end, float* out);
  // out[j] = |h[list[j]]| * norm[list[j]], j in [0, list.count).
  void (*channel_scores)(const float* h, const float* norm, IndexList list, float* out);
  // The i in [0, n), ascending, whose score |x[i]| * norm[i] is not below tau (so a NaN is listed); returns how many. out has
  // room for n + 16; what stands past the count is undefined.
  int (*select_scores)(const float* x, const float* norm, int n, float tau, int32_t* out);

  // --- measuring: the sum, modulo 2^64, of the 64-bit words of `lines` 64-byte lines at `data` (aligned to them), read as
  // `streams` sequences side by side, each prefetched `ahead` bytes before use (0: not). What a decode could reach at most.
  uint64_t (*read_lines)(const uint8_t* data, size_t lines, int streams, int ahead);
  // The arithmetic of products with `type` (BF16: as F32) in independent chains, `rounds` steps of each, nothing loaded;
  // returns the multiplications done.
  double (*multiply_adds)(ActType type, int rounds);
};

}  // namespace pop
