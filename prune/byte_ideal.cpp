#include "prune/byte_ideal.h"

#include <initializer_list>

#include "prune/allocation.h"
#include "tensor/dtype.h"

namespace pop {
namespace {

// In double and without rounding up to whole blocks: an ideal, defined for any shape.
double bytes(const Matrix& w) {
  const DTypeTraits& t = traits(w.type);
  return static_cast<double>(w.rows) * static_cast<double>(w.cols) * t.block_bytes / t.block_elems;
}

template <class Body>
void for_each_matrix(std::span<const LayerWeights> layers, Body body) {  // body(matrix, its site)
  for (const LayerWeights& l : layers) {
    for (const Matrix* w : {&l.q, &l.k, &l.v}) body(*w, Site::Qkv);
    body(l.o, Site::O);
    body(l.gate_up, Site::GateUp);
    body(l.down, Site::Down);
  }
}

double level_of(const SiteLevels& levels, Site site) { return levels[static_cast<size_t>(site)]; }

}  // namespace

double header_share(DType type) {
  const auto share = [&](int header) { return static_cast<double>(header) / traits(type).block_bytes; };
  switch (type) {
    case DType::F32:
    case DType::F16:
    case DType::BF16: return 0;
    case DType::Q4_0:
    case DType::Q5_0:
    case DType::Q8_0:
    case DType::IQ4_NL: return share(2);  // float16 scale
    case DType::Q4_1:
    case DType::Q5_1: return share(4);   // float16 scale and minimum
    case DType::Q2_K: return share(20);  // 16 bytes of 4-bit scales and minima, two float16
    case DType::Q3_K: return share(14);  // 12 bytes of 6-bit scales, one float16
    case DType::Q4_K:
    case DType::Q5_K: return share(16);   // 12 bytes of 6-bit scales and minima, two float16
    case DType::Q6_K: return share(18);   // 16 8-bit scales, one float16
    case DType::IQ4_XS: return share(8);  // 6 bytes of 6-bit scales, one float16
  }
  return 1;
}

double dense_bytes(std::span<const LayerWeights> layers) {
  double sum = 0;
  for_each_matrix(layers, [&](const Matrix& w, Site) { sum += bytes(w); });
  return sum;
}

double planned_row_bytes(std::span<const LayerWeights> layers, int reachable, int kept) {
  double sum = 0;
  for (const LayerWeights& l : layers) {
    const double f = l.down.cols, u = header_share(l.down.type);
    sum += bytes(l.q) + bytes(l.k) + bytes(l.v) + bytes(l.o);
    sum += bytes(l.gate_up) * reachable / f + bytes(l.down) * (u + (1 - u) * kept / f);
  }
  return sum;
}

double planned_column_bytes(std::span<const LayerWeights> layers, const SiteLevels& levels) {
  double sum = dense_bytes(layers);
  for_each_matrix(layers, [&](const Matrix& w, Site site) {
    sum -= level_of(levels, site) * bytes(w) * (1 - header_share(w.type));
  });
  return sum;
}

PlannedReads planned_rows(std::span<const LayerWeights> layers, int reachable, int kept) {
  PlannedReads planned;
  for_each_matrix(layers, [&](const Matrix& w, Site) {
    planned.bytes += bytes(w);
    planned.elements += static_cast<double>(w.rows) * w.cols;
  });
  for (const LayerWeights& l : layers) {
    const double f = l.down.cols, unreached = 1 - reachable / f, skipped = 1 - kept / f;
    planned.bytes -= l.gate_up.layout == Layout::Rows ? bytes(l.gate_up) * unreached : 0;
    planned.bytes -= l.down.layout == Layout::Columns ? bytes(l.down) * (1 - header_share(l.down.type)) * skipped : 0;
    planned.elements -= static_cast<double>(l.gate_up.rows) * l.gate_up.cols * unreached;
    planned.elements -= static_cast<double>(l.down.rows) * l.down.cols * skipped;
  }
  return planned;
}

PlannedReads planned_columns(std::span<const LayerWeights> layers, const SiteLevels& levels) {
  PlannedReads planned;
  for_each_matrix(layers, [&](const Matrix& w, Site site) {
    const double level = level_of(levels, site);
    const double skipped = w.layout == Layout::Columns ? level * (1 - header_share(w.type)) : 0;
    planned.bytes += bytes(w) * (1 - skipped);
    planned.elements += static_cast<double>(w.rows) * w.cols * (1 - level);
  });
  return planned;
}

double level_for_bytes(std::span<const LayerWeights> layers, double bytes, PlusRule rule) {
  const auto planned = [&](double level) { return planned_column_bytes(layers, spread_level(layers, level, rule)); };
  const double most = planned(0), least = planned(1);
  // The same at every site, bytes fall evenly with the level.
  const double even = (most - bytes) / (most - least);
  if (rule == PlusRule::Prompt || even >= kMaxLevel || even <= 0) return even;
  double low = 0, high = kMaxLevel;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (planned(middle) > bytes ? low : high) = middle;
  }
  return high;
}

double byte_ideal(std::span<const LayerWeights> layers, double planned_bytes, double head_bytes) {
  return (dense_bytes(layers) + head_bytes) / (planned_bytes + head_bytes);
}

}  // namespace pop
