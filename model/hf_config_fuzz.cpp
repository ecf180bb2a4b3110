// libFuzzer entry: any bytes are a config.json that says a model this engine runs, or a pop::Error that names the file.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target hf_config_fuzz
//   build-fuzz/model/hf_config_fuzz -malloc_limit_mb=64 NEW_FOLDER
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/families/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile int sum = 0;
  try {
    const auto config = pop::JsonObject::parse({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const pop::ModelSpec spec = pop::read_spec(config, pop::find_family(config));
    for (const int id : config.integers("eos_token_id", 0, INT32_MAX)) sum = sum + id;
    sum = sum + spec.q_dim() + spec.window(spec.layers - 1) + int(spec.rope.frequency_divisors.size());
  } catch (const pop::Error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz.json: ")) std::abort();
  }
  return 0;
}
