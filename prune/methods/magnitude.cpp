// magnitude: channels by the size of their weights alone, no text is looked at. The score of channel i is the 2-norm of
// the 3d weights that would go with it: row i of gate and of up, column i of down.
#include <cmath>
#include <utility>

#include "prune/importance.h"
#include "prune/methods/mask.h"
#include "prune/methods/methods.h"
#include "tensor/layout.h"

namespace pop {
namespace {

double squares(const Matrix& w, int row, std::span<float> scratch) {
  read_row(w, row, scratch.data());
  double sum = 0;
  for (const float v : scratch) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

}  // namespace

std::unique_ptr<Policy> create_magnitude(const PruneOptions& options, const PolicyContext& context) {
  PrunePlan plan = mask_plan(options, context);
  std::vector<std::vector<Matrix>> stacks;
  for (const FfnWeights* ffn : context.ffns) stacks.push_back({ffn->down});
  std::vector<std::vector<float>> scores = column_norm_tables(stacks, Norm::Two, *context.pool);
  std::vector<std::vector<float>> rows(static_cast<size_t>(context.pool->threads()),
                                       std::vector<float>(static_cast<size_t>(context.d)));
  context.pool->run(static_cast<int>(scores.size()), [&](int ffn, int thread) {
    const Matrix& gate_up = context.ffns[static_cast<size_t>(ffn)]->gate_up;
    int row = 0;
    for (float& score : scores[static_cast<size_t>(ffn)]) {
      double sum = static_cast<double>(score) * static_cast<double>(score);
      for (int part = 0; part < gate_up.unit; ++part) sum += squares(gate_up, row++, rows[static_cast<size_t>(thread)]);
      score = static_cast<float>(std::sqrt(sum));
    }
  });
  return best_channels(std::move(plan), context, std::move(scores));
}

}  // namespace pop
