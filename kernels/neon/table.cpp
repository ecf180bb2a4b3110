#include "kernels/neon/isa.h"
#include "kernels/tables.h"

#define POP_TEXT_OF(x) #x
#define POP_TEXT(x) POP_TEXT_OF(x)

namespace pop {

// Prefill takes decode's products, row of x after row of x. What is not named here is the scalar table's.
void POP_FILL(KernelTable& t) {
  t.name = POP_TEXT(POP_ISA);
  t.effective_prefill = t.effective;  // no BF16
  t.pack_acts = POP_ISA::pack_acts;
  t.dot_units = POP_ISA::dot_units;
  t.axpy_columns = POP_ISA::axpy_columns;
  t.gemm_units = POP_ISA::dot_units;
  t.gemm_columns = POP_ISA::gemm_columns;
  t.rms_norm = POP_ISA::rms_norm;
  t.add = POP_ISA::add_to;
  t.silu_mul = POP_ISA::silu_mul;
  t.gelu_mul = POP_ISA::gelu_mul;
  t.rope = POP_ISA::rope;
  t.soft_cap = POP_ISA::soft_cap;
  t.argmax = POP_ISA::argmax;
  t.add_squares = POP_ISA::add_squares;
  t.channel_scores = POP_ISA::channel_scores;
}

}  // namespace pop
