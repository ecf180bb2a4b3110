// The commands below `pop eval`.
#pragma once
#include "apps/pop/command.h"

namespace pop::app {

void add_eval_kl(CLI::App& root, Commands& commands);

}  // namespace pop::app
