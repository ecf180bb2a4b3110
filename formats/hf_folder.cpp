#include "formats/hf_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "formats/named.h"
#include "formats/safetensors.h"
#include "formats/scaled_f8.h"

namespace pop {
namespace {

constexpr const char* kConfig = "/config.json";
constexpr const char* kSingle = "/model.safetensors";
constexpr const char* kIndex = "/model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 100'000'000;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

JsonObject read_config(const std::string& folder) {
  if (!is_folder(folder)) fail("{}: expected a folder, found none", folder);
  if (!exists(folder + kConfig))
    fail("{}: expected a model folder with config.json, found none in it (a GGUF file is given by its own path)",
         folder);
  return JsonObject::read(folder + kConfig);
}

// A name that stays in the folder and can be shown as it is. What it may be a link to is the matter of who made the folder.
bool is_plain_name(const std::string& name) {
  return name.size() <= 255 && name.ends_with(".safetensors") && name[0] != '.' &&
         name.find_first_of("/\\") == std::string::npos && printable(name, 255) == name;
}

std::string no_weights(const std::string& folder) {
  for (const char* other : {"/pytorch_model.bin", "/pytorch_model.bin.index.json"})
    if (exists(folder + other)) return fmt::format("{} (not read: transformers can save it as safetensors)", other + 1);
  return "neither";
}

}  // namespace

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

HfFolder::HfFolder(const std::string& folder) : path_(folder), config_(read_config(folder)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  open_weights();
  if (const auto rule = read_f8_rule(config_)) attach_scales(tensors_, *rule, path_);
  order_ = name_order(tensors_, "tensor", path_);
  const std::string generation = path_ + "/generation_config.json";
  if (exists(generation)) add_end_ids(JsonObject::read(generation));
  add_end_ids(config_);
}

void HfFolder::add_end_ids(const JsonObject& from) {
  const int64_t vocab = config_.find_int("vocab_size", 1, INT32_MAX).value_or(INT32_MAX);
  for (const int64_t id : from.integers("eos_token_id", 0, vocab - 1))
    if (std::find(end_ids_.begin(), end_ids_.end(), id) == end_ids_.end()) end_ids_.push_back(int32_t(id));
}

void HfFolder::open_weights() {
  if (exists(path_ + kSingle)) {
    files_.emplace_back(path_ + kSingle);
    tensors_ = parse_safetensors(files_[0].bytes(), files_[0].path());
  } else if (exists(path_ + kIndex)) {
    open_sharded(path_ + kIndex);
  } else {
    fail("{}: expected {} or {}, found {}", path_, kSingle + 1, kIndex + 1, no_weights(path_));
  }
}

void HfFolder::open_sharded(const std::string& index_path) {
  const JsonObject index = JsonObject::read(index_path, kMaxIndexBytes);
  const auto map = index.find_object("weight_map");
  if (!map) index.refuse("weight_map", "an object of tensor names and file names");
  std::map<std::string, size_t> tensors_in;  // file name: how many tensors
  for (const auto& [tensor, file] : map->all().items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>()))
      map->refuse(tensor, "the name of a .safetensors file in the folder");
    ++tensors_in[file.get<std::string>()];
  }
  std::string missing;
  for (const auto& [name, count] : tensors_in)
    if (!exists(path_ + "/" + name)) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty())
    fail("{}: expected the files that {} names, missing: {} (an incomplete download?)", path_, kIndex + 1,
         printable(missing, 200));
  for (const auto& [name, count] : tensors_in) {
    files_.emplace_back(path_ + "/" + name);
    std::vector<TensorInfo> of_file = parse_safetensors(files_.back().bytes(), files_.back().path());
    for (const TensorInfo& info : of_file) {
      const auto it = map->all().find(info.name);
      if (it == map->all().end() || *it != name)
        fail("{}: tensor '{}': expected it in the index under this file, found it {}", files_.back().path(),
             printable(info.name), it == map->all().end() ? "not there" : "under another");
    }
    if (of_file.size() != count)
      fail("{}: expected the {} tensors that the index names, found {}", files_.back().path(), count, of_file.size());
    std::move(of_file.begin(), of_file.end(), std::back_inserter(tensors_));
  }
}

const TensorInfo* HfFolder::find(std::string_view name) const { return find_named(tensors_, order_, name); }

}  // namespace pop
