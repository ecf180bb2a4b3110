#include "kernels/select.h"

#include <array>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/tables.h"
#include "tensor/layout.h"

namespace pop {
namespace {

bool always(const CpuFeatures&) { return true; }

#if defined(__x86_64__)
bool has_avx2(const CpuFeatures& cpu) { return cpu.avx2 && cpu.fma && cpu.f16c; }
[[maybe_unused]] bool has_avx512(const CpuFeatures& cpu) {
  return has_avx2(cpu) && cpu.avx512f && cpu.avx512bw && cpu.avx512dq && cpu.avx512vl && cpu.avx512_vnni;
}
[[maybe_unused]] bool has_amx(const CpuFeatures& cpu) {
  return has_avx512(cpu) && cpu.avx512_bf16 && cpu.amx_tile && cpu.amx_bf16 && request_amx();
}
#elif defined(__aarch64__)
bool has_dotprod(const CpuFeatures& cpu) { return cpu.dotprod; }
#endif

struct Isa {
  const char* name;
  bool (*available)(const CpuFeatures&);
  void (*fill)(KernelTable&);
};

constexpr Isa kIsas[] = {
    // slowest first
    {"scalar", always, fill_scalar_table},
#if defined(__x86_64__)
    {"avx2", has_avx2, fill_avx2_table},
#if defined(POP_TEST_SIMDE)  // a table of the tests (kernels/simde), never of the library
    {"avx512_simde", has_avx2, fill_avx512_simde_table},
#else
#if !defined(POP_WITHOUT_AVX512)
    {"avx512", has_avx512, fill_avx512_table},
#endif
#if !defined(POP_WITHOUT_AMX)
    {"amx", has_amx, fill_amx_table},
#endif
#endif
#elif defined(__aarch64__)
    {"neon", always, fill_neon_table},
    {"dotprod", has_dotprod, fill_dotprod_table},
#endif
};
constexpr size_t kCount = std::size(kIsas);

constexpr std::array<const char*, kCount> kNames = [] {
  std::array<const char*, kCount> names{};
  for (size_t i = 0; i < kCount; ++i) names[i] = kIsas[i].name;
  return names;
}();

// A table is filled by code of its own instruction set, so only those that run here are.
std::array<KernelTable, kCount> build_tables() {
  std::array<KernelTable, kCount> tables{};
  const CpuFeatures cpu = cpu_features();
  for (size_t i = 0; i < kCount && kIsas[i].available(cpu); ++i) {
    if (i > 0) tables[i] = tables[i - 1];
    kIsas[i].fill(tables[i]);
  }
  return tables;
}

std::string joined_names() {
  std::string all;
  for (const char* name : kNames) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

}  // namespace

std::span<const char* const> built_isas() { return kNames; }

bool isa_available(std::string_view name) {
  const CpuFeatures cpu = cpu_features();
  for (const Isa& isa : kIsas)
    if (name == isa.name) return isa.available(cpu);
  return false;
}

const KernelTable& select_kernels(std::string_view name) {
  static const std::array<KernelTable, kCount> tables = build_tables();
  const bool best = name.empty() || name == "auto";
  for (size_t i = kCount; i-- > 0;) {
    const bool available = tables[i].name != nullptr;
    if (best ? available : name == kIsas[i].name) {
      if (!available)
        fail("instruction set '{}' is built in, but this machine ({}) does not have it", name, cpu_model_name());
      return tables[i];
    }
  }
  fail("unknown instruction set '{}': expected auto or one of {}", printable(name), joined_names());
}

ActType default_activations(const KernelTable& table, DType type, bool prefill) {
  // KL 1.5e-4 on the default model.
  if (prefill && std::string_view(table.name) == "amx") return ActType::BF16;
  // I8 costs KL 0.002 on the default model, twice what is allowed. In prefill without VNNI, two passes of 8-bit products are
  // slower than float32 multiplications (35 against 42 billion a second on one Zen 4 core), which are exact.
  const bool has_tiles = type == DType::Q8_0 || type == DType::Q4_0 || type == DType::Q4_1;
  if (prefill && has_tiles && std::string_view(table.name) == "avx2") return ActType::F32;
  return table.effective(ActType::I16, type, Layout::Rows);
}

}  // namespace pop
