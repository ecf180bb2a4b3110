// For tests and the program tests/tokenizer/tokenize_file only: a vocabulary from JSON, written by
// tests/tokenizer/reference.py.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace pop {

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: cannot be read", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_bytes(path)); }

// The keys are the members of TokenizerData; "pre" may be overridden by the caller.
inline TokenizerData vocabulary_from_json(const nlohmann::json& json) {
  TokenizerData data;
  data.model = json.at("model");
  data.pre = json.at("pre");
  data.tokens = json.at("tokens").get<std::vector<std::string>>();
  data.token_types = json.at("token_types").get<std::vector<int32_t>>();
  data.merges = json.at("merges").get<std::vector<std::string>>();
  data.bos = json.value("bos", -1);
  data.eos = json.value("eos", -1);
  data.unk = json.value("unk", -1);
  data.pad = json.value("pad", -1);
  return data;
}

// A file of tests/tokenizer/reference.py, a tokenizer.json, or a tokenizer.model of SentencePiece, told by its name.
inline TokenizerData read_vocabulary(const std::string& path) {
  if (path.find(".model") != std::string::npos) return read_sentencepiece_model(read_bytes(path));
  if (path.ends_with("tokenizer.json")) return read_tokenizer_json(read_bytes(path));
  return vocabulary_from_json(read_json(path));
}

}  // namespace pop
