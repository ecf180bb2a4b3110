#include "text/hf_folder.h"

#include <charconv>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "text/normalize.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_json.h"

namespace pop {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A JSON file of the folder; an empty object where there is none.
class JsonFile {
 public:
  JsonFile(const std::string& folder, const char* name) : path_((fs::path(folder) / name).string()) {
    value_ = fs::exists(path_) ? parse_json(read_file(path_), path_) : nlohmann::json::object();
    if (!value_.is_object()) root().expected("an object");
  }
  JsonReader root() const { return {value_, path_ + ": "}; }

 private:
  std::string path_;
  nlohmann::json value_;
};

// A special token is written as its text or as an object that has it.
const std::string& token_text(const JsonReader& json) {
  return json.value().is_object() ? json.at("content").text() : json.text();
}

int32_t find_token(const TokenizerData& data, const JsonReader& json) {
  const std::string& text = token_text(json);
  int32_t normal = -1;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id] != text || data.token_types[id] == static_cast<int32_t>(TokenType::kUnused)) continue;
    if (data.token_types[id] != static_cast<int32_t>(TokenType::kNormal)) return static_cast<int32_t>(id);
    normal = static_cast<int32_t>(id);
  }
  if (normal < 0) json.expected("a token of the vocabulary");
  return normal;
}

void read_special_tokens(const JsonReader& config, const JsonReader& map, TokenizerData& data) {
  const auto read = [&](const char* key, int32_t& id) {
    if (config.has(key))
      id = find_token(data, config.at(key));
    else if (map.has(key))
      id = find_token(data, map.at(key));
  };
  read("bos_token", data.bos);
  read("eos_token", data.eos);
  read("pad_token", data.pad);
  if (data.unk < 0 && !data.huggingface) read("unk_token", data.unk);  // tokenizer.json's model has its own or none
  if (config.has("add_bos_token")) data.add_bos = config.at("add_bos_token").flag();
  if (config.has("add_eos_token")) data.add_eos = config.at("add_eos_token").flag();
}

// Tokens behind those of tokenizer.model: {"32000": {"content": .., "special": ..}}.
void read_added_decoder(const JsonReader& config, bool has_added_file, int vocab, TokenizerData& data) {
  if (!config.has("added_tokens_decoder")) {
    if (has_added_file)
      config.at("added_tokens_decoder").expected("the tokens of added_tokens.json, which is not read by itself");
    return;
  }
  const JsonReader list = config.at("added_tokens_decoder");
  if (!list.value().is_object()) list.expected("an object");
  for (const auto& [key, value] : list.value().items()) {
    const JsonReader token(value, list.name() + '.' + printable(key));
    size_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id >= static_cast<size_t>(vocab))
      token.expected(fmt::format("an id below {} as its name", vocab));
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      if (token.at(flag).flag(false)) token.at(flag).expected("false beside tokenizer.model (not supported)");
    const bool special = token.at("special").flag(false);
    // Tokens that are looked for in a prepared text have its marks for spaces.
    const std::string& content = token.at("content").text();
    const std::string text = special ? content : replace_all(content, " ", kSpaceMark);
    if (id >= data.tokens.size()) {
      data.tokens.resize(id + 1);
      data.token_types.resize(id + 1, static_cast<int32_t>(TokenType::kUnused));
      data.scores.resize(id + 1);
    }
    const bool free = data.token_types[id] == static_cast<int32_t>(TokenType::kUnused);
    if (!free && data.tokens[id] != text)
      token.expected(fmt::format("\"{}\" as tokenizer.model has it", printable(data.tokens[id])));
    if (!free) continue;
    data.tokens[id] = text;
    data.token_types[id] = static_cast<int32_t>(special ? TokenType::kControl : TokenType::kUserDefined);
  }
}

void read_ends(const JsonReader& root, TokenizerData& data) {
  if (!root.has("eos_token_id")) return;
  const JsonReader ids = root.at("eos_token_id");
  if (!ids.value().is_array()) {
    data.ends.push_back(ids.id());
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) data.ends.push_back(ids.element(i).id());
}

// "chat_template": a text, or a list of named ones of which the one named "default" counts.
std::string template_of(const JsonReader& config) {
  if (!config.has("chat_template")) return "";
  const JsonReader value = config.at("chat_template");
  if (value.value().is_string()) return value.text();
  for (size_t i = 0; i < value.size(); ++i)
    if (value.element(i).at("name").text() == "default") return value.element(i).at("template").text();
  value.expected("a template named \"default\"");
}

TokenizerData read_vocabulary(const std::string& folder, const std::string& name) {
  const std::string path = (fs::path(folder) / name).string();
  try {
    const std::string bytes = read_file(path);
    return name == "tokenizer.json" ? read_tokenizer_json(bytes) : read_sentencepiece_model(bytes);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(path)) throw;
    fail("{}/{}", folder, error.what());  // its messages begin with the file's name
  }
}

}  // namespace

FolderText read_folder_text(const std::string& folder, int vocab, bool sentencepiece_first) {
  FolderText out;
  const JsonFile config(folder, "tokenizer_config.json"), map(folder, "special_tokens_map.json");
  const char *first = "tokenizer.json", *second = "tokenizer.model";
  if (sentencepiece_first) std::swap(first, second);
  for (const char* name : {first, second})
    if (out.tokenizer_file.empty() && fs::exists(fs::path(folder) / name)) out.tokenizer_file = name;
  if (!out.tokenizer_file.empty()) {
    TokenizerData data = read_vocabulary(folder, out.tokenizer_file);
    data.keys = folder + '/' + data.keys;
    if (out.tokenizer_file == "tokenizer.model")
      read_added_decoder(config.root(), fs::exists(fs::path(folder) / "added_tokens.json"), vocab, data);
    if (data.tokens.size() > static_cast<size_t>(vocab))
      fail("{}tokens: expected at most {}, as the embedding has rows, found {}", data.keys, vocab, data.tokens.size());
    read_special_tokens(config.root(), map.root(), data);
    for (const char* name : {"generation_config.json", "config.json"}) read_ends(JsonFile(folder, name).root(), data);
    data.tokens.resize(static_cast<size_t>(vocab));
    data.token_types.resize(static_cast<size_t>(vocab), static_cast<int32_t>(TokenType::kUnused));
    if (!data.scores.empty()) data.scores.resize(static_cast<size_t>(vocab));
    out.tokenizer = std::move(data);
  }
  const fs::path jinja = fs::path(folder) / "chat_template.jinja";
  out.chat_template = fs::exists(jinja) ? read_file(jinja.string()) : template_of(config.root());
  return out;
}

}  // namespace pop
