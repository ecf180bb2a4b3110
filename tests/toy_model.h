// Copies of a small model with something changed: the type of its matrices, a key, a tensor.
#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace pop::test {

// What rewritten() changes. tensor(name, shape, values): anything of a float32 tensor; false: it is left out.
struct Rewrite {
  std::vector<std::string> without;  // keys left out; with `add` they come back as something else
  std::function<void(GgufWriter&)> add = [](GgufWriter&) {};
  std::function<bool(std::string& name, std::vector<int64_t>& shape, std::vector<float>& values)> tensor =
      [](std::string&, std::vector<int64_t>&, std::vector<float>&) { return true; };
  std::optional<DType> matrices{};  // their type, one that quantize() knows; empty: as they are
};

inline std::string rewritten(const std::string& source, const Rewrite& change, const std::string& path) {
  const GgufFile file(source);
  GgufWriter writer;
  for (const GgufKey& key : file.keys())
    if (std::find(change.without.begin(), change.without.end(), key.name) == change.without.end())
      writer.set_payload(key.name, key.value.type(), key.value.bytes());
  change.add(writer);
  for (const TensorInfo& info : file.tensors()) {
    const RawTensor raw = file.tensor(info.name);
    int64_t elements = 1;
    for (const int64_t n : raw.shape) elements *= n;
    std::vector<float> values(static_cast<size_t>(elements));
    dequantize(raw.type, raw.data.data(), values.data(), elements);
    std::string name = info.name;
    std::vector<int64_t> shape = raw.shape;
    const DType type = shape.size() < 2 ? raw.type : change.matrices.value_or(raw.type);
    if (change.tensor(name, shape, values)) writer.add_tensor_f32(name, type, shape, values);
  }
  writer.write(path);
  return path;
}

// The model at `source` with all matrices as `type`, in `folder`; returns the path.
inline std::string requantised(const std::string& source, DType type, const std::string& folder) {
  Rewrite change;
  change.matrices = type;
  return rewritten(source, change, folder + "/toy-" + traits(type).name + ".gguf");
}

// The model at `source` with other 32-bit keys, and edit(name, shape, values) done to every tensor.
template <class Edit>
std::string edited(const std::string& source, const std::vector<std::pair<std::string, uint32_t>>& keys, Edit&& edit,
                   const std::string& path) {
  Rewrite change;
  for (const auto& [name, value] : keys) change.without.push_back(name);
  change.add = [&](GgufWriter& writer) {
    for (const auto& [name, value] : keys) writer.set_u32(name, value);
  };
  change.tensor = [&](std::string& name, std::vector<int64_t>& shape, std::vector<float>& values) {
    edit(name, shape, values);
    return true;
  };
  return rewritten(source, change, path);
}

// The model at `source` (llama) with width d, FFN width f and random weights of `type`; its vocabulary and layers stay.
inline std::string widened(const std::string& source, DType type, int d, int f, const std::string& folder) {
  const GgufFile file(source);
  GgufWriter writer;
  const int heads = 4, kv_heads = 2;
  const std::vector<std::pair<std::string, int>> sizes = {{"llama.embedding_length", d},
                                                          {"llama.feed_forward_length", f},
                                                          {"llama.rope.dimension_count", d / heads},
                                                          {"llama.attention.key_length", d / heads},
                                                          {"llama.attention.value_length", d / heads}};
  for (const GgufKey& key : file.keys()) {
    bool replaced = false;
    for (const auto& [name, value] : sizes)
      if (key.name == name) writer.set_u32(name, uint32_t(value)), replaced = true;
    if (!replaced) writer.set_payload(key.name, key.value.type(), key.value.bytes());
  }
  uint32_t random = 1;
  for (const TensorInfo& info : file.tensors()) {
    std::vector<int64_t> shape = file.tensor(info.name).shape;
    const auto is = [&](const char* part) { return info.name.find(part) != std::string::npos; };
    if (shape.size() == 1) shape = {d};
    if (is("token_embd") || is("output.weight")) shape[1] = d;
    if (is("attn_q.") || is("attn_output.")) shape = {d, d};
    if (is("attn_k.") || is("attn_v.")) shape = {d / heads * kv_heads, d};
    if (is("ffn_gate.") || is("ffn_up.")) shape = {f, d};
    if (is("ffn_down.")) shape = {d, f};
    int64_t elements = 1;
    for (const int64_t n : shape) elements *= n;
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& v : values) {
      random = random * 1664525u + 1013904223u;
      v = (float(random >> 8) / float(1 << 24) - 0.5f) * 0.2f;
    }
    writer.add_tensor_f32(info.name, shape.size() < 2 ? DType::F32 : type, shape, values);
  }
  const std::string path = folder + "/wide-" + traits(type).name + ".gguf";
  writer.write(path);
  return path;
}

}  // namespace pop::test
