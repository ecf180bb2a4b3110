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

// The affinity mask, which the system gives only into a set as large as its own.
int cpus_in_mask() {
  for (int room = 1024; room <= (1 << 20); room *= 2) {
    cpu_set_t* set = CPU_ALLOC(room);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(room);
    const int cpus = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (cpus > 0) return cpus;
  }
  return int(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

int usable_cpus() {
  const int cpus = cpus_in_mask();
  const double quota = cgroup_cpu_quota();
  return std::max(1, quota < cpus ? int(std::ceil(quota)) : cpus);
}

}  // namespace pop
