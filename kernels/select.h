// Which kernel table this machine runs.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "kernels/kernels.h"

namespace pop {

// Names of all tables built into this library, slowest first.
std::span<const char* const> built_isas();
bool isa_available(std::string_view name);  // built, and this CPU and system run it

// name empty or "auto": the best available. Throws Error: unknown name (lists the built ones), or not available here.
const KernelTable& select_kernels(std::string_view name);

// The --activations default: the fastest type whose mean KL to F32 was below 1e-3 (docs/kernels.md), per weight type, ISA and
// phase. A committed table, never measured at run time.
ActType default_activations(const KernelTable& table, DType type, bool prefill);

}  // namespace pop
