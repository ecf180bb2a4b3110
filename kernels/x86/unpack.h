// A part of a row in Rows as float32 in its own order, for float activations and pruning scores: exactly dequantize()'s values.
#pragma once
#include "kernels/ref/ref.h"
#include "kernels/x86/simd.h"

namespace pop::POP_ISA {
namespace {

POP_INLINE float half(const uint8_t* p) {
  uint16_t h;
  __builtin_memcpy(&h, p, 2);
  return _cvtsh_ss(h);
}

// Of 32 codes in their own order: eight 32-bit words at a stride of n words. 4-bit codes: four, low nibbles first.
template <DType T>
POP_INLINE __m256i block_codes(const uint8_t* p, int n) {
  const int* words = reinterpret_cast<const int*>(p);
  const __m128i step = _mm_mullo_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(n));
  const __m128i low = _mm_i32gather_epi32(words, step, 4);
  if constexpr (kFourBit<T>) {
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(low, 4), low);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
  } else {
    const __m128i high = _mm_i32gather_epi32(words + 4 * n, step, 4);
    return _mm256_set_m128i(high, low);
  }
}

template <DType T>
POP_INLINE void store_block(__m256i codes, float scale, float min, float* out) {
  const __m256i c = T == DType::Q4_0 ? _mm256_sub_epi8(codes, _mm256_set1_epi8(8)) : codes;
  alignas(32) int8_t bytes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), c);
  for (int i = 0; i < 32; i += kLanes) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + (i & 16)));
#ifdef __AVX512F__
    const VF f = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(part));
#else
    const VF f = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32((i & 8) != 0 ? _mm_srli_si128(part, 8) : part));
#endif
    const VF scaled = mul(f, set1(scale));
    store(out + i, T == DType::Q4_1 ? add(scaled, set1(min)) : scaled);
  }
}

template <DType T>
void unpack_blocks(const uint8_t* row, int cols, int first, int count, float* out) {
  const int blocks = cols / 32, end = (first + count) / 32;
  for (int b = first / 32; b < end;) {
    const int n = chunk_at(b, blocks);
    const GroupPlace group = group_place(block_format(T), b, blocks);
    const int in_group = b - group.first;
    const uint8_t* scales = row + group.scales + 2 * size_t(in_group);
    for (int lane = 0; lane < n; ++lane, out += 32) {
      const __m256i codes = block_codes<T>(row + group.low + size_t(in_group) * kCodeBytes<T> + 4 * size_t(lane), n);
      const float min = T == DType::Q4_1 ? half(scales + 2 * size_t(group.n + lane)) : 0.f;
      store_block<T>(codes, half(scales + 2 * size_t(lane)), min, out);
    }
    b += n;
  }
}

template <DType T>
void unpack_plain(const uint8_t* row, int first, int count, float* out) {
  const uint8_t* p = row + size_t(first) * kPlainBytes<T>;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load_plain<T>(p + size_t(i) * kPlainBytes<T>));
  if (i < count) store_first(out + i, count - i, load_plain_first<T>(p + size_t(i) * kPlainBytes<T>, count - i));
}

// Elements first .. first + count, first a multiple of 256, count <= 256; of block types whole blocks.
[[maybe_unused]] void unpack_row(DType type, const uint8_t* row, int cols, int first, int count, float* out) {
  switch (type) {
    case DType::F32: return unpack_plain<DType::F32>(row, first, count, out);
    case DType::F16: return unpack_plain<DType::F16>(row, first, count, out);
    case DType::BF16: return unpack_plain<DType::BF16>(row, first, count, out);
    case DType::Q8_0: return unpack_blocks<DType::Q8_0>(row, cols, first, count, out);
    case DType::Q4_0: return unpack_blocks<DType::Q4_0>(row, cols, first, count, out);
    case DType::Q4_1: return unpack_blocks<DType::Q4_1>(row, cols, first, count, out);
    default: ref::unpack_row(type, row, cols, first, count, out);
  }
}

}  // namespace
}  // namespace pop::POP_ISA
