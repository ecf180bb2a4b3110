#include "kernels/ref/ref.h"
#include "kernels/tables.h"

namespace pop {

void fill_scalar_table(KernelTable& t) {
  t.name = "scalar";
  t.effective = ref::effective;
  t.effective_prefill = ref::effective_prefill;
  t.acts_bytes = ref::acts_bytes;
  t.pack_acts = ref::pack_acts;
  t.pack_bf16 = ref::pack_bf16;
  t.mask_acts = ref::mask_acts;
  t.dot_units = ref::dot_units;
  t.axpy_columns = ref::axpy_columns;
  t.gemm_units = ref::gemm_units;
  t.gemm_columns = ref::gemm_columns;
  t.rms_norm = ref::rms_norm;
  t.add = ref::add;
  t.silu_mul = ref::silu_mul;
  t.gelu_mul = ref::gelu_mul;
  t.rope = ref::rope;
  t.store_key = ref::store_key;
  t.store_value = ref::store_value;
  t.attention = ref::attention;
  t.attention_merge = ref::attention_merge;
  t.soft_cap = ref::soft_cap;
  t.argmax = ref::argmax;
  t.log_sum_exp = ref::log_sum_exp;
  t.all_finite = ref::all_finite;
  t.add_squares = ref::add_squares;
  t.abs_scores = ref::abs_scores;
  t.channel_scores = ref::channel_scores;
  t.select_scores = ref::select_scores;
  t.read_lines = ref::read_lines;
  t.multiply_adds = ref::multiply_adds;
}

}  // namespace pop
