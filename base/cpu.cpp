#include "base/cpu.h"

#include <sched.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace pop {

#if defined(__x86_64__)
namespace {

constexpr int kGetSupported = 0x1021,
              kRequestPermission = 0x1023;       // arch_prctl: ARCH_GET_XCOMP_SUPP, ARCH_REQ_XCOMP_PERM
constexpr int kTileConfig = 17, kTileData = 18;  // XCR0 bits

// The builtins of the compilers we support do not know AMX.
void detect_amx(CpuFeatures& f) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return;  // OSXSAVE: xgetbv exists
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low >> kTileConfig & low >> kTileData & 1) == 0) return;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
  uint64_t supported = 0;
  if (syscall(SYS_arch_prctl, kGetSupported, &supported) != 0 || (supported >> kTileData & 1) == 0) return;
  f.amx_tile = (d >> 24 & 1) != 0;
  f.amx_bf16 = (d >> 22 & 1) != 0;
}

}  // namespace

bool request_amx() { return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0; }
#else
bool request_amx() { return false; }
#endif

CpuFeatures cpu_features() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();  // checks XCR0 as well as CPUID
  f.avx2 = __builtin_cpu_supports("avx2");
  f.fma = __builtin_cpu_supports("fma");
  f.f16c = f.avx2;  // every CPU with AVX2 has F16C; the builtin of clang 14 does not know the name
  f.avx512f = __builtin_cpu_supports("avx512f");
  f.avx512bw = __builtin_cpu_supports("avx512bw");
  f.avx512dq = __builtin_cpu_supports("avx512dq");
  f.avx512vl = __builtin_cpu_supports("avx512vl");
  f.avx512vbmi = __builtin_cpu_supports("avx512vbmi");
  f.avx512_vnni = __builtin_cpu_supports("avx512vnni");
  f.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
  detect_amx(f);
#elif defined(__aarch64__)
  f.dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return f;
}

std::string cpu_model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

namespace {

// CPU quota of the cgroup in CPUs, or infinity. v2: "max 100000" or "150000 100000"; v1: two files.
double cgroup_quota() {
  std::string group;
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);)
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  double best = INFINITY;
  // A limit set on any ancestor holds too: walk up to the root of the hierarchy.
  for (std::string path = group;; path = path.substr(0, path.find_last_of('/'))) {
    std::ifstream max("/sys/fs/cgroup" + path + "/cpu.max");
    std::string quota;
    double period = 0;
    if (max >> quota >> period && quota != "max" && period > 0) {
      std::istringstream parse(quota);
      double value = 0;
      if (parse >> value) best = std::min(best, value / period);
    }
    if (path.empty() || path == "/" || path.find('/') == std::string::npos) break;
  }
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) best = std::min(best, quota / period);
  return best;
}

}  // namespace

int usable_cpus() {
  int cpus = int(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  const double quota = cgroup_quota();
  if (quota < cpus) cpus = int(std::ceil(quota));
  return std::max(1, cpus);
}

}  // namespace pop
