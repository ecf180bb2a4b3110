// Weight products of every table: values against float64, instruction sets against the scalar table, and the Bits rule.
//
// Tolerance: a float32 sum of N terms differs from the exact one by at most N * 2^-24 * sum|term| in any order, and each
// term carries up to 3 roundings of its own; so (N + 4) * 2^-24 * sum|term|. F32: N = columns. Integer activations: sums
// inside a block of 32 are exact, N = 2 terms per block, and x is what quantising by the rule of acts.h makes of it. BF16:
// N = columns, x and weights rounded.
#include <algorithm>

#include "base/float16.h"
#include "kernels/test_matrix.h"

namespace pop::kernel_test {
namespace {

struct Case {
  DType type;
  ActType act;
  Layout layout;
  int rows, cols, unit;
};

std::string name_of(const Case& c) {
  return std::string(traits(c.type).name) + " x " + act_name(c.act) +
         (c.layout == Layout::Rows ? " rows " : " columns ") + std::to_string(c.rows) + "x" + std::to_string(c.cols) +
         " unit " + std::to_string(c.unit);
}

std::vector<Case> cases(const KernelTable& table, Layout layout, bool prefill) {
  std::vector<Case> all;
  const auto add = [&](DType type, ActType act, int rows, int cols) {
    if ((prefill ? table.effective_prefill : table.effective)(act, type, layout) != act) return;
    all.push_back({type, act, layout, rows, cols, 1});
    if (layout == Layout::Rows && rows % 2 == 0) all.push_back({type, act, layout, rows, cols, 2});
  };
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = DType(t);
    if (layout == Layout::Columns && !has_columns_layout(type)) continue;
    for (const ActType act : {ActType::F32, ActType::BF16, ActType::I16, ActType::I8}) {
      if (is_plain(type)) {
        for (const int cols : {1, 7, 33, 100, 576})
          for (const int rows : {1, 3, 65}) add(type, act, rows, cols);
        add(type, act, 64, 100);
        add(type, act, 578, 130);
        if (prefill) add(type, act, 66, 2100);  // several slabs of amx.cpp, the last one short
      } else if (is_fast_block(type)) {
        // Rows of part of a group of 32 blocks, of one, of several and a part, every length of the last chunks.
        const int step = traits(type).block_elems;
        if (layout == Layout::Columns && step == 256) {  // blocks do not know of each other
          for (const int rows : {1, 3, 65}) add(type, act, rows, 512);
          add(type, act, 194, 256);
          continue;
        }
        for (const int steps : {1, 3, 7, 8, 13, 18})
          for (const int rows : {1, 3, 65}) add(type, act, rows, step * steps);
        add(type, act, 64, step == 32 ? 96 : 1024);
        add(type, act, 578, step == 32 ? 576 : 768);
        add(type, act, 130, step == 32 ? 32 * 34 : 256 * 5);
        if (step == 32) add(type, act, 3, 32 * 79);
        if (step != 32 && prefill) add(type, act, 34, 256 * 9);
      } else {
        for (const int rows : {1, 6}) add(type, act, rows, 256 * rows);
      }
    }
  }
  return all;
}

// What x becomes, by the rule of acts.h, in its own order.
std::vector<double> prepared(const std::vector<float>& x, ActType act) {
  std::vector<double> out(x.begin(), x.end());
  if (act == ActType::F32) return out;
  if (act == ActType::BF16) {
    for (double& v : out) v = bf16_to_f32(f32_to_bf16(float(v)));
    return out;
  }
  const float steps = act == ActType::I8 ? 127.f : 32512.f;
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float inverse = steps / largest, scale = largest / steps;
    for (size_t i = b; i < b + 32; ++i) {
      out[i] = largest == 0 ? 0 : double(std::nearbyint(x[i] * inverse)) * double(scale);
      EXPECT_LE(std::fabs(out[i] - double(x[i])), 0.51 * double(scale));
    }
  }
  return out;
}

struct Expected {
  std::vector<double> value, tolerance;  // [n, rows]
};

// Terms of a block type are (|w| + |min|) |x| and |min x| at most. Of two codes c < d of a block, min = (d w_c - c w_d) / (d - c);
// 32 random codes hold some near 0 and near 15, so |min| stays below 2 max|w| of the block, and the terms below
// (|w| + 4 max|w|) |x|.
Expected expected(const Case& c, const TestMatrix& m, const std::vector<float>& x, int n,
                  const std::vector<bool>& columns = {}) {
  Expected e{std::vector<double>(size_t(n * c.rows)), std::vector<double>(size_t(n * c.rows))};
  const size_t cols = size_t(c.cols);
  const bool integer = c.act == ActType::I8 || c.act == ActType::I16;
  std::vector<float> values = m.values;
  if (c.act == ActType::BF16)
    for (float& v : values) v = bf16_to_f32(f32_to_bf16(v));
  for (int t = 0; t < n; ++t) {
    const std::vector<double> xs = prepared({x.begin() + t * c.cols, x.begin() + (t + 1) * c.cols}, c.act);
    for (int r = 0; r < c.rows; ++r) {
      const float* w = values.data() + size_t(r) * cols;
      double sum = 0, terms = 0;
      for (size_t b = 0; b < cols; b += 32) {
        double largest = 0;
        for (size_t k = b; integer && k < b + 32; ++k) largest = std::max(largest, std::fabs(double(w[k])));
        for (size_t k = b; k < std::min(cols, b + 32); ++k) {
          if (!columns.empty() && !columns[k]) continue;
          sum += double(w[k]) * xs[k];
          terms += (std::fabs(double(w[k])) + 4 * largest) * std::fabs(xs[k]);
        }
      }
      e.value[size_t(t * c.rows + r)] = sum;
      e.tolerance[size_t(t * c.rows + r)] = ((integer ? c.cols / 16 : c.cols) + 4) * 0x1p-24 * terms + 1e-30;
    }
  }
  return e;
}

void expect_near(const Expected& e, const std::vector<float>& y, const std::string& what) {
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_LE(std::fabs(double(y[i]) - e.value[i]), e.tolerance[i])
        << what << " output " << i << ": " << y[i] << " for " << e.value[i];
}

void expect_near(const Expected& e, const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::fabs(double(a[i]) - double(b[i])), 2 * e.tolerance[i]) << what << " output " << i;
}

class Products : public IsaTest {};

using UnitsFn = void (*)(const Matrix&, const Acts&, IndexList, int, int, float*, size_t);

std::vector<float> run_units(UnitsFn f, const Matrix& w, const Acts& x, IndexList list) {
  std::vector<float> y(size_t(x.n * w.rows), -77.f);
  f(w, x, list, 0, list.count, y.data(), size_t(w.rows));
  return y;
}

// Row t of x prepared without the others.
TestActs alone(const KernelTable& table, const Case& c, const std::vector<float>& x, int t) {
  return pack(table, c.act, c.layout, {x.begin() + t * c.cols, x.begin() + (t + 1) * c.cols}, 1, c.cols);
}

// One row of x alone, the list in pieces, a random list, a packed copy: the same bits, and nothing written beside them.
void check_unit_bits(const KernelTable& table, UnitsFn f, const Case& c, const TestMatrix& m,
                     const std::vector<float>& values, const Acts& x, const std::vector<float>& whole, uint32_t seed) {
  const int units = c.rows / c.unit;
  for (int t = 0; t < x.n; ++t) {
    const TestActs one = alone(table, c, values, t);
    const std::vector<float> y = run_units(f, m.w, one.acts, {nullptr, units});
    ASSERT_EQ(std::memcmp(y.data(), whole.data() + t * c.rows, y.size() * 4), 0) << name_of(c) << " row of x " << t;
  }
  std::vector<float> cut(whole.size(), -77.f);
  for (int begin = 0, step = 1; begin < units; begin += step, step = step * 2 + 1)
    f(m.w, x, {nullptr, units}, begin, std::min(units, begin + step), cut.data(), size_t(c.rows));
  ASSERT_TRUE(same_bits(cut, whole)) << name_of(c) << " cut";
  for (const double keep : {0.0, 0.3, 1.0}) {
    const std::vector<int32_t> picked = random_list(units, keep, seed);
    const IndexList list{picked.data(), int(picked.size())};
    std::vector<float> only(whole.size(), -77.f);
    for (int t = 0; t < x.n; ++t)
      for (const int32_t u : picked)
        for (int k = 0; k < c.unit; ++k)
          only[size_t(t * c.rows + u * c.unit + k)] = whole[size_t(t * c.rows + u * c.unit + k)];
    ASSERT_TRUE(same_bits(run_units(f, m.w, x, list), only)) << name_of(c) << " list";
    AlignedBuffer memory(pack_bytes(m.w, list));
    PackedTables tables;
    const Matrix packed = pop::pack(m.w, list, memory.data(), tables);
    ASSERT_TRUE(same_bits(run_units(f, packed, x, list), only)) << name_of(c) << " packed";
  }
}

void check_units(const KernelTable& table, UnitsFn f, UnitsFn reference, int n, bool prefill) {
  uint32_t seed = 1;
  for (const Case& c : cases(table, Layout::Rows, prefill)) {
    const TestMatrix m = random_matrix(c.type, c.layout, c.rows, c.cols, c.unit, ++seed);
    const std::vector<float> x = random_vector(n * c.cols, ++seed);
    const TestActs acts = pack(table, c.act, c.layout, x, n, c.cols);
    const std::vector<float> y = run_units(f, m.w, acts.acts, {nullptr, c.rows / c.unit});
    const Expected e = expected(c, m, x, n);
    expect_near(e, y, name_of(c));
    expect_near(e, y, run_units(reference, m.w, acts.acts, {nullptr, c.rows / c.unit}), name_of(c) + " scalar");
    check_unit_bits(table, f, c, m, x, acts.acts, y, seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(Products, DotUnits) { check_units(table(), table().dot_units, scalar().dot_units, 7, false); }  // 4 + 2 + 1

constexpr int kBatch = 37;  // 4 * 8 + 4 + 1, 32 + 5: every number of rows that the kernels take at once

TEST_P(Products, GemmUnits) { check_units(table(), table().gemm_units, scalar().gemm_units, kBatch, true); }

std::vector<float> run_axpy(const KernelTable& table, const Matrix& w, const Acts& x, int r, IndexList list) {
  std::vector<float> y(size_t(w.rows), -77.f);
  table.axpy_columns(w, x, r, list, 0, list.count, 0, w.rows, y.data());
  return y;
}

TEST_P(Products, AxpyColumns) {
  uint32_t seed = 1;
  for (const Case& c : cases(table(), Layout::Columns, false)) {
    const TestMatrix m = random_matrix(c.type, c.layout, c.rows, c.cols, 1, ++seed);
    const std::vector<float> x = random_vector(2 * c.cols, ++seed);
    const TestActs acts = pack(table(), c.act, c.layout, x, 2, c.cols);
    const std::vector<float> full = run_axpy(table(), m.w, acts.acts, 1, {nullptr, c.cols});
    for (const double keep : {0.0, 0.2, 0.7, 1.0}) {
      const std::vector<int32_t> picked = random_list(c.cols, keep, seed);
      const IndexList list{picked.data(), int(picked.size())};
      std::vector<bool> columns(size_t(c.cols), false);
      for (const int32_t k : picked) columns[size_t(k)] = true;
      const Expected e = expected(c, m, {x.begin() + c.cols, x.end()}, 1, columns);
      const std::vector<float> y = run_axpy(table(), m.w, acts.acts, 1, list);
      expect_near(e, y, name_of(c));
      expect_near(e, y, run_axpy(scalar(), m.w, acts.acts, 1, list), name_of(c) + " scalar");
      ASSERT_TRUE(keep < 1.0 || same_bits(y, full)) << name_of(c) << " explicit full list";
      AlignedBuffer memory(pack_bytes(m.w, list));
      PackedTables tables;
      ASSERT_TRUE(same_bits(run_axpy(table(), pop::pack(m.w, list, memory.data(), tables), acts.acts, 1, list), y))
          << name_of(c) << " packed";
      std::vector<float> cut(y.size(), -77.f);
      for (int row = 0; row < c.rows; row += 64)
        table().axpy_columns(m.w, acts.acts, 1, list, 0, list.count, row, std::min(c.rows, row + 64), cut.data());
      ASSERT_TRUE(same_bits(cut, y)) << name_of(c) << " rows cut";
      // A list may begin and end anywhere: the part of a longer list is the list of that part.
      const int first = list.count / 3, last = list.count - list.count / 4;
      std::vector<float> part(y.size());
      table().axpy_columns(m.w, acts.acts, 1, list, first, last, 0, c.rows, part.data());
      ASSERT_TRUE(same_bits(part, run_axpy(table(), m.w, acts.acts, 1, {picked.data() + first, last - first})))
          << name_of(c) << " part";
    }
  }
}

TEST_P(Products, GemmColumns) {
  uint32_t seed = 1;
  for (const Case& c : cases(table(), Layout::Columns, true)) {
    const TestMatrix m = random_matrix(c.type, c.layout, c.rows, c.cols, 1, ++seed);
    const std::vector<float> x = random_vector(kBatch * c.cols, ++seed);
    const TestActs acts = pack(table(), c.act, c.layout, x, kBatch, c.cols);
    const auto run = [&](const KernelTable& t, const Acts& a) {
      std::vector<float> y(size_t(a.n * c.rows), -77.f);
      t.gemm_columns(m.w, a, 0, c.rows, y.data(), size_t(c.rows));
      return y;
    };
    const std::vector<float> y = run(table(), acts.acts);
    const Expected e = expected(c, m, x, kBatch);
    expect_near(e, y, name_of(c));
    expect_near(e, y, run(scalar(), acts.acts), name_of(c) + " scalar");
    for (const int t : {0, 7, kBatch - 1}) {
      const TestActs one = alone(table(), c, x, t);
      ASSERT_EQ(std::memcmp(run(table(), one.acts).data(), y.data() + t * c.rows, size_t(c.rows) * 4), 0)
          << name_of(c) << " row of x " << t;
    }
    std::vector<float> cut(y.size(), -77.f);
    for (int row = 0; row < c.rows; row += 64)
      table().gemm_columns(m.w, acts.acts, row, std::min(c.rows, row + 64), cut.data(), size_t(c.rows));
    ASSERT_TRUE(same_bits(cut, y)) << name_of(c) << " rows cut";
  }
}

// Prepared rows are the same bytes in every table; masking equals preparing and zeroing by hand.
TEST_P(Products, ActsAreTheScalarTables) {
  for (const ActType act : {ActType::F32, ActType::BF16, ActType::I16, ActType::I8})
    for (const Layout layout : {Layout::Rows, Layout::Columns})
      for (const int cols : {32, 96, 224, 576, 1536, 480}) {
        std::vector<float> x = random_vector(cols, 9, 3.f);
        x[5] = 0;
        if (cols > 64) std::fill(x.begin() + 32, x.begin() + 64, cols > 500 ? 0.f : 1e-33f);
        const TestActs a = pack(table(), act, layout, x, 1, cols), b = pack(scalar(), act, layout, x, 1, cols);
        ASSERT_EQ(a.acts.stride, b.acts.stride);
        ASSERT_EQ(std::memcmp(a.acts.data, b.acts.data, a.acts.stride), 0) << act_name(act) << " " << cols;
      }
}

TEST_P(Products, MaskedColumnsCountAsZero) {
  for (const DType type : {DType::F32, DType::Q8_0, DType::Q4_0, DType::Q4_1})
    for (const ActType asked : {ActType::F32, ActType::I16, ActType::I8}) {
      const Case c{type, table().effective(asked, type, Layout::Rows), Layout::Rows, 5, 544, 1};
      const TestMatrix m = random_matrix(c.type, c.layout, c.rows, c.cols, 1, 3);
      const std::vector<float> x = random_vector(c.cols, 4);
      TestActs acts = pack(table(), c.act, c.layout, x, 1, c.cols);
      const std::vector<int32_t> keep = random_list(c.cols, 0.6, 5);
      table().mask_acts(c.act, c.layout, c.cols, {keep.data(), int(keep.size())}, acts.memory.data());
      std::vector<bool> columns(size_t(c.cols), false);
      for (const int32_t k : keep) columns[size_t(k)] = true;
      expect_near(expected(c, m, x, 1, columns), run_units(table().dot_units, m.w, acts.acts, {nullptr, c.rows}),
                  name_of(c));
    }
}

// A NaN or infinity in x must reach the result: the engine's check for finite logits relies on it.
TEST_P(Products, NonFiniteInputsAreNotHidden) {
  for (const DType type : {DType::F32, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_1})
    for (const ActType asked : {ActType::F32, ActType::I16, ActType::I8})
      for (const float bad : {NAN, INFINITY, -INFINITY})
        for (const Layout layout : {Layout::Rows, Layout::Columns}) {
          const ActType act = table().effective(asked, type, layout);
          const TestMatrix m = random_matrix(type, layout, 64, 96, 1, 3);
          std::vector<float> x = random_vector(96, 4);
          x[40] = bad;
          const TestActs acts = pack(table(), act, layout, x, 1, 96);
          std::vector<float> y(64), z(64);
          if (layout == Layout::Rows) {
            table().dot_units(m.w, acts.acts, {nullptr, 64}, 0, 64, y.data(), 64);
            table().gemm_units(m.w, acts.acts, {nullptr, 64}, 0, 64, z.data(), 64);
          } else {
            table().axpy_columns(m.w, acts.acts, 0, {nullptr, 96}, 0, 96, 0, 64, y.data());
            table().gemm_columns(m.w, acts.acts, 0, 64, z.data(), 64);
          }
          for (size_t i = 0; i < 64; ++i)
            ASSERT_FALSE(std::isfinite(y[i]) || std::isfinite(z[i])) << traits(type).name << " " << act_name(act);
        }
}

INSTANTIATE_TEST_SUITE_P(Isa, Products, ::testing::ValuesIn(built_isas().begin(), built_isas().end()), isa_name);

}  // namespace
}  // namespace pop::kernel_test
