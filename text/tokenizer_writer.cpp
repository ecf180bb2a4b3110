#include "text/tokenizer_writer.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/known_patterns.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace pop {
namespace {

using nlohmann::json;  // sorted: a vocabulary in the order of ids would be looked through for each of its members

bool is(const TokenizerData& data, size_t id, TokenType type) {
  return data.token_types[id] == static_cast<int32_t>(type);
}

json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

// One step for each pattern, and ByteLevel, which has GPT-2's built in.
json pre_tokenizer(const PreTokenizer::Published& published) {
  auto steps = json::array();
  std::vector<std::string_view> patterns = published.patterns;
  const bool gpt2 = patterns.back() == kGpt2Pattern;
  if (gpt2) patterns.pop_back();
  for (const std::string_view pattern : patterns) {
    if (pattern == R"(\p{N})")
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    else if (is_known_pattern(pattern))
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", std::string(pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    else
      fail("tokenizer.ggml.pre: expected a pre-tokenizer that a tokenizer.json was published with, found \"{}\"",
           published.name);
  }
  steps.push_back(byte_level(gpt2));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

json with_bos(const TokenizerData& data) {
  const std::string& bos = data.tokens.at(static_cast<size_t>(data.bos));
  const json special = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto text = [](const char* name, int type) -> json {
    return {{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", json::array({special, text("A", 0)})},
          {"pair", json::array({special, text("A", 0), special, text("B", 1)})},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", json::array({data.bos})}, {"tokens", json::array({bos})}}}}}};
}

json added_tokens(const TokenizerData& data) {
  auto added = json::array();
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (is(data, id, TokenType::kNormal) || is(data, id, TokenType::kUnused)) continue;
    added.push_back({{"id", id},
                     {"content", data.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", !is(data, id, TokenType::kUserDefined)}});
  }
  return added;
}

// A protobuf message, field by field.
class Message {
 public:
  void number(int field, uint64_t value) {
    varint(uint64_t(field) << 3);
    varint(value);
  }
  void real(int field, float value) {
    varint(uint64_t(field) << 3 | 5);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out_.append(bytes, sizeof value);
  }
  void text(int field, std::string_view value) {
    varint(uint64_t(field) << 3 | 2);
    varint(value.size());
    out_ += value;
  }
  const std::string& bytes() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

// Numbers of fields: sentencepiece_model.proto of the `sentencepiece` library.
std::string trainer_spec(const TokenizerData& data) {
  bool bytes = false;
  for (size_t id = 0; id < data.tokens.size(); ++id) bytes = bytes || is(data, id, TokenType::kByte);
  Message spec;
  spec.number(3, 2);  // model_type: BPE
  spec.number(4, data.tokens.size());
  spec.number(35, bytes ? 1 : 0);
  const std::pair<int, int32_t> ids[] = {{0, data.unk}, {1, data.bos}, {2, data.eos}, {3, data.pad}};
  for (const auto& [which, id] : ids) spec.number(40 + which, static_cast<uint64_t>(int64_t{id}));
  for (const auto& [which, id] : ids)
    if (id >= 0) spec.text(45 + which, data.tokens.at(static_cast<size_t>(id)));
  return spec.bytes();
}

std::string normalizer_spec(const TokenizerData& data) {
  Message spec;
  spec.text(1, "identity");
  spec.number(3, data.add_space_prefix.value_or(true) ? 1 : 0);  // add_dummy_prefix
  spec.number(4, 0);                                             // remove_extra_whitespaces
  spec.number(5, 1);                                             // escape_whitespaces
  return spec.bytes();
}

}  // namespace

std::string write_tokenizer_json(const TokenizerData& data, bool add_bos) {
  if (data.model != "gpt2") fail("{}model: expected \"gpt2\", found \"{}\"", data.keys, printable(data.model));
  const PreTokenizer::Published published = PreTokenizer::published(data.pre);
  json normalizer = nullptr;
  if (published.nfc) normalizer = {{"type", "NFC"}};
  auto vocab = json::object();
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (is(data, id, TokenType::kUnused)) continue;
    if (utf8_valid_prefix(data.tokens[id]) != data.tokens[id].size())
      fail("{}tokens: token {}: expected UTF-8, as JSON is, found \"{}\"", data.keys, id, printable(data.tokens[id]));
    vocab[data.tokens[id]] = id;
  }
  const json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", published.ignore_merges},
                      {"vocab", std::move(vocab)},
                      {"merges", data.merges}};
  const json document = {{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", added_tokens(data)},
                         {"normalizer", normalizer},
                         {"pre_tokenizer", pre_tokenizer(published)},
                         {"post_processor", add_bos ? with_bos(data) : byte_level(true)},
                         {"decoder", byte_level(true)},
                         {"model", model}};
  return document.dump(1, ' ') + '\n';
}

std::string write_sentencepiece_model(const TokenizerData& data) {
  if (data.model != "llama") fail("{}model: expected \"llama\", found \"{}\"", data.keys, printable(data.model));
  Message model;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    Message piece;
    piece.text(1, data.tokens[id].empty() ? fmt::format("<unused {}>", id) : data.tokens[id]);
    piece.real(2, static_cast<float>(data.scores.at(id)));
    piece.number(3, static_cast<uint64_t>(data.token_types[id]));
    model.text(1, piece.bytes());
  }
  model.text(2, trainer_spec(data));
  model.text(3, normalizer_spec(data));
  return model.bytes();
}

}  // namespace pop
