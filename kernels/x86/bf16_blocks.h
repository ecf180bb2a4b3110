// Rows of block types as bfloat16 tiles of amx.cpp, from the planes and scales of tensor/block_format.h.
#pragma once
#include "kernels/x86/bf16.h"

namespace pop::POP_ISA {
namespace {

// The codes of the chunk of N blocks at `codes`, block after block.
template <int N>
POP_INLINE void order_bytes(const uint8_t* codes, uint8_t* out) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  if constexpr (N == 1) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  } else if constexpr (N == 2) {  // word 2s + b to 8b + s
    const __m512i from = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi32(lane, 1), _mm512_set1_epi32(14)),
                                         _mm512_srli_epi32(lane, 3));
    store512(out, _mm512_permutexvar_epi32(from, load512(codes)));
  } else if constexpr (N == 4) {  // word 4s + b of two vectors to 8b + s
    const __m512i from =
        _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(lane, _mm512_set1_epi32(7)), 2), _mm512_srli_epi32(lane, 3));
    const __m512i a = load512(codes), b = load512(codes + 64);
    store512(out, _mm512_permutex2var_epi32(a, from, b));
    store512(out + 64, _mm512_permutex2var_epi32(a, _mm512_add_epi32(from, _mm512_set1_epi32(2)), b));
  } else {  // word 8s + b of four vectors; first four words of four blocks each
    const __m512i from =
        _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(lane, _mm512_set1_epi32(3)), 3), _mm512_srli_epi32(lane, 2));
    const __m512i next = _mm512_add_epi32(from, _mm512_set1_epi32(4));
    const __m512i a = load512(codes), b = load512(codes + 64), c = load512(codes + 128), d = load512(codes + 192);
    const __m512i ab = _mm512_permutex2var_epi32(a, from, b), cd = _mm512_permutex2var_epi32(c, from, d);
    const __m512i ab4 = _mm512_permutex2var_epi32(a, next, b), cd4 = _mm512_permutex2var_epi32(c, next, d);
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    store512(out, _mm512_permutex2var_epi64(ab, low, cd));
    store512(out + 64, _mm512_permutex2var_epi64(ab, high, cd));
    store512(out + 128, _mm512_permutex2var_epi64(ab4, low, cd4));
    store512(out + 192, _mm512_permutex2var_epi64(ab4, high, cd4));
  }
}

// The low nibbles of the chunk of N blocks, one a byte, block after block. Pairs: bit 4 says which of two neighbouring blocks.
template <int N, bool Pairs>
POP_INLINE void order_nibbles(const uint8_t* codes, uint8_t* out) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i s = _mm512_and_si512(lane, _mm512_set1_epi32(3)), b = _mm512_srli_epi32(lane, 2);
  __m512i v[2];
  if constexpr (N == 8) {
    const __m512i from = _mm512_or_si512(_mm512_slli_epi32(s, 3), b), a = load512(codes), c = load512(codes + 64);
    v[0] = _mm512_permutex2var_epi32(a, from, c);
    v[1] = _mm512_permutex2var_epi32(a, _mm512_add_epi32(from, _mm512_set1_epi32(4)), c);
  } else if constexpr (N == 4) {
    v[0] = _mm512_permutexvar_epi32(_mm512_or_si512(_mm512_slli_epi32(s, 2), b), load512(codes));
  } else if constexpr (N == 2) {
    const __m512i half = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
    v[0] = _mm512_permutexvar_epi32(_mm512_or_si512(_mm512_slli_epi32(s, 1), b), half);
  } else {
    v[0] = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  }
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const int64_t bit = Pairs ? 0x1010101010101010 : 0;
  const __m512i odd = _mm512_setr_epi64(0, 0, 0, 0, bit, bit, bit, bit);
  for (int i = 0; i < (N + 3) / 4; ++i) {
    const __m512i nibble = _mm512_set1_epi8(15), low = _mm512_and_si512(v[i], nibble),
                  high = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), nibble);
    store512(out + 128 * i, _mm512_or_si512(_mm512_permutex2var_epi64(low, first, high), odd));
    store512(out + 128 * i + 64, _mm512_or_si512(_mm512_permutex2var_epi64(low, second, high), odd));
  }
}

// The codes' upper bits, from bit 4 on, of 32 elements: the plane of a chunk of N blocks.
template <DType T, int N>
POP_INLINE __m256i upper_bits(const uint8_t* plane, int block) {
  constexpr int kBits = block_format(T).high_bits;
  const auto word = [&](int at) __attribute__((always_inline)) {  // at any address
    return _mm_cvtsi128_si32(_mm_loadu_si32(plane + 4 * size_t(block + at)));
  };
  const __m256i s = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  if constexpr (kBits == 1)  // bit s of a byte to bit 4
    return _mm256_and_si256(_mm256_rolv_epi32(_mm256_set1_epi32(word(0)), _mm256_sub_epi32(_mm256_set1_epi32(4), s)),
                            _mm256_set1_epi8(16));
  const __m256i both = _mm256_blend_epi32(_mm256_set1_epi32(word(0)), _mm256_set1_epi32(word(N)), 0xaa);
  const __m256i shift = _mm256_sub_epi32(_mm256_set1_epi32(4), _mm256_andnot_si256(_mm256_set1_epi32(1), s));
  return _mm256_and_si256(_mm256_rolv_epi32(both, shift), _mm256_set1_epi8(48));
}

// A chunk's scales, of elements 0-15 and 16-31, and mins as block_format.h has them.
struct ChunkScales {
  alignas(64) float first[kLanes], second[kLanes], min[kLanes];
};

template <DType T>
POP_INLINE void take_scales(const uint8_t* scales, int n, int at, int count, ChunkScales& out) {
  constexpr ScaleForm kForm = block_format(T).scales;
  const auto halves = [&](size_t byte, int many) {
    return from_half_first(reinterpret_cast<const uint16_t*>(scales + byte), many);
  };
  const auto of_super = [&](size_t byte) { return set1(half(scales + byte + size_t(at / 8) * 2)); };
  const auto bytes = [&](size_t byte) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + byte)); };
  const auto size = size_t(n), place = size_t(at);
  if constexpr (kForm == ScaleForm::Half || kForm == ScaleForm::HalfMin) {
    store(out.first, halves(2 * place, count));
    if constexpr (kForm == ScaleForm::HalfMin) store(out.min, halves(2 * size + 2 * place, count));
  } else if constexpr (kForm == ScaleForm::SixBit) {
    int word;
    __builtin_memcpy(&word, scales + size + place / 2, 4);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i low = _mm512_cvtepu8_epi32(bytes(place)), three = _mm512_set1_epi32(3);
    const __m512i upper = _mm512_srlv_epi32(_mm512_set1_epi32(word), _mm512_slli_epi32(lane, 2));
    const __m512i s = _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)),
                                      _mm512_slli_epi32(_mm512_and_si512(upper, three), 4));
    const __m512i m = _mm512_or_si512(_mm512_srli_epi32(low, 4),
                                      _mm512_slli_epi32(_mm512_and_si512(_mm512_srli_epi32(upper, 2), three), 4));
    store(out.first, mul(of_super(size + size / 2), _mm512_cvtepi32_ps(s)));
    store(out.min, sub(zero(), mul(of_super(size + size / 2 + size / 4), _mm512_cvtepi32_ps(m))));
  } else {
    const VF d = of_super(2 * size);
    store(out.first, mul(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(place)))));
    store(out.second, mul(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(size + place)))));
  }
}

template <DType T>
POP_INLINE VF scaled(VF codes, float scale, float min) {
  const VF v = mul(codes, set1(scale));
  return has_mins(block_format(T).scales) ? add(v, set1(min)) : v;
}

// Where a chunk stands.
struct ChunkBytes {
  const uint8_t *low, *high;
  ChunkScales scales;
};

// Eight bits or six: every code is converted.
template <DType T, int N>
POP_INLINE void unpack_long_codes(const ChunkBytes& c, uint8_t* out) {
  alignas(64) uint8_t bytes[N == 1 ? 64 : N * 32];
  if constexpr (block_format(T).low_bits == 8) {
    order_bytes<N>(c.low, bytes);
  } else {
    order_nibbles<N, false>(c.low, bytes);
    for (int b = 0; b < N; ++b) {
      __m256i* at = reinterpret_cast<__m256i*>(bytes + 32 * b);
      const __m256i code = _mm256_or_si256(_mm256_load_si256(at), upper_bits<T, N>(c.high, b));
      _mm256_store_si256(at, _mm256_sub_epi8(code, _mm256_set1_epi8(block_format(T).zero)));
    }
  }
  for (int b = 0; b < N; ++b) {
    const float first = c.scales.first[b];
    const float second = block_format(T).scales == ScaleForm::Byte16 ? c.scales.second[b] : first;
    store512(out + size_t(b) * kTileBytes, to_bf16(mul(bytes_to_float(bytes + 32 * b), set1(first)),
                                                   mul(bytes_to_float(bytes + 32 * b + 16), set1(second))));
  }
}

// Four or five bits: every code is looked up in a table of its block's values.
template <DType T, int N>
POP_INLINE void unpack_short_codes(const ChunkBytes& c, uint8_t* out) {
  constexpr bool kFive = block_format(T).high_bits == 1;
  alignas(64) uint8_t index[N <= 4 ? 128 : 256];
  order_nibbles<N, !kFive>(c.low, index);
  const VF values = code_values<T>(), upper = code_values<T>(16);
  for (int b = 0; b < N; b += kFive ? 1 : 2) {
    const int other = kFive || N == 1 ? b : b + 1;
    const __m512i table = to_bf16(scaled<T>(values, c.scales.first[b], c.scales.min[b]),
                                  scaled<T>(kFive ? upper : values, c.scales.first[other], c.scales.min[other]));
    for (int i = b; i <= other; ++i) {
      __m256i place = _mm256_load_si256(reinterpret_cast<const __m256i*>(index + 32 * i));
      if constexpr (kFive) place = _mm256_or_si256(place, upper_bits<T, N>(c.high, i));
      store512(out + size_t(i) * kTileBytes, _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(place), table));
    }
  }
}

template <DType T, int N>
POP_INLINE void unpack_chunk_bf16(const ChunkBytes& c, uint8_t* out) {
  if constexpr (block_format(T).low_bits + block_format(T).high_bits > 5) {
    unpack_long_codes<T, N>(c, out);
  } else {
    unpack_short_codes<T, N>(c, out);
  }
}

template <DType T>
void unpack_bf16_blocks(DType, const uint8_t* row, int cols, int first, int count, uint8_t* out) {
  constexpr BlockFormat kFormat = block_format(T);
  const int blocks = cols / 32, end = (first + count) / 32;
  ChunkBytes c;
  for (int b = first / 32, n = 0; b < end; b += n, out += size_t(n) * kTileBytes) {
    const GroupPlace group = group_place(kFormat, b, blocks);
    const int at = b - group.first;
    n = chunk_at(b, blocks);
    c.low = row + group.low + plane_bytes(kFormat.low_bits, at);
    c.high = row + group.high + plane_bytes(kFormat.high_bits, at);
    take_scales<T>(row + group.scales, group.n, at, n, c.scales);
    if (n == 8) {
      unpack_chunk_bf16<T, 8>(c, out);
    } else if constexpr (!has_super_blocks(kFormat.scales)) {
      if (n == 4) unpack_chunk_bf16<T, 4>(c, out);
      if (n == 2) unpack_chunk_bf16<T, 2>(c, out);
      if (n == 1) unpack_chunk_bf16<T, 1>(c, out);
    }
  }
}

UnpackRow unpack_bf16_of(DType type) {
  switch (type) {
    case DType::BF16: return unpack_bf16_copy;
    case DType::Q8_0: return unpack_bf16_blocks<DType::Q8_0>;
    case DType::Q4_0: return unpack_bf16_blocks<DType::Q4_0>;
    case DType::Q4_1: return unpack_bf16_blocks<DType::Q4_1>;
    case DType::Q5_0: return unpack_bf16_blocks<DType::Q5_0>;
    case DType::Q5_1: return unpack_bf16_blocks<DType::Q5_1>;
    case DType::Q4_K: return unpack_bf16_blocks<DType::Q4_K>;
    case DType::Q5_K: return unpack_bf16_blocks<DType::Q5_K>;
    case DType::Q6_K: return unpack_bf16_blocks<DType::Q6_K>;
    case DType::IQ4_NL: return unpack_bf16_blocks<DType::IQ4_NL>;
    default: return unpack_bf16_any;
  }
}

}  // namespace
}  // namespace pop::POP_ISA
