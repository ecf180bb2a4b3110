// Multiply-adds as fast as they come, nothing loaded: the peak that prefill is measured against (apps/bench).
#include "kernels/x86/isa.h"
#include "kernels/x86/simd.h"

#ifdef __AVX512F__
#define POP_REGISTER "v"
#else
#define POP_REGISTER "x"
#endif

namespace pop::POP_ISA {
namespace {

constexpr int kChains = 12;  // independent sums: more than latency times issue width, and they fit the registers

// Inline assembly, so that the compiler neither folds the constants nor drops sums that nobody reads.
template <class V>
POP_INLINE V opaque(V v) {
#ifndef POP_TEST_SIMDE  // whose vectors are no registers
  asm volatile("" : "+" POP_REGISTER(v));
#endif
  return v;
}

template <class V, class Step>
POP_INLINE void run_chains(int rounds, V start, Step step) {
  V sum[kChains];
  for (V& s : sum) s = start;
  for (int i = 0; i < rounds; ++i)
    for (V& s : sum) s = step(s);
  for (V& s : sum) opaque(s);
}

#ifdef __AVX512F__
POP_INLINE VI bytes(char v) { return opaque(_mm512_set1_epi8(v)); }
POP_INLINE VI dot_bytes(VI a, VI b, VI s) { return _mm512_dpbusd_epi32(s, a, b); }
POP_INLINE VI dot_words(VI a, VI b, VI s) { return _mm512_dpwssd_epi32(s, a, b); }
#else
POP_INLINE VI bytes(char v) { return opaque(_mm256_set1_epi8(v)); }
POP_INLINE VI dot_bytes(VI a, VI b, VI s) {
  const VI pairs = _mm256_maddubs_epi16(opaque(a), b);
  return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
POP_INLINE VI dot_words(VI a, VI b, VI s) { return _mm256_add_epi32(s, _mm256_madd_epi16(opaque(a), b)); }
#endif

}  // namespace

double multiply_adds(ActType type, int rounds) {
  const double chains = double(rounds) * kChains;
  const VI a = bytes(1), b = bytes(2);
  if (type == ActType::I8) {
    run_chains(rounds, a, [&](VI s) { return dot_bytes(a, b, s); });
    return chains * kLanes * 4;
  }
  if (type == ActType::I16) {
    run_chains(rounds, a, [&](VI s) { return dot_words(a, b, s); });
    return chains * kLanes * 2;
  }
  const VF x = opaque(set1(0.5f));
  run_chains(rounds, x, [&](VF s) { return fma(x, x, s); });
  return chains * kLanes;
}

}  // namespace pop::POP_ISA
