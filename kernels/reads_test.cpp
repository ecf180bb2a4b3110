// A kernel reads nothing of a matrix but the lines of what is listed. All other lines are filled with NaN patterns, which
// must not show in the result, and, where AddressSanitizer is built in, poisoned, so that a read of them ends the test.
#include <functional>

#include "base/sanitizer.h"
#include "kernels/test_matrix.h"

namespace pop::kernel_test {
namespace {

class Reads : public IsaTest {};

using Run = std::function<std::vector<float>(const Matrix&)>;

void poison(const Matrix& w, IndexList list, bool on) {
  if constexpr (!kAddressSanitizer) return;
  for (const auto& [begin, end] : unread_ranges(w, list))
    (on ? poison_memory : unpoison_memory)(w.data + begin, end - begin);
}

void check_reads(TestMatrix& m, IndexList list, const Run& run, const std::string& what) {
  const std::vector<float> want = run(m.w);
  for (const auto& [begin, end] : unread_ranges(m.w, list)) std::memset(m.memory.data() + begin, 0xff, end - begin);
  poison(m.w, list, true);
  const std::vector<float> got = run(m.w);
  poison(m.w, list, false);
  ASSERT_TRUE(same_bits(got, want)) << what;
}

TEST_P(Reads, UnitsListedOnly) {
  uint32_t seed = 1;
  for (int t = 0; t < kDTypeCount; ++t)
    for (const ActType act : {ActType::F32, ActType::I16, ActType::I8})
      for (const int blocks : {1, 2, 5, 18, 31})
        for (const int unit : {1, 2})
          for (const bool gemm : {false, true}) {
            const DType type = DType(t);
            if (table().effective(act, type, Layout::Rows) != act) continue;
            const int units = 40, cols = is_plain(type) ? blocks * 13 + 1 : blocks * traits(type).block_elems;
            TestMatrix m = random_matrix(type, Layout::Rows, units * unit, cols, unit, ++seed);
            const TestActs x = pack(table(), act, Layout::Rows, random_vector(3 * cols, ++seed), 3, cols);
            const std::vector<int32_t> picked = random_list(units, 0.2, ++seed);
            const IndexList list{picked.data(), int(picked.size())};
            const auto run = [&](const Matrix& w) {
              std::vector<float> y(size_t(3 * w.rows), 0.f);
              (gemm ? table().gemm_units : table().dot_units)(w, x.acts, list, 0, list.count, y.data(), size_t(w.rows));
              return y;
            };
            check_reads(m, list, run, std::string(traits(type).name) + " " + act_name(act) + (gemm ? " gemm" : " dot"));
          }
}

TEST_P(Reads, ScoredUnitsOnly) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = DType(t);
    const int units = 40, cols = is_plain(type) ? 131 : 3 * traits(type).block_elems;
    TestMatrix m = random_matrix(type, Layout::Rows, units * 2, cols, 2, 7);
    const std::vector<float> x = random_vector(cols, 8);
    const std::vector<int32_t> picked = random_list(units, 0.2, 9);
    const IndexList list{picked.data(), int(picked.size())};
    const auto run = [&](const Matrix& w) {
      std::vector<float> out(units, 0.f);
      table().abs_scores(w, x.data(), Norm::Two, list, 0, list.count, out.data());
      return out;
    };
    check_reads(m, list, run, traits(type).name);
  }
}

TEST_P(Reads, ColumnsListedOnly) {
  uint32_t seed = 1;
  for (int t = 0; t < kDTypeCount; ++t)
    for (const ActType act : {ActType::F32, ActType::I16, ActType::I8})
      for (const int rows : {1, 64, 130, 192, 576})
        for (const double keep : {0.02, 0.3}) {
          const DType type = DType(t);
          if (!has_columns_layout(type) || table().effective(act, type, Layout::Columns) != act) continue;
          const int cols = traits(type).block_elems == 256 ? 768 : 224;
          TestMatrix m = random_matrix(type, Layout::Columns, rows, cols, 1, ++seed);
          const TestActs x = pack(table(), act, Layout::Columns, random_vector(cols, ++seed), 1, cols);
          const std::vector<int32_t> picked = random_list(cols, keep, ++seed);
          const IndexList list{picked.data(), int(picked.size())};
          const auto run = [&](const Matrix& w) {
            std::vector<float> y(size_t(w.rows), 0.f);
            table().axpy_columns(w, x.acts, 0, list, 0, list.count, 0, w.rows, y.data());
            return y;
          };
          check_reads(m, list, run, std::string(traits(type).name) + " " + act_name(act) + " " + std::to_string(rows));
        }
}

INSTANTIATE_TEST_SUITE_P(Isa, Reads, ::testing::ValuesIn(built_isas().begin(), built_isas().end()), isa_name);

}  // namespace
}  // namespace pop::kernel_test
