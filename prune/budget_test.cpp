#include "prune/budget.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "prune/allocation.h"
#include "prune/byte_ideal.h"
#include "prune/partition.h"
#include "tensor/layout.h"

namespace pop {
namespace {

Matrix shape(int rows, int cols, DType type, int unit = 1) {
  Matrix w;
  w.type = type;
  w.rows = rows;
  w.cols = cols;
  w.unit = unit;
  return w;
}

std::vector<LayerWeights> shapes(int layers, int d, int kv, int f, DType type) {
  const LayerWeights layer = {.q = shape(d, d, type),
                              .k = shape(kv, d, type),
                              .v = shape(kv, d, type),
                              .o = shape(d, d, type),
                              .ffns = {{.gate_up = shape(2 * f, d, type, 2), .down = shape(d, f, type)}}};
  return std::vector<LayerWeights>(static_cast<size_t>(layers), layer);
}

std::vector<LayerWeights> llama_2_7b(DType type) { return shapes(32, 4096, 4096, 11008, type); }
std::vector<LayerWeights> default_model() { return shapes(30, 576, 192, 1536, DType::Q4_1); }

PruneOptions at_ratio(double ratio) {
  PruneOptions options;
  options.method = "pop";
  options.ratio = ratio;
  return options;
}

template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Budget, SparsityOfKnownModels) {  // pop-method section 2
  const BlockWeights llama = count_weights(llama_2_7b(DType::BF16));
  EXPECT_EQ(llama.attention, 32.0 * 67108864);  // 4 * 4096^2
  EXPECT_EQ(llama.ffn, 32.0 * 135266304);       // 3 * 4096 * 11008
  EXPECT_NEAR(ffn_sparsity(at_ratio(0.2), llama), 0.2992, 5e-5);
  EXPECT_NEAR(ffn_sparsity(at_ratio(0.4), llama), 0.5984, 5e-5);
  const BlockWeights smol = count_weights(default_model());
  EXPECT_NEAR(ffn_sparsity(at_ratio(0.2), smol), 0.2667, 5e-5);  // 0.2 * 4/3
  EXPECT_NEAR(ffn_sparsity(at_ratio(0.4), smol), 0.5333, 5e-5);
  EXPECT_EQ(ffn_sparsity(at_ratio(0), smol), 0);
  PruneOptions unset = at_ratio(0);
  unset.ratio.reset();
  EXPECT_EQ(ffn_sparsity(unset, smol), ffn_sparsity(at_ratio(0.2), smol));
}

TEST(Budget, NamesTheLargestRatioAndThatRatioWorks) {
  const BlockWeights llama = count_weights(llama_2_7b(DType::BF16));
  // F / (A + F) = 135266304 / 202375168 = 0.668394...
  EXPECT_NE(error_of([&] { ffn_sparsity(at_ratio(0.7), llama); }).find("0.6683"), std::string::npos);
  EXPECT_LE(ffn_sparsity(at_ratio(0.6683), llama), 1);
  EXPECT_EQ(ffn_sparsity(at_ratio(0.75), count_weights(default_model())), 1);  // F / (A + F) = 3/4
  PruneOptions plus = at_ratio(0.96);
  EXPECT_NE(error_of([&] { column_level(plus, llama); }).find("0.9500"), std::string::npos);
  plus.ratio = 0.95;
  EXPECT_EQ(column_level(plus, llama), 0.95);
  EXPECT_EQ(column_level(at_ratio(0.2), llama), 0.2);
}

TEST(Budget, OfTotalCountsEmbeddingsAndHead) {
  PruneOptions options = at_ratio(0.2);
  options.ratio_of = RatioOf::Total;
  const BlockWeights smol = count_weights(default_model());
  EXPECT_NE(error_of([&] { ffn_sparsity(options, smol); }).find("not known"), std::string::npos);
  options.total_weights = static_cast<uint64_t>(smol.all()) + 49152u * 576u;  // a tied head counts once
  // 0.2 * (106168320 + 28311552) / 79626240 = 0.337778
  EXPECT_NEAR(ffn_sparsity(options, smol), 0.337778, 1e-6);
  EXPECT_NEAR(column_level(options, smol), 0.253333, 1e-6);
  // 79626240 / 134479872 = 0.592105
  options.ratio = 0.6;
  EXPECT_NE(error_of([&] { ffn_sparsity(options, smol); }).find("0.5921"), std::string::npos);
}

TEST(Budget, RefusesWhatIsOutOfRange) {
  const BlockWeights smol = count_weights(default_model());
  for (const double bad : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(ffn_sparsity(at_ratio(bad), smol), Error);
    EXPECT_THROW(column_level(at_ratio(bad), smol), Error);
    PruneOptions options;
    options.ffn_sparsity = bad;
    EXPECT_THROW(ffn_sparsity(options, smol), Error);
  }
  PruneOptions both = at_ratio(0.2);
  both.ffn_sparsity = 0.2;
  EXPECT_THROW(ffn_sparsity(both, smol), Error);
  both.ratio.reset();
  EXPECT_EQ(ffn_sparsity(both, smol), 0.2);
}

// A layer of Qwen3-30B-A3B: attention 2048 * (2 * 4096 + 2 * 512) = 18,874,368; an expert 3 * 2048 * 768 = 4,718,592, 128 of them
// 603,979,776, the 8 of a token 37,748,736. p = 0.2 * (A + F) / F of either.
TEST(FfnSparsity, OfExperts) {
  LayerWeights layer = shapes(1, 2048, 512, 768, DType::Q4_0).front();
  layer.q = shape(4096, 2048, DType::Q4_0), layer.o = shape(2048, 4096, DType::Q4_0);
  layer.ffns.front().use = 8 / 128.0;
  layer.ffns.resize(128, layer.ffns.front());
  const BlockWeights weights = count_weights({&layer, 1});
  EXPECT_EQ(weights.attention, 18874368);
  EXPECT_EQ(weights.ffn, 603979776);
  EXPECT_EQ(weights.active_ffn, 37748736);
  PruneOptions options = at_ratio(0.2);
  EXPECT_NEAR(ffn_sparsity(options, weights), 0.20625, 1e-9);
  options.ratio_of = RatioOf::Active;
  EXPECT_NEAR(ffn_sparsity(options, weights), 0.3, 1e-9);
  EXPECT_NEAR(ratio_of_sparsity(options, weights, 0.3), 0.2, 1e-9);
  options.ratio.reset();
  options.ffn_sparsity = 0.3;
  EXPECT_NEAR(ratio_of_sparsity(options, weights, 0.3), 0.2, 1e-9);
  // A token's weights: 18,874,368 + 37,748,736 of 18 bytes in 32.
  EXPECT_NEAR(dense_bytes({&layer, 1}), 56623104 * 18 / 32.0, 1);
}

double pop_ideal(const std::vector<LayerWeights>& layers, double ratio, double head_bytes) {
  const double p = ffn_sparsity(at_ratio(ratio), count_weights(layers));
  return byte_ideal(layers, planned_row_bytes(layers, p, kDefaultGamma), head_bytes);
}

TEST(ByteIdeal, HeaderShares) {
  EXPECT_EQ(header_share(DType::F32), 0);
  EXPECT_EQ(header_share(DType::F16), 0);
  EXPECT_EQ(header_share(DType::BF16), 0);
  EXPECT_DOUBLE_EQ(header_share(DType::Q8_0), 2.0 / 34);
  EXPECT_DOUBLE_EQ(header_share(DType::Q4_0), 2.0 / 18);
  EXPECT_DOUBLE_EQ(header_share(DType::IQ4_NL), 2.0 / 18);
  EXPECT_DOUBLE_EQ(header_share(DType::Q4_1), 4.0 / 20);
  EXPECT_DOUBLE_EQ(header_share(DType::Q4_K), 16.0 / 144);
  EXPECT_DOUBLE_EQ(header_share(DType::Q5_K), 16.0 / 176);
  EXPECT_DOUBLE_EQ(header_share(DType::Q6_K), 18.0 / 210);
  for (int t = 0; t < kDTypeCount; ++t) {  // the rest of a block are its codes: at least 2 bits an element
    const DTypeTraits& block = traits(DType(t));
    EXPECT_GE((1 - header_share(DType(t))) * block.block_bytes * 8, 2.0 * block.block_elems - 1e-9) << block.name;
  }
}

// Llama-2-7B, bf16, r = 0.2: p f = 0.29922 * 11008 = 3293.9 -> K = 7714; lo f = 2743.5 -> R and C are 8265 (2743
// pruned). A layer reads 4 * 4096^2 + 2 * 4096 * 8265 + 4096 * 7714 = 166,412,288 of 202,375,168 weights; with 32
// layers and the head of 32000 * 4096: 6,607,077,376 / 5,456,265,216 = 1.2109. r = 0.4: K = 4420, R and C 4971: 1.5879.
TEST(ByteIdeal, Llama2ByHand) {
  const double head = 32000.0 * 4096;
  EXPECT_NEAR(pop_ideal(llama_2_7b(DType::BF16), 0.2, head * 2), 1.211, 5e-4);
  EXPECT_NEAR(pop_ideal(llama_2_7b(DType::BF16), 0.4, head * 2), 1.588, 5e-4);
  // r = 0.4, block types: of down u + (1 - u) * 4420/11008 = 0.4679 (u = 1/9) or 0.5212 (u = 1/5); a layer reads
  // 67,108,864 + 40,722,432 + 0.4679 * 45,088,768 (or 0.5212) of 202,375,168: 1.552 (1.525) with a head of the same
  // type.
  EXPECT_NEAR(pop_ideal(llama_2_7b(DType::Q4_0), 0.4, head * 18 / 32), 1.552, 5e-4);
  EXPECT_NEAR(pop_ideal(llama_2_7b(DType::Q4_1), 0.4, head * 20 / 32), 1.525, 5e-4);
}

// Q4_1 blocks, Q8_0 head of 49152 * 576. r = 0.2: K = 1126, R and C 1203 (333 pruned); r = 0.4: K = 717, R and C 794.
TEST(ByteIdeal, DefaultModelByHand) {
  const double head = 49152.0 * 576 * 34 / 32;
  EXPECT_NEAR(pop_ideal(default_model(), 0.2, head), 1.125, 5e-4);
  EXPECT_NEAR(pop_ideal(default_model(), 0.4, head), 1.315, 5e-4);
  EXPECT_NEAR(head / (head + dense_bytes(default_model())), 0.31, 0.005);
}

TEST(ByteIdeal, LevelForBytesUndoesPlannedColumnBytes) {
  const std::vector<LayerWeights> layers = default_model();
  // 1 - v (1 - 4/20) of everything.
  EXPECT_NEAR(planned_column_bytes(layers, {0.5, 0.5, 0.5, 0.5}), 0.6 * dense_bytes(layers), 1);
  for (const PlusRule rule : {PlusRule::Prompt, PlusRule::Sites})
    for (const double level : {0.0, 0.37, 0.8, 0.95, 0.97})
      EXPECT_NEAR(level_for_bytes(layers, planned_column_bytes(layers, spread_level(layers, level, rule)), rule), level,
                  1e-11);
}

// Of another type down_proj has no header to read: the same bytes at another level.
TEST(ByteIdeal, LevelForBytesCountsEachSiteInItsOwnBytes) {
  std::vector<LayerWeights> layers = default_model();
  for (LayerWeights& layer : layers) layer.ffns[0].down.type = DType::BF16;
  const SiteLevels even = spread_level(layers, 0.3, PlusRule::Prompt),
                   sites = spread_level(layers, 0.3, PlusRule::Sites);
  EXPECT_LT(planned_column_bytes(layers, sites), planned_column_bytes(layers, even));
  EXPECT_LT(level_for_bytes(layers, planned_column_bytes(layers, even), PlusRule::Sites), 0.3);
}

// A block's 552,960 (qkv), 331,776 (o), 1,769,472 (gate_up) and 884,736 (down) weights, by hand; from 0.8 on down is at the
// limit of 0.95, at 0.9 qkv and o are too.
TEST(PlusRule, LevelsOfTheSitesByHand) {
  const std::vector<LayerWeights> layers = default_model();
  const struct {
    double level;
    SiteLevels sites;
  } expected[] = {{0.0, {0, 0, 0, 0}},
                  {0.2, {0.190476, 0.190476, 0.152381, 0.304762}},
                  {0.4, {0.380952, 0.380952, 0.304762, 0.609524}},
                  {0.8, {0.865385, 0.865385, 0.692308, 0.95}},
                  {0.9, {0.95, 0.95, 0.85, 0.95}},
                  {0.95, {0.95, 0.95, 0.95, 0.95}}};
  for (const auto& e : expected) {
    const SiteLevels levels = spread_level(layers, e.level, PlusRule::Sites);
    for (int s = 0; s < kSites; ++s) EXPECT_NEAR(levels[s], e.sites[s], 1e-6) << e.level << " " << site_name(Site(s));
    for (const double level : spread_level(layers, e.level, PlusRule::Prompt)) EXPECT_EQ(level, e.level);
  }
}

// What a token is counted to read of a matrix in columns is u + (1 - u) * share kept of it: any type, rows a multiple of 64 (no
// padding) that make every column whole lines, some column kept in every header's.
TEST(ByteIdeal, CountedBytesOfColumnsAreTheFormula) {
  int types = 0;
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = DType(t);
    if (!has_columns_layout(type)) continue;
    ++types;
    Matrix w = shape(512, 1024, type);
    w.layout = Layout::Columns;
    std::vector<int32_t> list;
    for (int c = 0; c < w.cols; ++c)
      if (c % 5 != 0 && c % 7 != 3) list.push_back(c);
    const double all = static_cast<double>(row_bytes(type, w.cols)) * w.rows, u = header_share(type);
    const double kept = static_cast<double>(list.size()) / w.cols;
    EXPECT_EQ(static_cast<double>(matrix_bytes(w)), all) << traits(type).name;
    EXPECT_NEAR(static_cast<double>(bytes_read(w, {list.data(), static_cast<int>(list.size())})),
                all * (u + (1 - u) * kept), 1e-6 * all)
        << traits(type).name;
  }
  EXPECT_EQ(types, 12);
}

}  // namespace
}  // namespace pop
