// Keys and values of one position, rounded into the cache (kv.h): the scalar table's bytes.
#include "kernels/x86/isa.h"
#include "kernels/x86/simd.h"

namespace pop::POP_ISA {
namespace {

#ifdef __AVX512F__
POP_INLINE void store_halves(uint16_t* p, VF v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
POP_INLINE void store_codes(int8_t* p, VF v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}
#else
POP_INLINE void store_halves(uint16_t* p, VF v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
POP_INLINE void store_codes(int8_t* p, VF v) {
  const __m256i whole = _mm256_cvtps_epi32(v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
#endif

uint16_t to_half(float x) {
  return uint16_t(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
}
uint16_t to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return uint16_t(nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void to_halves(const float* x, int n, KvType type, uint16_t* out) {
  int i = 0;
  if (type == KvType::F16)
    for (; i + kLanes <= n; i += kLanes) store_halves(out + i, load(x + i));
  for (; i < n; ++i) out[i] = type == KvType::F16 ? to_half(x[i]) : to_bf16(x[i]);
}

// 32 elements to codes; returns their scale.
uint16_t quantise(const float* x, int8_t* codes) {
  uint32_t largest = 0;  // sizes of floats compare as their bits; beyond infinity's are the NaNs
  for (int i = 0; i < 32; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  float size;
  __builtin_memcpy(&size, &largest, 4);
  const bool finite = largest < 0x7f800000u;
  const float d = finite ? size / 127.f : __builtin_nanf("");
  const float wanted = 1.f / d, inverse = d > 0 && wanted < __builtin_inff() ? wanted : 0.f;
  for (int i = 0; i < 32; i += kLanes) store_codes(codes + i, finite ? mul(load(x + i), set1(inverse)) : zero());
  return to_half(d);
}

}  // namespace

void store_key(const float* x, int head_dim, KvType type, int position, void* keys) {
  const size_t block = size_t(position / kKeyBlock), lane = size_t(position % kKeyBlock), step = kKeyBlock;
  const auto dim = size_t(head_dim);
  if (type == KvType::F32) {
    float* to = static_cast<float*>(keys) + block * step * dim + lane;
    for (size_t i = 0; i < dim; ++i) to[i * step] = x[i];
    return;
  }
  if (type == KvType::Q8_0) {
    uint8_t* group = static_cast<uint8_t*>(keys) + block * step * (dim / 32 * 34);
    for (size_t i = 0; i < dim; i += 32, group += step * 34) {
      int8_t codes[32];
      const uint16_t scale = quantise(x + i, codes);
      __builtin_memcpy(group + 2 * lane, &scale, 2);
      for (size_t e = 0; e < 32; ++e) group[2 * step + e * step + lane] = uint8_t(codes[e]);
    }
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(keys) + block * step * dim + lane;
  for (int i = 0; i < head_dim; i += 64) {
    uint16_t rounded[64];
    const int n = head_dim - i < 64 ? head_dim - i : 64;
    to_halves(x + i, n, type, rounded);
    for (int e = 0; e < n; ++e) to[size_t(i + e) * step] = rounded[e];
  }
}

void store_value(const float* x, int head_dim, KvType type, int position, void* values) {
  const auto dim = size_t(head_dim), t = size_t(position);
  switch (type) {
    case KvType::F32: __builtin_memcpy(static_cast<float*>(values) + t * dim, x, dim * 4); return;
    case KvType::F16:
    case KvType::BF16: return to_halves(x, head_dim, type, static_cast<uint16_t*>(values) + t * dim);
    case KvType::Q8_0: break;
  }
  uint8_t* row = static_cast<uint8_t*>(values) + t * (dim / 32 * 34);
  for (size_t i = 0; i < dim; i += 32) {
    int8_t codes[32];
    const uint16_t scale = quantise(x + i, codes);
    __builtin_memcpy(row + i / 32 * 2, &scale, 2);
    __builtin_memcpy(row + dim / 32 * 2 + i, codes, 32);
  }
}

}  // namespace pop::POP_ISA
