// A model folder as Hugging Face transformers saves it: config.json and weights in one safetensors file or several with an
// index. Files are mapped; everything they say is checked against the bytes that are there before use.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "formats/json_object.h"
#include "formats/tensor_source.h"

namespace pop {

class HfFolder : public TensorSource {
 public:
  // Throws Error: no folder, config.json or weights missing, a file damaged, the index and its files do not agree.
  explicit HfFolder(const std::string& folder);

  const std::string& path() const override { return path_; }  // of the folder
  std::span<const MappedFile> files() const override { return files_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override;

  const JsonObject& config() const { return config_; }
  // eos_token_id of generation_config.json and of config.json, below the latter's vocab_size: ids that end a generation.
  const std::vector<int32_t>& end_ids() const { return end_ids_; }

 private:
  void add_end_ids(const JsonObject& from);
  void open_weights();
  void open_sharded(const std::string& index_path);

  std::string path_;
  JsonObject config_;
  std::vector<int32_t> end_ids_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> order_;  // of tensors_, by name
};

// Whether a model argument names a folder (else it is a GGUF file).
bool is_folder(const std::string& path);

}  // namespace pop
