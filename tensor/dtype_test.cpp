#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace pop {
namespace {

struct Golden {
  std::string name;
  uint32_t kind = 0;
  std::vector<uint8_t> blocks;
  std::vector<float> values;
};

// Made by tensor/testdata/make_dequant_goldens.py with the `gguf` Python package.
std::vector<Golden> goldens(const char* path = "tensor/testdata/dequant_goldens.bin") {
  std::ifstream in(path, std::ios::binary);
  std::vector<Golden> all;
  char name[9] = {};
  uint32_t head[3];
  while (in.read(name, 8) && in.read(reinterpret_cast<char*>(head), sizeof head)) {
    Golden g{name, head[0], std::vector<uint8_t>(head[2]), std::vector<float>(head[1])};
    in.read(reinterpret_cast<char*>(g.blocks.data()), head[2]);
    in.read(reinterpret_cast<char*>(g.values.data()), static_cast<std::streamsize>(head[1] * sizeof(float)));
    if (!in) break;
    all.push_back(std::move(g));
  }
  return all;
}

TEST(DType, DequantisesAsTheGgufPackageBitForBit) {
  std::set<std::string> seen;
  for (const Golden& g : goldens()) {
    if (g.kind != 0) continue;
    const std::optional<DType> type = dtype_from_name(g.name);
    ASSERT_TRUE(type) << g.name;
    const auto elems = static_cast<int64_t>(g.values.size());
    ASSERT_EQ(row_bytes(*type, elems), g.blocks.size()) << g.name;
    std::vector<float> out(g.values.size(), -77.0f);
    dequantize(*type, g.blocks.data(), out.data(), elems);
    int wrong = 0, finite = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const bool both_nan = std::isnan(out[i]) && std::isnan(g.values[i]);  // which NaN is not specified
      if (!both_nan && std::bit_cast<uint32_t>(out[i]) != std::bit_cast<uint32_t>(g.values[i])) {
        if (++wrong <= 3) ADD_FAILURE() << g.name << "[" << i << "]: expected " << g.values[i] << ", found " << out[i];
      }
      finite += std::isfinite(g.values[i]) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0) << g.name;
    EXPECT_GT(finite, static_cast<int>(out.size()) / 2) << g.name << ": the golden itself is not worth comparing";
    seen.insert(g.name);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kDTypeCount));
}

TEST(DType, QuantisesAsTheGgufPackageByteForByte) {
  int seen = 0;
  for (const Golden& g : goldens()) {
    if (g.kind != 1) continue;
    const DType type = dtype_from_name(g.name).value();
    std::vector<uint8_t> out(g.blocks.size(), 0xee);
    quantize(type, g.values.data(), out.data(), static_cast<int64_t>(g.values.size()));
    EXPECT_TRUE(out == g.blocks) << g.name;
    ++seen;
  }
  EXPECT_EQ(seen, 8);
}

TEST(DType, TraitsAreThoseOfTheFormat) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType type = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_ggml(traits(type).ggml_type), type);
    EXPECT_EQ(dtype_from_name(traits(type).name), type);
  }
  EXPECT_EQ(dtype_from_ggml(4), std::nullopt);  // a retired type
  EXPECT_EQ(dtype_from_ggml(99), std::nullopt);
  EXPECT_EQ(dtype_from_name("q4_0"), std::nullopt);
}

TEST(DType, RowBytesRefusesPartsOfBlocksAndOverflow) {
  EXPECT_EQ(row_bytes(DType::Q4_1, 576), 360u);
  EXPECT_EQ(row_bytes(DType::F32, 0), 0u);
  EXPECT_THROW(row_bytes(DType::Q4_0, 31), Error);
  EXPECT_THROW(row_bytes(DType::Q6_K, 128), Error);
  EXPECT_THROW(row_bytes(DType::F16, -1), Error);
  EXPECT_THROW(row_bytes(DType::F32, std::numeric_limits<int64_t>::max()), Error);
  float out[32];
  EXPECT_THROW(dequantize(DType::Q4_0, nullptr, out, 16), Error);
}

double squared_error(DType type, const std::vector<uint8_t>& blocks, const std::vector<float>& values) {
  std::vector<float> back(values.size());
  dequantize(type, blocks.data(), back.data(), static_cast<int64_t>(values.size()));
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += (double(back[i]) - values[i]) * (double(back[i]) - values[i]);
  return sum;
}

// Made by tensor/testdata/make_k_goldens.py: blocks that llama.cpp's quantiser makes of the same values.
TEST(DType, SearchedQuantisersLeaveNoMoreErrorThanLlamaCpp) {
  int seen = 0;
  for (const Golden& g : goldens("tensor/testdata/k_goldens.bin")) {
    const DType type = dtype_from_name(g.name).value();
    std::vector<uint8_t> ours(g.blocks.size(), 0xee);
    quantize(type, g.values.data(), ours.data(), static_cast<int64_t>(g.values.size()));
    const double mine = squared_error(type, ours, g.values), theirs = squared_error(type, g.blocks, g.values);
    EXPECT_LT(std::sqrt(mine), 1.01 * std::sqrt(theirs)) << g.name;
    ++seen;
  }
  EXPECT_EQ(seen, 8);
}

// Every code, scale and minimum must land where dequantize() looks for it.
TEST(DType, SearchedQuantisersFindValuesThatTheFormatHas) {
  for (const Golden& g : goldens()) {
    const DType type = dtype_from_name(g.name).value();
    if (g.kind != 0 || (type != DType::Q4_K && type != DType::Q6_K)) continue;
    for (size_t block = 0; block < 3; ++block) {  // of random blocks with scales of the size real weights have
      const std::vector<float> values(g.values.begin() + ptrdiff_t(256 * block),
                                      g.values.begin() + ptrdiff_t(256 * block + 256));
      std::vector<uint8_t> blocks(row_bytes(type, 256));
      quantize(type, values.data(), blocks.data(), 256);
      double squares = 0;
      for (const float v : values) squares += double(v) * v;
      EXPECT_LT(squared_error(type, blocks, values), 1e-3 * squares) << g.name << " " << block;
    }
  }
}

TEST(DType, SearchedQuantisersTakeConstantsZerosAndTinyValues) {
  for (const DType type : {DType::Q4_K, DType::Q6_K})
    for (const float value : {0.f, 1.5f, -1.5f, 1e-41f, -1e-8f, 65000.f}) {
      const std::vector<float> values(256, value);
      std::vector<uint8_t> blocks(row_bytes(type, 256), 0xee);
      quantize(type, values.data(), blocks.data(), 256);
      std::vector<float> back(256);
      dequantize(type, blocks.data(), back.data(), 256);
      for (const float v : back) ASSERT_NEAR(v, value, 2e-3 * std::fabs(value) + 1e-6) << traits(type).name;
    }
}

TEST(DType, QuantisersRefuseTypesTheyDoNotKnow) {
  const std::vector<float> in(256, 1.0f);
  std::vector<uint8_t> out(256);
  EXPECT_FALSE(has_quantizer(DType::Q5_K));
  EXPECT_THROW(quantize(DType::Q5_K, in.data(), out.data(), 256), Error);
}

TEST(DType, QuantisersTakeBlocksWhoseScaleHasNoInverse) {
  const std::vector<float> in(32, 1e-41f);  // 1 / d overflows
  for (const DType type : {DType::Q8_0, DType::Q4_0, DType::Q4_1}) {
    std::vector<uint8_t> blocks(row_bytes(type, 32));
    quantize(type, in.data(), blocks.data(), 32);
    std::vector<float> back(32, 7.0f);
    dequantize(type, blocks.data(), back.data(), 32);
    for (const float v : back) EXPECT_EQ(v, 0.0f) << traits(type).name;
  }
}

}  // namespace
}  // namespace pop
