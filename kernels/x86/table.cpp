#include "kernels/tables.h"
#include "kernels/x86/isa.h"

#define POP_TEXT_OF(x) #x
#define POP_TEXT(x) POP_TEXT_OF(x)

namespace pop {

// pack_acts writes the scalar table's bytes, so masking and sizes are inherited.
void POP_FILL(KernelTable& t) {
  t.name = POP_TEXT(POP_ISA);
  t.effective_prefill = t.effective;  // gemm.cpp knows no BF16
  t.pack_acts = POP_ISA::pack_acts;
  t.dot_units = POP_ISA::dot_units;
  t.axpy_columns = POP_ISA::axpy_columns;
  t.gemm_units = POP_ISA::gemm_units;
  t.gemm_columns = POP_ISA::gemm_columns;
  t.rms_norm = POP_ISA::rms_norm;
  t.add = POP_ISA::add_to;
  t.silu_mul = POP_ISA::silu_mul;
  t.gelu_mul = POP_ISA::gelu_mul;
  t.rope = POP_ISA::rope;
  t.store_key = POP_ISA::store_key;
  t.store_value = POP_ISA::store_value;
  t.attention = POP_ISA::attention;
  t.attention_merge = POP_ISA::attention_merge;
  t.soft_cap = POP_ISA::soft_cap;
  t.argmax = POP_ISA::argmax;
  t.log_sum_exp = POP_ISA::log_sum_exp;
  t.all_finite = POP_ISA::all_finite;
  t.add_squares = POP_ISA::add_squares;
  t.abs_scores = POP_ISA::abs_scores;
  t.channel_scores = POP_ISA::channel_scores;
  t.select_scores = POP_ISA::select_scores;
  t.read_lines = POP_ISA::read_lines;
  t.multiply_adds = POP_ISA::multiply_adds;
}

}  // namespace pop
