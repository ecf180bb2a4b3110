// libFuzzer entry: any bytes are a safetensors file whose tensors can be read, or a pop::Error that names the file.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target safetensors_fuzz
//   build-fuzz/formats/safetensors_fuzz -dict=formats/testdata/safetensors.dict -malloc_limit_mb=64 NEW_FOLDER
#include <cstdlib>

#include "base/error.h"
#include "formats/safetensors_test_support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile uint64_t sum = 0;
  try {
    sum = sum + pop::test::look_at_everything(pop::parse_safetensors({data, size}, "fuzz.safetensors"));
  } catch (const pop::Error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz.safetensors: ")) std::abort();
  }
  return 0;
}
