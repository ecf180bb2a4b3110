// Copies of a small model with its matrices stored as another type: the same code must be right on every type.
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace pop::test {

// Writes the model at `source` with all matrices as `type` (one quantize_reference knows) into `folder`; returns the path.
inline std::string requantised(const std::string& source, DType type, const std::string& folder) {
  const GgufFile file(source);
  GgufWriter writer;
  for (const GgufKey& key : file.keys()) writer.set_payload(key.name, key.value.type(), key.value.bytes());
  for (const GgufTensorInfo& info : file.tensors()) {
    const RawTensor raw = file.tensor(info.name);
    int64_t elements = 1;
    for (const int64_t n : raw.shape) elements *= n;
    std::vector<float> values(static_cast<size_t>(elements));
    dequantize(raw.type, raw.data.data(), values.data(), elements);
    writer.add_tensor_f32(info.name, raw.shape.size() < 2 ? DType::F32 : type, raw.shape, values);
  }
  const std::string path = folder + "/toy-" + traits(type).name + ".gguf";
  writer.write(path);
  return path;
}

// A folder that goes with the test program's end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/pop-test-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryFolder() { std::system(("rm -r '" + path_ + "'").c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pop::test
