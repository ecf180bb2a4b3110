// Reading memory as fast as it comes: the roof that decode is measured against (apps/bench).
#include "kernels/x86/isa.h"
#include "kernels/x86/simd.h"

namespace pop::POP_ISA {
namespace {

struct Sums {
#ifdef __AVX512F__
  __m512i all = _mm512_setzero_si512();
  POP_INLINE void add_line(Sums& s, const uint8_t* p) { s.all = _mm512_add_epi64(s.all, _mm512_load_si512(p)); }
  uint64_t total() const {
    alignas(64) uint64_t words[8];
    _mm512_store_si512(words, all);
    uint64_t sum = 0;
    for (const uint64_t word : words) sum += word;
    return sum;
  }
#else
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  POP_INLINE void add_line(Sums& s, const uint8_t* p) {
    s.low = _mm256_add_epi64(s.low, _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
    s.high = _mm256_add_epi64(s.high, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)));
  }
  uint64_t total() const {
    alignas(32) uint64_t words[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_add_epi64(low, high));
    return words[0] + words[1] + words[2] + words[3];
  }
#endif
};

// The number of streams is a constant here, so that the inner loop is unrolled.
template <int kStreams, bool kPrefetch>
uint64_t read(const uint8_t* data, size_t lines, int ahead) {
  const size_t part = lines / kStreams;
  Sums sums;
  for (size_t i = 0; i < part; ++i)
    for (int s = 0; s < kStreams; ++s) {
      const uint8_t* line = data + (size_t(s) * part + i) * 64;
      if constexpr (kPrefetch) POP_PREFETCH(line + ahead);
      Sums::add_line(sums, line);
    }
  for (size_t line = part * kStreams; line < lines; ++line) Sums::add_line(sums, data + line * 64);
  return sums.total();
}

template <bool kPrefetch>
uint64_t read(const uint8_t* data, size_t lines, int streams, int ahead) {
  if (streams >= 8) return read<8, kPrefetch>(data, lines, ahead);
  if (streams >= 4) return read<4, kPrefetch>(data, lines, ahead);
  if (streams >= 2) return read<2, kPrefetch>(data, lines, ahead);
  return read<1, kPrefetch>(data, lines, ahead);
}

}  // namespace

uint64_t read_lines(const uint8_t* data, size_t lines, int streams, int ahead) {
  return ahead > 0 ? read<true>(data, lines, streams, ahead) : read<false>(data, lines, streams, 0);
}

}  // namespace pop::POP_ISA
