// Weight products alone, for tuning: one thread, weights cycled through more memory than the caches hold (or, "cache", kept
// inside them). bytes_per_second counts the matrix's bytes; items are multiplications.
//   kernels_bench --benchmark_filter='dot/avx512/.*'
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "kernels/pack.h"
#include "kernels/select.h"
#include "tensor/layout.h"

namespace pop {
namespace {

struct Setup {
  const KernelTable* table;
  DType type;
  ActType act;
  Layout layout;
  int rows, cols, unit, n;
  bool in_cache;
};

struct Weights {
  AlignedBuffer memory;
  std::vector<Matrix> copies;
};

// Same random bytes with ordinary scales in each copy.
Weights make_weights(const Setup& s) {
  Matrix w{.type = s.type, .layout = s.layout, .rows = s.rows, .cols = s.cols, .unit = s.unit};
  const size_t bytes = (matrix_bytes(w) + 63) / 64 * 64, copies = s.in_cache ? 1 : 1 + (size_t(256) << 20) / bytes;
  Weights all{AlignedBuffer(bytes * copies), {}};
  std::mt19937 random(1);
  std::vector<float> x(size_t(s.cols));
  std::vector<uint8_t> row(row_bytes(s.type, s.cols));
  for (int r = 0; r < s.rows; ++r) {
    for (float& v : x) v = std::normal_distribution<float>(0, 0.02f)(random);
    quantize(s.type, x.data(), row.data(), s.cols);
    write_row(w, r, row.data(), all.memory.data());
  }
  for (size_t i = 0; i < copies; ++i) {
    if (i > 0) std::memcpy(all.memory.data() + i * bytes, all.memory.data(), bytes);
    w.data = all.memory.data() + i * bytes;
    all.copies.push_back(w);
  }
  return all;
}

void run(benchmark::State& state, const Setup& s, bool gemm) {
  const Weights weights = make_weights(s);
  const KernelTable& t = *s.table;
  Acts x{.type = s.act, .layout = s.layout, .n = s.n, .cols = s.cols, .stride = t.acts_bytes(s.act, s.layout, s.cols)};
  AlignedBuffer acts(x.stride * size_t(s.n + kActsGroup) + 64), y(size_t(s.n) * size_t(s.rows) * 4 + 64);
  std::vector<float> values(size_t(s.cols) * size_t(s.n));
  std::mt19937 random(2);
  for (float& v : values) v = std::normal_distribution<float>(0, 1)(random);
  pack_rows(t, s.act, s.layout, values.data(), size_t(s.cols), 0, s.n, s.cols, acts.data());
  x.data = acts.data();
  float* out = y.as<float>().data();
  size_t i = 0;
  for (auto _ : state) {
    const Matrix& w = weights.copies[i++ % weights.copies.size()];
    const IndexList units{nullptr, s.rows / s.unit}, columns{nullptr, s.cols};
    if (s.layout == Layout::Rows) {
      (gemm ? t.gemm_units : t.dot_units)(w, x, units, 0, units.count, out, size_t(s.rows));
    } else if (gemm) {
      t.gemm_columns(w, x, 0, s.rows, out, size_t(s.rows));
    } else {
      t.axpy_columns(w, x, 0, columns, 0, columns.count, 0, s.rows, out);
    }
    benchmark::DoNotOptimize(out);
  }
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(matrix_bytes(weights.copies[0])));
  state.SetItemsProcessed(int64_t(state.iterations()) * s.rows * s.cols * s.n);
}

void add(const char* kind, const Setup& s, bool gemm) {
  constexpr const char* kActs[] = {"f32", "bf16", "i16", "i8"};
  if ((gemm ? s.table->effective_prefill : s.table->effective)(s.act, s.type, s.layout) != s.act) return;
  const std::string name = std::string(kind) + "/" + s.table->name + "/" + traits(s.type).name + "/" +
                           kActs[size_t(s.act)] + "/" + std::to_string(s.rows) + "x" + std::to_string(s.cols) +
                           (s.in_cache ? "/cache" : "/memory") + (s.n > 1 ? "/n:" + std::to_string(s.n) : "");
  benchmark::RegisterBenchmark(name.c_str(), [s, gemm](benchmark::State& state) { run(state, s, gemm); });
}

void add_all() {
  for (const char* isa : built_isas()) {
    if (!isa_available(isa)) continue;
    const KernelTable* t = &select_kernels(isa);
    for (const DType type : {DType::Q4_1, DType::Q8_0, DType::Q4_0, DType::F16, DType::BF16, DType::F32})
      for (const ActType act : {ActType::BF16, ActType::I16, ActType::I8, ActType::F32})
        for (const bool cache : {true, false})
          for (const auto& [rows, cols, unit] : {std::tuple{768, 576, 2}, {3072, 576, 2}, {4096, 11008, 1}}) {
            if (cache != (rows == 768)) continue;
            for (const int n : {1, 8}) add("dot", {t, type, act, Layout::Rows, rows, cols, unit, n, cache}, false);
            add("axpy",
                {t, type, act, Layout::Columns, cols == 576 ? 576 : rows, cols == 576 ? rows / 2 : cols, 1, 1, cache},
                false);
            if (rows != 768) {
              add("gemm", {t, type, act, Layout::Rows, rows, cols, unit, 128, true}, true);
              add("gemm_columns",
                  {t, type, act, Layout::Columns, cols == 576 ? 576 : rows, cols == 576 ? rows / 2 : cols, 1, 128,
                   true},
                  true);
            }
          }
  }
}

}  // namespace
}  // namespace pop

int main(int argc, char** argv) {
  pop::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
