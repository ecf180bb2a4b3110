// A loaded model: spec, weights re-laid for the kernels, the open file. Immutable and shared after load.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "model/rope.h"
#include "model/spec.h"
#include "model/weights.h"
#include "prune/policy.h"

namespace pop {

// Auto: W_down in columns (its channels can be skipped), all else in rows, for methods that select rows. Columns: everything, for
// methods that select columns. Mixed: all but gate and up, for both. Types without columns stay in rows. The head stays in
// rows: it is always read whole.
enum class LayoutChoice : uint8_t { Auto, Rows, Columns, Mixed };

struct LoadOptions {
  LayoutChoice layout = LayoutChoice::Auto;
  std::optional<DType> type{};  // of all weights (stored_type.h); empty: each as the file has it
  std::string cache;            // folder of a cache file of the re-laid weights; "": none is looked for or written
  LoadProgress progress{};
};

// What of a layer is no matrix.
struct LayerVectors {
  std::vector<float> attention_norm, ffn_norm;                // [d]
  std::vector<float> post_attention_norm{}, post_ffn_norm{};  // [d] or empty
  std::vector<float> qkv_bias{};                              // [q_dim + 2 kv_dim] or empty
  std::vector<float> q_norm{}, k_norm{};                      // [head_dim] or empty
  std::vector<float> shared_gate{};                           // [d] or empty
};

struct TensorNames;

struct Model {
  // A GGUF file, or a Hugging Face folder.
  explicit Model(const std::string& path);

  std::variant<GgufFile, HfFolder> opened;
  const GgufFile* gguf() const { return std::get_if<GgufFile>(&opened); }
  const HfFolder* folder() const { return std::get_if<HfFolder>(&opened); }
  const TensorSource& file() const {
    return std::visit([](const TensorSource& source) -> const TensorSource& { return source; }, opened);
  }

  ModelSpec spec;
  RopeTable rope, window_rope;  // window_rope: where spec.window_rope is, of layers with a window
  std::vector<LayerWeights> layers;
  std::vector<const FfnWeights*> ffns;  // of all layers: an FFN's number is its place here
  std::vector<int> first_ffn;           // [layers] number of a layer's first
  std::vector<LayerVectors> vectors;
  std::vector<float> output_norm;  // [d]
  RawTensor embedding;  // [vocab, d], read from the file's mapping row by row; if tied, the head's rows are read
  Matrix
      embedding_rows;  // read in its place where another type was asked for and the head is not tied; else without data
  Matrix head;         // [vocab, d], unit 1, Rows
  Weights weights;     // what the matrices point into
  bool from_cache = false;  // the weights are those of a cache file
  std::vector<std::string> warnings;

  // What the file says, without its weights: enough for its text side. Throws Error: file damaged, family not supported.
  static std::unique_ptr<Model> open(const std::string& path);
  // The same with every tensor looked at, for its name, type and shape, and the weights left in the file.
  static std::unique_ptr<Model> check(const std::string& path);
  const TensorNames& names() const;  // of the file's tensors
  // Throws Error: file damaged, family or option not supported, tensor missing, misshapen or left over; a value that the type asked
  // for cannot hold.
  static std::unique_ptr<Model> load(const std::string& path, const LoadOptions& options, ThreadPool& pool);

  // Of texts; LongRoPE has other angles for those longer than the original context.
  void set_context(int tokens) {
    rope = RopeTable(spec.rope, tokens);
    if (spec.window_rope) window_rope = RopeTable(*spec.window_rope, tokens);
  }
  void embed(int32_t token, float* out) const;  // out: [d], scaled
  // Gives back the pages that embed() touched: where the file lies in large folios, they add up to the whole table.
  void release_embedding() const;
};

// Calls visit(matrix, share of the tokens that use it) for q, k, v, o and every gate_up and down of a layer.
template <class Layer, class Visit>
void for_each_matrix(Layer& layer, Visit&& visit) {
  for (auto* w : {&layer.q, &layer.k, &layer.v, &layer.o}) visit(*w, 1.0);
  for (auto& ffn : layer.ffns) {
    visit(ffn.gate_up, ffn.use);
    visit(ffn.down, ffn.use);
  }
}

}  // namespace pop
