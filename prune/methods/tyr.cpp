// tyr: Týr-the-Pruner (arXiv 2503.09657), FFN only, with a reduced search ("Týr-FFN, reduced search"; pop calibrate --tyr). The
// channels of each layer and the repaired columns of W_down come from the calibration file (engine/repair.cpp made them);
// here they become matrices, in the type of the model's own or in bfloat16.
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/float16.h"
#include "prune/calibration.h"
#include "prune/methods/mask.h"
#include "prune/methods/methods.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// W_down : [d, f] with the repaired columns, into w's zeroed bytes. Those that went are never read; in their places stands the nearest
// kept one to their left, so that no block of a row gets a wider range by them.
void fill_repaired(const RepairedFfn& repaired, const Matrix& w, uint8_t* out) {
  const auto f = static_cast<size_t>(w.cols), kept = repaired.kept.size();
  std::vector<float> row(f);
  std::vector<uint8_t> blocks(row_bytes(w.type, w.cols));
  for (int j = 0; j < w.rows; ++j) {
    const uint16_t* const values = repaired.down.data() + static_cast<size_t>(j) * kept;
    for (size_t k = 0, at = 0; k < f; ++k) {
      while (at + 1 < kept && repaired.kept[at + 1] <= static_cast<int32_t>(k)) ++at;
      row[k] = kept > 0 ? bf16_to_f32(values[at]) : 0;
    }
    quantize(w.type, row.data(), blocks.data(), w.cols);
    write_row(w, j, blocks.data(), out);
  }
}

Partition mask_of(const RepairedFfn& repaired, int f) {
  Partition mask{
      .retained = repaired.kept, .candidate = {}, .pruned = {}, .scores = std::vector<float>(static_cast<size_t>(f))};
  for (const int32_t k : mask.retained) mask.scores[static_cast<size_t>(k)] = 1;
  for (int32_t k = 0; k < f; ++k)
    if (mask.scores[static_cast<size_t>(k)] == 0) mask.pruned.push_back(k);
  return mask;
}

// What quantize() asks for: a file may say anything.
void check_values(const RepairedFfn& repaired, DType type, size_t ffn) {
  constexpr float kMost = 65504;
  for (const uint16_t v : repaired.down) {
    if (type != DType::BF16 && type != DType::F32 && !(std::fabs(bf16_to_f32(v)) < kMost))
      fail("--calibration: repaired, FFN {}: {} holds weights below {}, found {}", ffn, traits(type).name, kMost,
           bf16_to_f32(v));
  }
}

}  // namespace

std::unique_ptr<Policy> create_tyr(const PruneOptions& options, const PolicyContext& context) {
  if (!options.calibration->repaired)
    fail("--calibration: method tyr needs a repaired model in the file; make it with pop calibrate --tyr");
  const RepairedModel& repaired = *options.calibration->repaired;
  PruneOptions of_file = options;  // the file was made for one ratio
  of_file.ffn_sparsity = repaired.ffn_sparsity;
  StaticMask mask{.plan = mask_plan(of_file, context), .masks = {}, .bias = {}};
  mask.plan.repaired = options.repaired == RepairedAs::BF16 ? "bf16" : "model";
  mask.plan.calibration += "; " + repaired.search;
  const size_t count = context.ffns.size();
  mask.down.resize(count);
  for (size_t i = 0; i < count; ++i) {
    mask.masks.push_back(mask_of(repaired.ffns[i], context.ffns[i]->f()));
    AlignedBuffer& memory = mask.memory.emplace_back();
    if (mask.masks.back().pruned.empty()) continue;
    Matrix& w = mask.down[i] = context.ffns[i]->down;
    w.type = repaired_type(mask.plan.repaired, w.type);
    check_values(repaired.ffns[i], w.type, i);
    memory = AlignedBuffer(matrix_bytes(w));
    w.data = memory.data();
  }
  context.pool->run(static_cast<int>(count), [&](int piece, int) {
    const auto i = static_cast<size_t>(piece);
    if (!mask.masks[i].pruned.empty()) fill_repaired(repaired.ffns[i], mask.down[i], mask.memory[i].data());
  });
  return static_mask(std::move(mask));
}

}  // namespace pop
