// The weight products that `pop bench kernels` measures: one list, by kernel, type, arithmetic and shape.
#pragma once
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"

namespace pop::app {

struct KernelCase {
  const char* kernel;  // "dot", "axpy", "gemm", "gemm_columns"
  DType type;
  ActType act;
  int rows, cols, unit, n;  // n: rows of x

  Layout layout() const;
  bool streams() const { return n == 1; }  // bound by memory: a share of the roof; else of the arithmetic peak
  std::string name() const;                // "dot/q4_0/i16/4096x11008"
};

// Of all cases those that the table has a fast path for.
std::vector<KernelCase> kernel_cases(const KernelTable& table);

// A matrix of the case's shape with random weights, several times over so that no cache holds them all.
class KernelWeights {
 public:
  KernelWeights(const KernelCase& what, size_t bytes);
  const std::vector<Matrix>& copies() const { return copies_; }

 private:
  AlignedBuffer memory_;
  std::vector<Matrix> copies_;
};

}  // namespace pop::app
