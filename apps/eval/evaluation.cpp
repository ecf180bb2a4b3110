#include "apps/eval/evaluation.h"

#include <fmt/format.h>

#include "apps/eval/report.h"
#include "apps/pop/command.h"
#include "apps/pop/terminal.h"

namespace pop::app {

void add_eval_options(CLI::App& app, EvalArgs& args, const char* unit) {
  app.add_option("--per-item", args.per_item,
                 fmt::format("Write every {}'s result to this file (lm-eval's samples), and continue from it if it is "
                             "there [off]",
                             unit))
      ->option_text("FILE");
  app.add_option("--csv", args.csv, "Write the result as a header and one row")->option_text("FILE");
  add_prune_options(app, args.prune);
  add_seed_option(app, args.seed);
  add_model_options(app, args.engine);
  add_output_options(app, args.output);
}

std::vector<size_t> still_to_do(const EvalArgs& args, const SampleFile& file, std::span<const int64_t> ids,
                                const char* unit) {
  std::vector<size_t> pending;
  for (size_t i = 0; i < ids.size(); ++i)
    if (!file.has(ids[i])) pending.push_back(i);
  if (pending.size() < ids.size())
    note(args.output, fmt::format("{} of {} {}s were there", ids.size() - pending.size(), ids.size(), unit));
  return pending;
}

int finish(const EvalArgs& args, Json json, bool complete, const ModelInfo& info, const PrunePlanInfo& plan,
           const ReadStats& reads, const std::function<void(const Json&)>& print) {
  json["per_item"] = args.per_item.empty() ? Json(nullptr) : Json(args.per_item);
  json["finish_reason"] = complete ? "complete" : "interrupted";
  add_common(json, info, plan, reads);
  if (!args.csv.empty()) write_result_row(args.csv, json);
  if (args.output.json) {
    print_json(json);
  } else {
    print(json);
    if (!json["weights_read_share"].is_null())
      fmt::print("  {:<22}{:.1f} MB, {:.3f} of dense (blocks {:.3f}); used {:.3f} of the blocks' elements\n",
                 "read per token", reads.weight_bytes_per_token / 1e6, reads.weights_read_share,
                 reads.block_weights_read_share, reads.selected_share);
    if (const std::string realised = describe_realised(reads); !realised.empty())
      fmt::print("  {:<22}{}\n", "ratio realised", realised);
  }
  return complete ? kDone : kInterrupted;
}

int finish_without_result(const EvalArgs& args, const char* unit) {
  note(args.output, fmt::format("interrupted before the first {} was done", unit));
  return kInterrupted;
}

}  // namespace pop::app
