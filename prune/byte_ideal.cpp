#include "prune/byte_ideal.h"

#include <initializer_list>

#include "prune/allocation.h"
#include "prune/budget.h"
#include "prune/partition.h"
#include "tensor/dtype.h"

namespace pop {
namespace {

// In double and without rounding up to whole blocks: an ideal, defined for any shape.
double bytes(const Matrix& w) {
  const DTypeTraits& t = traits(w.type);
  return static_cast<double>(w.rows) * static_cast<double>(w.cols) * t.block_bytes / t.block_elems;
}

// body(matrix, its site, the share of the tokens that use it)
template <class Body>
void for_each_matrix(std::span<const LayerWeights> layers, Body body) {
  for (const LayerWeights& l : layers) {
    for (const Matrix* w : {&l.q, &l.k, &l.v}) body(*w, Site::Qkv, 1.0);
    body(l.o, Site::O, 1.0);
    for (const FfnWeights& ffn : l.ffns) {
      body(ffn.gate_up, Site::GateUp, ffn.use);
      body(ffn.down, Site::Down, ffn.use);
    }
  }
}

// What no choice skips.
double router_bytes(std::span<const LayerWeights> layers) {
  double sum = 0;
  for (const LayerWeights& l : layers) sum += bytes(l.router) + bytes(l.shared_gate);
  return sum;
}

// Of an FFN's channels.
struct RowShares {
  double reachable, kept;
};
RowShares row_shares(const FfnWeights& ffn, double p, double gamma) {
  const PartitionSizes sizes = partition_sizes(ffn.f(), p, gamma);
  const double f = ffn.f();
  return {(sizes.retained + sizes.candidate) / f, sizes.kept / f};
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
  double sum = router_bytes(layers);
  for_each_matrix(layers, [&](const Matrix& w, Site, double use) { sum += bytes(w) * use; });
  return sum;
}

double planned_row_bytes(std::span<const LayerWeights> layers, double p, double gamma) {
  double sum = router_bytes(layers);
  for (const LayerWeights& l : layers) {
    sum += bytes(l.q) + bytes(l.k) + bytes(l.v) + bytes(l.o);
    for (const FfnWeights& ffn : l.ffns) {
      const RowShares shares = row_shares(ffn, p, gamma);
      const double u = header_share(ffn.down.type);
      sum += ffn.use * (bytes(ffn.gate_up) * shares.reachable + bytes(ffn.down) * (u + (1 - u) * shares.kept));
    }
  }
  return sum;
}

double planned_column_bytes(std::span<const LayerWeights> layers, const SiteLevels& levels) {
  double sum = dense_bytes(layers);
  for_each_matrix(layers, [&](const Matrix& w, Site site, double use) {
    sum -= level_of(levels, site) * use * bytes(w) * (1 - header_share(w.type));
  });
  return sum;
}

PlannedReads planned_rows(std::span<const LayerWeights> layers, double p, double gamma) {
  PlannedReads planned{.bytes = router_bytes(layers), .elements = 0};
  for_each_matrix(layers, [&](const Matrix& w, Site, double use) {
    planned.bytes += bytes(w) * use;
    planned.elements += elements(w) * use;
  });
  for (const LayerWeights& l : layers) {
    for (const FfnWeights& ffn : l.ffns) {
      const RowShares shares = row_shares(ffn, p, gamma);
      const Matrix &gate_up = ffn.gate_up, &down = ffn.down;
      const double unreached = (1 - shares.reachable) * ffn.use, skipped = (1 - shares.kept) * ffn.use;
      planned.bytes -= gate_up.layout == Layout::Rows ? bytes(gate_up) * unreached : 0;
      planned.bytes -= down.layout == Layout::Columns ? bytes(down) * (1 - header_share(down.type)) * skipped : 0;
      planned.elements -= elements(gate_up) * unreached + elements(down) * skipped;
    }
  }
  return planned;
}

PlannedReads planned_columns(std::span<const LayerWeights> layers, const SiteLevels& levels) {
  PlannedReads planned{.bytes = router_bytes(layers), .elements = 0};
  for_each_matrix(layers, [&](const Matrix& w, Site site, double use) {
    const double level = level_of(levels, site);
    const double skipped = w.layout == Layout::Columns ? level * (1 - header_share(w.type)) : 0;
    planned.bytes += bytes(w) * use * (1 - skipped);
    planned.elements += elements(w) * use * (1 - level);
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
