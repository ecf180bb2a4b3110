// Weight bytes a decoded token is planned to read, by the formulas of pop-method sections 5 and 8b: the ideal that
// counted bytes are compared with, and what --match equalises.
#pragma once
#include <span>

#include "prune/policy.h"

namespace pop {

// u: the share of a block's bytes (scales, mins, headers) that is read if any of its columns is; 0 for F32, F16, BF16.
double header_share(DType type);

// The bytes that a token reads of these layers' matrices, dense, as the file has them: of a mixture of experts the router and
// the experts that it goes through. Shapes and types are looked at only.
double dense_bytes(std::span<const LayerWeights> layers);

// Rows, at FFN sparsity p and candidate width gamma: of every FFN a token goes through the reachable channels' (R and C) gate and
// up rows, and of W_down u + (1 - u) * kept / f.
double planned_row_bytes(std::span<const LayerWeights> layers, double p, double gamma);

// Columns: 1 - level * (1 - u) of every matrix, at the level of its site.
double planned_column_bytes(std::span<const LayerWeights> layers, const SiteLevels& levels);

// The level which, spread over the sites by that rule, plans `bytes`; above 1 if none does.
double level_for_bytes(std::span<const LayerWeights> layers, double bytes, PlusRule rule);

// The same of matrices as they were loaded, and the elements a token uses: what lies in a layout that the choice cannot skip in
// is read whole.
struct PlannedReads {
  double bytes = 0, elements = 0;
};
PlannedReads planned_rows(std::span<const LayerWeights> layers, double p, double gamma);
PlannedReads planned_columns(std::span<const LayerWeights> layers, const SiteLevels& levels);

// How much less a token reads: dense over planned, both with the head's bytes.
double byte_ideal(std::span<const LayerWeights> layers, double planned_bytes, double head_bytes);

}  // namespace pop
