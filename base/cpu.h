// What this machine can do: instruction sets, and how many CPUs this process may use.
#pragma once
#include <cstdint>
#include <string>

namespace pop {

struct CpuFeatures {  // each also needs the operating system to save the registers (XCR0)
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512vbmi = false;
  bool avx512_vnni = false, avx512_bf16 = false;
  bool dotprod = false;                     // AArch64: sums of four 8-bit products; NEON itself is always there
  bool amx_tile = false, amx_bf16 = false;  // also: the system may grant the tiles to this process
};

CpuFeatures cpu_features();
// Asks the system for the tile registers, which it saves only for processes that want them: once, before the first use, for
// all threads. False if it refuses.
bool request_amx();
std::string cpu_model_name();  // "unknown" if the system does not say

// CPU time per time that the control groups of this process allow, in CPUs; infinity if they set no limit. root: a folder in
// place of / (tests).
double cgroup_cpu_quota(const std::string& root = "");

// CPUs in this process's affinity mask, bounded by the cgroup's CPU quota (rounded up), at least 1.
int usable_cpus();

}  // namespace pop
