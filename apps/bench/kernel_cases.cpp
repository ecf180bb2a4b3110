#include "apps/bench/kernel_cases.h"

#include <fmt/format.h>

#include <cstring>
#include <initializer_list>

#include "apps/bench/random_blocks.h"
#include "apps/bench/synthetic.h"
#include "tensor/layout.h"

namespace pop::app {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return text;
}

}  // namespace

Layout KernelCase::layout() const {
  const std::string_view k = kernel;
  return k == "axpy" || k == "gemm_columns" ? Layout::Columns : Layout::Rows;
}

std::string KernelCase::name() const {
  constexpr const char* kActs[] = {"f32", "bf16", "i16", "i8"};
  std::string out = fmt::format("{}/{}/{}/{}x{}", kernel, lower(traits(type).name), kActs[size_t(act)], rows, cols);
  return n > 1 ? out + fmt::format("/n:{}", n) : out;
}

std::vector<KernelCase> kernel_cases(const KernelTable& table) {
  std::vector<KernelCase> cases;
  const auto add = [&](const KernelCase& c) {
    if (c.cols % traits(c.type).block_elems != 0) return;
    if (c.layout() == Layout::Columns && !has_columns_layout(c.type)) return;
    if (table.effective(c.act, c.type, c.layout()) == c.act) cases.push_back(c);
  };
  struct Size {
    int d, f;
  };
  for (const Size s : {Size{4096, 11008}, Size{576, 1536}})
    for (const DType type : synthetic_types())
      for (const ActType act : {ActType::I16, ActType::I8, ActType::F32}) {
        add({"dot", type, act, 2 * s.f, s.d, 2, 1});
        add({"axpy", type, act, s.d, s.f, 1, 1});
        add({"gemm", type, act, 2 * s.f, s.d, 2, 128});
        add({"gemm_columns", type, act, s.d, s.f, 1, 128});
      }
  return cases;
}

KernelWeights::KernelWeights(const KernelCase& c, size_t bytes) {
  Matrix w{.type = c.type, .layout = c.layout(), .rows = c.rows, .cols = c.cols, .unit = c.unit};
  const size_t one = (matrix_bytes(w) + 63) / 64 * 64, copies = 1 + bytes / one;
  memory_ = AlignedBuffer(one * copies);
  std::vector<uint8_t> row(row_bytes(c.type, c.cols));
  for (int r = 0; r < c.rows; ++r) {
    random_row(c.type, c.cols, 0.02, mix(uint64_t(r)), row);
    write_row(w, r, row.data(), memory_.data());
  }
  for (size_t i = 0; i < copies; ++i) {
    if (i > 0) std::memcpy(memory_.data() + i * one, memory_.data(), one);
    w.data = memory_.data() + i * one;
    copies_.push_back(w);
  }
}

}  // namespace pop::app
