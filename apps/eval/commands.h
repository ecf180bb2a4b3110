// The commands below `pop eval`.
#pragma once
#include "apps/pop/command.h"

namespace pop::app {

void add_eval_ppl(CLI::App& root, Commands& commands);
void add_eval_kl(CLI::App& root, Commands& commands);
void add_eval_mc(CLI::App& root, Commands& commands);
void add_eval_gen(CLI::App& root, Commands& commands);
void add_eval_compare(CLI::App& root, Commands& commands);
void add_eval_sparsity(CLI::App& root, Commands& commands);
void add_eval_table(CLI::App& root, Commands& commands);

}  // namespace pop::app
