// The instruction sets that tests of whole models go through.
#pragma once
#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "engine/pop.h"

namespace pop::test {

// Every one this machine has. Sanitizers make the plain code slower than all others together, which read the same addresses from
// the same threads: there it is left to the tests of the kernels, wherever the machine has another.
inline std::vector<std::string> isas() {
  std::vector<std::string> names = available_isa_names();
  if ((kAddressSanitizer || kThreadSanitizer) && names.size() > 1) std::erase(names, "scalar");
  return names;
}

}  // namespace pop::test
