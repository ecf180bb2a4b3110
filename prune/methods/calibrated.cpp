// Static masks by the activations of a text, each layer keeping its K best of sqrt(sum of h_i^2) * A_j |W_down[j,i]|:
//   wanda_sp    Wanda-sp as the authors of FLAP wrote it (arXiv 2312.11983, their code), A the 1-norm. Scale factors that all
//               channels share (sequences, d) are left out. An expert that the text sent no token through: by W_down alone.
//   task-fixed  A the 2-norm: the mask of `fixed`, taken from a task's prompt and used for all of its inputs. The shape of an
//               instruction-following mask (arXiv 2501.02086), untrained.
#include <utility>

#include "prune/calibration.h"
#include "prune/importance.h"
#include "prune/methods/mask.h"
#include "prune/methods/methods.h"

namespace pop {

std::unique_ptr<Policy> create_calibrated(const PruneOptions& options, const PolicyContext& context) {
  PrunePlan plan = mask_plan(options, context);
  const Norm norm = options.method == "wanda_sp" ? Norm::One : Norm::Two;
  plan.norm = norm_name(norm);
  std::vector<std::vector<Matrix>> stacks;
  for (const FfnWeights* ffn : context.ffns) stacks.push_back({ffn->down});
  std::vector<std::vector<float>> scores = column_norm_tables(stacks, norm, *context.pool);
  for (size_t i = 0; i < scores.size(); ++i) {
    const CalibrationFfn& ffn = options.calibration->ffns[i];
    if (ffn.tokens > 0) down_scores(ffn.squares, scores[i], scores[i]);
  }
  return best_channels(std::move(plan), context, std::move(scores));
}

}  // namespace pop
