#include "text/tokenizer_json.h"

#include <set>

#include "base/error.h"
#include "text/tokenizer_json_steps.h"

namespace pop {
namespace {

constexpr auto kUnused = static_cast<int32_t>(TokenType::kUnused);

// Puts a token at its id; the ids between stay unused until one claims them.
void place(TokenizerData& data, int32_t id, const std::string& text, TokenType type, const std::string& name) {
  const auto at = static_cast<size_t>(id);
  if (at >= data.tokens.size()) {
    data.tokens.resize(at + 1);
    data.token_types.resize(at + 1, kUnused);
  }
  if (data.token_types[at] != kUnused)
    fail("{}: expected every id once, found {} for \"{}\" and \"{}\"", name, id, printable(data.tokens[at]),
         printable(text));
  data.tokens[at] = text;
  data.token_types[at] = static_cast<int32_t>(type);
}

bool spells_byte(std::string_view text) { return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'); }

void read_bpe(const JsonReader& model, TokenizerData& data) {
  if (model.has("dropout") && model.at("dropout").number() != 0) model.at("dropout").expected("none");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key) && !model.at(key).text().empty()) model.at(key).expected("none (not supported)");
  const bool byte_fallback = model.at("byte_fallback").flag(false);
  data.fuse_unknown = model.at("fuse_unk").flag(false);
  data.steps->ignore_merges = model.at("ignore_merges").flag(false);
  const JsonReader vocab = model.at("vocab");
  if (!vocab.value().is_object()) vocab.expected("an object");
  for (const auto& [text, id] : vocab.value().items()) {
    const bool byte = byte_fallback && spells_byte(text);
    place(data, JsonReader(id, vocab.name() + ": \"" + printable(text) + '"').id(), text,
          byte ? TokenType::kByte : TokenType::kNormal, vocab.name());
  }
  if (model.has("unk_token")) {
    const auto found = vocab.value().find(model.at("unk_token").text());
    if (found == vocab.value().end()) model.at("unk_token").expected("a token of the vocabulary");
    data.unk = found->get<int32_t>();
  }
  const JsonReader merges = model.at("merges");
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonReader merge = merges.element(i);
    if (merge.value().is_string()) {
      data.merges.push_back(merge.text());
      continue;
    }
    if (merge.size() != 2) merge.expected("two tokens");
    for (const size_t half : {size_t{0}, size_t{1}})
      if (merge.element(half).text().find(' ') != std::string::npos)
        merge.element(half).expected("a token without spaces (not supported)");
    data.merges.push_back(merge.element(0).text() + ' ' + merge.element(1).text());
  }
}

void read_unigram(const JsonReader& model, TokenizerData& data) {
  const bool byte_fallback = model.at("byte_fallback").flag(false);
  const JsonReader vocab = model.at("vocab");
  for (size_t id = 0; id < vocab.size(); ++id) {
    const JsonReader entry = vocab.element(id);
    if (entry.size() != 2) entry.expected("a token and its score");
    const std::string& text = entry.element(0).text();
    const bool byte = byte_fallback && spells_byte(text);
    place(data, static_cast<int32_t>(id), text, byte ? TokenType::kByte : TokenType::kNormal, vocab.name());
    data.scores.push_back(entry.element(1).number());
  }
  if (model.has("unk_id")) {
    data.unk = model.at("unk_id").id();
    if (static_cast<size_t>(data.unk) >= data.tokens.size()) model.at("unk_id").expected("a token of the vocabulary");
  }
}

void read_added_tokens(const JsonReader& list, TokenizerData& data) {
  if (list.is_null()) return;
  std::set<int32_t> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonReader json = list.element(i);
    AddedToken token{json.at("id").id()};
    const std::string& text = json.at("content").text();
    if (text.empty()) json.at("content").expected("a text");
    token.normalized = json.at("normalized").flag(false);
    token.single_word = json.at("single_word").flag(false);
    token.lstrip = json.at("lstrip").flag(false);
    token.rstrip = json.at("rstrip").flag(false);
    const bool special = json.at("special").flag(false);
    const TokenType type = !special               ? TokenType::kUserDefined
                           : token.id == data.unk ? TokenType::kUnknown
                                                  : TokenType::kControl;
    const auto at = static_cast<size_t>(token.id);
    const bool in_vocabulary = at < data.tokens.size() && data.token_types[at] != kUnused && data.tokens[at] == text;
    if (!seen.insert(token.id).second) json.at("id").expected("every id once");
    if (in_vocabulary)
      data.token_types[at] = static_cast<int32_t>(type);
    else
      place(data, token.id, text, type, list.name());
    token.in_model = in_vocabulary;
    data.added.push_back(token);
  }
}

// One token in front of the text and one behind it at most.
int32_t template_token(const JsonReader& piece, const JsonReader& json, const TokenizerData& data) {
  const std::string& name = piece.at("SpecialToken").at("id").text();
  const JsonReader special = json.at("special_tokens").at(name.c_str());
  if (special.at("ids").size() != 1) special.at("ids").expected("one id");
  const int32_t id = special.at("ids").element(0).id();
  if (static_cast<size_t>(id) >= data.tokens.size()) special.at("ids").expected("ids of the vocabulary");
  return id;
}

void read_post_processor(const JsonReader& json, TokenizerData& data) {
  if (json.is_null()) return;
  const std::string& type = json.at("type").text();
  if (type == "Sequence") {
    const JsonReader list = json.at("processors");
    for (size_t i = 0; i < list.size(); ++i) read_post_processor(list.element(i), data);
  } else if (type == "TemplateProcessing") {
    const JsonReader single = json.at("single");
    bool text_seen = false;
    for (size_t i = 0; i < single.size(); ++i) {
      const JsonReader piece = single.element(i);
      if (!piece.has("SpecialToken")) {
        if (text_seen || piece.at("Sequence").at("id").text() != "A") piece.expected("the text once");
        text_seen = true;
        continue;
      }
      std::optional<bool>& add = text_seen ? data.add_eos : data.add_bos;
      if (add.value_or(false)) piece.expected("one token before and one behind the text at most");
      add = true;
      (text_seen ? data.eos : data.bos) = template_token(piece, json, data);
    }
    if (!text_seen) single.expected("the text once");
  } else if (type != "ByteLevel") {
    json.at("type").expected("TemplateProcessing, ByteLevel or Sequence");
  }
}

}  // namespace

TokenizerData read_tokenizer_json(std::string_view bytes) {
  const nlohmann::json document = parse_json(bytes, "tokenizer.json");
  const JsonReader root(document, "tokenizer.json: ");
  const JsonReader model = root.at("model");
  const std::string type = model.has("type") ? model.at("type").text() : model.has("merges") ? "BPE" : "";
  const JsonPipeline pipeline = read_pipeline(root);
  TokenizerData data;
  data.keys = "tokenizer.json: ";
  data.huggingface = true;
  data.steps = pipeline.steps;
  data.strips_space = pipeline.strips_space;
  if (type == "BPE") {
    data.model = pipeline.byte_level ? "gpt2" : "bpe";
    read_bpe(model, data);
  } else if (type == "Unigram" && !pipeline.byte_level) {
    data.model = "unigram";
    read_unigram(model, data);
  } else {
    model.at("type").expected("BPE, or Unigram without ByteLevel");
  }
  if (model.at("byte_fallback").flag(false) && !pipeline.byte_fallback && !pipeline.byte_level)
    root.at("decoder").expected("ByteFallback in it, as the model has byte_fallback");
  if (pipeline.byte_level && model.at("byte_fallback").flag(false))
    model.at("byte_fallback").expected("false with ByteLevel");
  read_added_tokens(root.at("added_tokens"), data);
  if (data.model == "unigram") data.scores.resize(data.tokens.size());
  data.add_bos = data.add_eos = false;
  read_post_processor(root.at("post_processor"), data);
  return data;
}

}  // namespace pop
