#include "prune/importance.h"

#include <gtest/gtest.h>

#include "prune/toy_model.h"
#include "tensor/dtype.h"

namespace pop {
namespace {

std::vector<float> norms_of(std::span<const Matrix> stack, Norm norm) {
  const auto cols = static_cast<size_t>(stack.front().cols);
  std::vector<float> row(cols), out(cols);
  std::vector<double> sums(cols);
  column_norms(stack, norm, row, sums, out);
  return out;
}

TEST(ColumnNorms, ByHand) {
  for (const Layout layout : {Layout::Rows, Layout::Columns}) {
    std::deque<AlignedBuffer> memory;
    const Matrix w[] = {make_matrix(memory, layout, 3, 2, 1, {3, 0, -4, 1, 0, -2})};
    EXPECT_EQ(norms_of(w, Norm::One), (std::vector<float>{7, 3}));
    EXPECT_EQ(norms_of(w, Norm::Two), (std::vector<float>{5, std::sqrt(5.f)}));
    EXPECT_EQ(norms_of(w, Norm::Max), (std::vector<float>{4, 2}));
  }
}

TEST(ColumnNorms, OfAStackByHand) {
  std::deque<AlignedBuffer> memory;
  const Matrix stack[] = {make_matrix(memory, Layout::Rows, 1, 2, 1, {1, -2}),
                          make_matrix(memory, Layout::Rows, 2, 2, 2, {2, 3, -2, 6})};
  EXPECT_EQ(norms_of(stack, Norm::One), (std::vector<float>{5, 11}));
  EXPECT_EQ(norms_of(stack, Norm::Two), (std::vector<float>{3, 7}));  // 1 + 4 + 4, 4 + 9 + 36
  EXPECT_EQ(norms_of(stack, Norm::Max), (std::vector<float>{2, 6}));
}

// A float32 sum would lose each of the ones.
TEST(ColumnNorms, SumsInFloat64) {
  std::deque<AlignedBuffer> memory;
  std::vector<float> tall(4097, 1);
  tall[0] = 4096;  // 2^24 + 4096 ones
  const Matrix w[] = {make_matrix(memory, Layout::Rows, 4097, 1, 1, tall)};
  EXPECT_EQ(norms_of(w, Norm::Two)[0], static_cast<float>(std::sqrt(16777216.0 + 4096)));
  EXPECT_NE(norms_of(w, Norm::Two)[0], 4096.f);
}

TEST(ColumnNorms, OfQuantisedValuesAsStored) {
  std::mt19937 random(1);
  const int rows = 5, cols = 64;
  const std::vector<float> values = normal_floats(random, rows * cols);
  for (const DType type : {DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::BF16}) {
    for (const Layout layout : {Layout::Rows, Layout::Columns}) {
      Matrix w;
      w.type = type;
      w.layout = layout;
      w.rows = rows;
      w.cols = cols;
      AlignedBuffer bytes(matrix_bytes(w));
      std::vector<uint8_t> file_row(row_bytes(type, cols));
      std::vector<float> back(cols);
      std::vector<double> sums(cols);
      for (int r = 0; r < rows; ++r) {
        quantize(type, values.data() + r * cols, file_row.data(), cols);
        dequantize(type, file_row.data(), back.data(), cols);
        for (size_t c = 0; c < cols; ++c) sums[c] += static_cast<double>(back[c]) * static_cast<double>(back[c]);
        write_row(w, r, file_row.data(), bytes.data());
      }
      w.data = bytes.data();
      const std::vector<float> norms = norms_of({&w, 1}, Norm::Two);
      for (size_t c = 0; c < cols; ++c) ASSERT_EQ(norms[c], static_cast<float>(std::sqrt(sums[c])));
    }
  }
}

TEST(ColumnNorms, TablesOnAnyNumberOfThreads) {
  const ToyModel model(3, 7, 29, 5, 3, 2);
  ThreadPool one(1), three(3);
  std::vector<std::vector<Matrix>> stacks;
  for (const LayerWeights& layer : model.context(one).layers) {
    stacks.push_back({layer.q, layer.k});
    stacks.push_back({layer.ffns[0].down});
  }
  const auto tables = column_norm_tables(stacks, Norm::Two, one);
  EXPECT_EQ(tables, column_norm_tables(stacks, Norm::Two, three));
  ASSERT_EQ(tables.size(), 6u);
  EXPECT_EQ(tables[3], norms_of(stacks[3], Norm::Two));
}

TEST(Scores, DownByHand) {
  const std::vector<double> sums = {4, 0, 2, 9};
  const std::vector<float> norms = {3, 5, 0.5f, 0};
  std::vector<float> scores(4);
  down_scores(sums, norms, scores);
  EXPECT_EQ(scores, (std::vector<float>{6, 0, static_cast<float>(std::sqrt(2.0) / 2), 0}));
}

// d = 2, f = 2: gate (1, -2), (0, 3); up (2, 1), (-1, 0). Of x: squares sum to 9 and 4, so norms are 3 and 2.
// Channel 0: (1 + 2) * 3 = 9 and (2 + 1) * 2 = 6; channel 1: (0 + 1) * 3 = 3 and (3 + 0) * 2 = 6.
TEST(Scores, GateUpByHand) {
  ThreadPool pool(2);
  for (const Layout layout : {Layout::Rows, Layout::Columns}) {
    std::deque<AlignedBuffer> memory;
    const Matrix gate_up = make_matrix(memory, layout, 4, 2, 2, {1, -2, 2, 1, 0, 3, -1, 0});
    PolicyContext context;
    context.kernels = &select_kernels("scalar");
    context.pool = &pool;
    const std::vector<double> sums = {9, 4};
    std::vector<float> x_norm(2), scores(2);
    gate_up_scores(context, gate_up, sums, Norm::One, x_norm, scores);
    EXPECT_EQ(scores, (std::vector<float>{15, 9}));
    gate_up_scores(context, gate_up, sums, Norm::Max, x_norm, scores);
    EXPECT_EQ(scores, (std::vector<float>{9, 6}));
    gate_up_scores(context, gate_up, sums, Norm::Two, x_norm, scores);
    EXPECT_FLOAT_EQ(scores[0], std::sqrt(117.f));
    EXPECT_FLOAT_EQ(scores[1], std::sqrt(45.f));
  }
}

TEST(Scores, BothLayoutsOverManyChannels) {
  ThreadPool pool(3);
  const ToyModel rows(1, 70, 601, 5, 3, 9, Layout::Rows), columns(1, 70, 601, 5, 3, 9, Layout::Columns);
  const PolicyContext a = rows.context(pool), b = columns.context(pool);
  const std::vector<double> sums(70, 2);
  std::vector<float> x_norm(70), scores_a(601), scores_b(601);
  for (const Norm norm : {Norm::One, Norm::Two, Norm::Max}) {
    gate_up_scores(a, a.ffns[0]->gate_up, sums, norm, x_norm, scores_a);
    gate_up_scores(b, b.ffns[0]->gate_up, sums, norm, x_norm, scores_b);
    for (size_t i = 0; i < scores_a.size(); ++i) ASSERT_FLOAT_EQ(scores_a[i], scores_b[i]);
  }
}

// Chunk sums are never added: that would round differently.
TEST(AccumulateSquares, ContinuesTokenByToken) {
  ThreadPool pool(2);
  PolicyContext context;
  context.kernels = &select_kernels("scalar");
  context.pool = &pool;
  std::mt19937 random(3);
  const int tokens = 50, width = 700;
  const std::vector<float> x = normal_floats(random, static_cast<size_t>(tokens) * width);
  std::vector<double> expected(width);
  for (size_t i = 0; i < x.size(); ++i) expected[i % width] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (const int chunk : {1, 7, 50}) {
    std::vector<double> sums(width);
    for (int t = 0; t < tokens; t += chunk) {
      accumulate_squares(context, x.data() + static_cast<size_t>(t) * width, std::min(chunk, tokens - t), width, sums);
    }
    EXPECT_EQ(sums, expected) << chunk;
  }
}

}  // namespace
}  // namespace pop
