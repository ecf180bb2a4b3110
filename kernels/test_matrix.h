// For the kernel tests: matrices with random values of every type, their values in float64, vectors, lists, tables by name.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "kernels/select.h"
#include "tensor/layout.h"

namespace pop::kernel_test {

// The tests of one instruction set; a set this machine lacks is a skip that says so.
class IsaTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "ISA " << GetParam() << " is not available here";
  }
  const KernelTable& table() const { return select_kernels(GetParam()); }
  static const KernelTable& scalar() { return select_kernels("scalar"); }
};

inline std::string isa_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

inline std::vector<float> random_vector(int n, uint32_t seed, float spread = 1.f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.f, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

inline std::vector<int32_t> random_list(int count, double keep, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> list;
  for (int i = 0; i < count; ++i)
    if (std::uniform_real_distribution<>(0, 1)(random) < keep) list.push_back(i);
  return list;
}

// Any codes, scales and mins of ordinary size. K-quants and IQ4_XS have their scale fields elsewhere: their random bytes are
// kept and the halves set where each format has them.
inline std::vector<uint8_t> random_file_row(DType type, int cols, std::mt19937& random) {
  std::vector<uint8_t> row(row_bytes(type, cols));
  for (uint8_t& byte : row) byte = uint8_t(random());
  const auto half = [&](size_t at) {  // 2^-7 .. 2^-3, either sign
    const uint16_t h = uint16_t((8 + random() % 4) << 10 | (random() & 0x83ff));
    std::memcpy(row.data() + at, &h, 2);
  };
  const size_t block = size_t(traits(type).block_bytes);
  for (size_t b = 0; b < row.size(); b += block) {
    switch (type) {
      case DType::F32: {
        const float v = std::normal_distribution<float>(0.f, 0.1f)(random);
        std::memcpy(row.data() + b, &v, 4);
        break;
      }
      case DType::BF16: row[b + 1] = uint8_t((row[b + 1] & 0x80) | 0x3c | (random() & 1)); break;
      case DType::F16: half(b); break;
      case DType::Q2_K: half(b + 80), half(b + 82); break;
      case DType::Q3_K: half(b + 108); break;
      case DType::Q6_K: half(b + 208); break;
      default:
        half(b);
        if (type == DType::Q4_1 || type == DType::Q5_1 || type == DType::Q4_K || type == DType::Q5_K) half(b + 2);
    }
  }
  return row;
}

struct TestMatrix {
  AlignedBuffer memory;
  Matrix w;
  std::vector<float> values;  // [rows, cols], dequantize()'s
};

inline TestMatrix random_matrix(DType type, Layout layout, int rows, int cols, int unit, uint32_t seed) {
  TestMatrix m;
  m.w = {.type = type, .layout = layout, .rows = rows, .cols = cols, .unit = unit};
  m.memory = AlignedBuffer((matrix_bytes(m.w) + 63) / 64 * 64);
  m.w.data = m.memory.data();
  m.values.resize(size_t(rows) * size_t(cols));
  std::mt19937 random(seed);
  for (int r = 0; r < rows; ++r) {
    const std::vector<uint8_t> row = random_file_row(type, cols, random);
    write_row(m.w, r, row.data(), m.memory.data());
    dequantize(type, row.data(), m.values.data() + size_t(r) * size_t(cols), cols);
  }
  return m;
}

struct TestActs {
  AlignedBuffer memory;
  Acts acts;
};

// x : [n, cols]
inline TestActs pack(const KernelTable& table, ActType type, Layout layout, const std::vector<float>& x, int n,
                     int cols) {
  TestActs a;
  a.acts = {.type = type, .layout = layout, .n = n, .cols = cols, .stride = table.acts_bytes(type, layout, cols)};
  a.memory = AlignedBuffer(a.acts.stride * size_t((n + kActsGroup - 1) / kActsGroup * kActsGroup) + 64);
  pack_rows(table, type, layout, x.data(), size_t(cols), 0, n, cols, a.memory.data());
  a.acts.data = a.memory.data();
  return a;
}

inline const char* act_name(ActType type) {
  constexpr const char* kNames[] = {"f32", "bf16", "i16", "i8"};
  return kNames[size_t(type)];
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace pop::kernel_test
