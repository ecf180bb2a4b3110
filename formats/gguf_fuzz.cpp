// libFuzzer entry: any bytes are a GGUF file that can be read to the end, or a pop::Error that names the file.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target gguf_fuzz
//   build-fuzz/formats/gguf_fuzz -dict=formats/testdata/gguf.dict -malloc_limit_mb=64 NEW_FOLDER formats/testdata/corpus
#include <cstdlib>
#include <string_view>

#include "formats/gguf_test_support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile uint64_t sum = 0;
  try {
    const pop::GgufFile file = pop::GgufFile::from_bytes({data, size}, "fuzz.gguf");
    sum = sum + pop::test::look_at_everything(file);
  } catch (const pop::Error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz.gguf: ")) std::abort();
  }
  return 0;
}
