// libFuzzer entry: any bytes are a safetensors file whose tensors can be read, those of F8_E4M3 with their scales, or a pop::Error that
// names the file.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target safetensors_fuzz
//   build-fuzz/formats/safetensors_fuzz -dict=formats/testdata/safetensors.dict -malloc_limit_mb=64 NEW_FOLDER
#include <cstdlib>

#include "base/error.h"
#include "formats/safetensors_test_support.h"
#include "formats/scaled_f8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static volatile uint64_t sum = 0;
  try {
    std::vector<pop::TensorInfo> tensors = pop::parse_safetensors({data, size}, "fuzz.safetensors");
    sum = sum + pop::test::look_at_everything(tensors);
    pop::attach_scales(tensors, {.block_rows = 2 * int(size % 2), .block_cols = 3 * int(size % 2)}, "fuzz.safetensors");
    for (const pop::TensorInfo& info : tensors) {
      if (!info.scales || info.bytes == 0) continue;
      const pop::RawTensor matrix{info.name, pop::DType::BF16, info.shape, {info.data, info.bytes}, info.scales};
      std::vector<uint8_t> row(2 * size_t(info.shape[1]));
      for (int64_t r = 0; r < info.shape[0]; ++r) {
        pop::f8_row_to_bf16(matrix, r, row.data());
        sum = sum + row.back();
      }
    }
  } catch (const pop::Error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz.safetensors: ")) std::abort();
  }
  return 0;
}
