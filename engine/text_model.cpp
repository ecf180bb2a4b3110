#include "engine/text_model.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "text/hf_folder.h"
#include "text/normalize.h"

namespace pop {
namespace {

int32_t token_id(const GgufFile& file, const char* key) {
  const auto value = file.find_u64(key);
  if (!value || *value == UINT32_MAX) return -1;  // some converters write "none" as all ones
  if (*value > INT32_MAX) fail("{}: key {}: expected a token id, found {}", file.path(), key, *value);
  return int32_t(*value);
}

// What SentencePiece vocabularies say beyond their tokens.
void read_sentencepiece(const GgufFile& file, TokenizerData& data) {
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"})
    if (!file.has(key)) fail("{}: key {}: expected it in a SentencePiece vocabulary, found none", file.path(), key);
  if (file.has("tokenizer.ggml.precompiled_charsmap"))
    fail("{}: key tokenizer.ggml.precompiled_charsmap: expected none, found one (not supported)", file.path());
  if (file.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false))
    fail("{}: key tokenizer.ggml.remove_extra_whitespaces: expected false, found true (not supported)", file.path());
  const std::vector<float> scores = file.get_floats("tokenizer.ggml.scores", data.tokens.size());
  data.scores.assign(scores.begin(), scores.end());
  data.add_space_prefix = file.find_bool("tokenizer.ggml.add_space_prefix");
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    // Converters write spaces into user-defined tokens; the text comes with marks for spaces.
    if (data.token_types[id] == int32_t(TokenType::kUserDefined))
      data.tokens[id] = replace_all(data.tokens[id], " ", kSpaceMark);
    if (data.unk < 0 && data.token_types[id] == int32_t(TokenType::kUnknown)) data.unk = int32_t(id);
  }
}

ChatTime local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  localtime_r(&now, &t);
  return {t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
}

// Stands for one occurrence of a special token's text inside a message while the template runs, so that afterwards we know
// which of the prompt's special tokens the template wrote. Private-use characters survive trim, split and the like.
std::string placeholder(size_t index) { return "\xf3\xb0\x80\x80" + std::to_string(index) + "\xf3\xb0\x80\x81"; }

}  // namespace

bool has_tokenizer(const GgufFile& file) {
  return file.has("tokenizer.ggml.model") && file.get_string("tokenizer.ggml.model") != "none";
}

TokenizerData read_tokenizer(const GgufFile& file) {
  TokenizerData data;
  data.model = file.get_string("tokenizer.ggml.model");
  if (data.model == "gpt2") data.pre = file.get_string("tokenizer.ggml.pre", "default");
  data.tokens = file.get_strings("tokenizer.ggml.tokens");
  if (file.has("tokenizer.ggml.token_type")) {
    for (const int64_t type : file.get_ints("tokenizer.ggml.token_type", data.tokens.size()))
      data.token_types.push_back(type >= 0 && type <= 6 ? int32_t(type) : -1);
  } else {
    data.token_types.assign(data.tokens.size(), 1);
  }
  if (file.has("tokenizer.ggml.merges")) data.merges = file.get_strings("tokenizer.ggml.merges");
  data.bos = token_id(file, "tokenizer.ggml.bos_token_id");
  data.eos = token_id(file, "tokenizer.ggml.eos_token_id");
  data.eot = token_id(file, "tokenizer.ggml.eot_token_id");
  data.eom = token_id(file, "tokenizer.ggml.eom_token_id");
  data.unk = token_id(file, "tokenizer.ggml.unknown_token_id");
  data.pad = token_id(file, "tokenizer.ggml.padding_token_id");
  data.add_bos = file.find_bool("tokenizer.ggml.add_bos_token");
  data.add_eos = file.find_bool("tokenizer.ggml.add_eos_token");
  if (data.model == "llama") read_sentencepiece(file, data);
  return data;
}

TextModel::TextModel(const GgufFile& file, const std::string& bos_mode, int vocab)
    : path_(file.path()), bos_mode_(parse_bos_mode(bos_mode)) {
  if (pop::has_tokenizer(file)) {
    try {
      const TokenizerData data = read_tokenizer(file);
      if (data.tokens.size() != size_t(vocab))
        fail("key tokenizer.ggml.tokens: expected {} tokens as the embedding has rows, found {}", vocab,
             data.tokens.size());
      model_ = data.model;
      pre_ = data.pre;
      tokenizer_ = std::make_unique<Tokenizer>(data);
    } catch (const Error& e) {
      if (std::string_view(e.what()).starts_with(path_)) throw;
      fail("{}: {}", path_, e.what());
    }
  }
  template_source_ = file.get_string("tokenizer.chat_template", "");
}

TextModel::TextModel(const std::string& folder, const std::string& bos_mode, int vocab, std::vector<int32_t> end_ids)
    : path_(folder), bos_mode_(parse_bos_mode(bos_mode)), end_ids_(std::move(end_ids)) {
  const FolderText text = read_folder_text(folder, vocab);
  if (text.tokenizer) {
    model_ = text.tokenizer->model;
    pre_ = text.tokenizer_file;
    tokenizer_ = std::make_unique<Tokenizer>(*text.tokenizer);
  }
  template_source_ = text.chat_template;
}

bool TextModel::ends_generation(int32_t id) const {
  return std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end() ||
         (tokenizer_ != nullptr && tokenizer_->is_end_of_generation(id));
}

const Tokenizer& TextModel::tokenizer() const {
  if (tokenizer_ == nullptr) fail("{}: expected a tokenizer, found none (token ids can still be used)", path_);
  return *tokenizer_;
}

std::string TextModel::bos_description() const {
  const bool adds = tokenizer_ != nullptr && tokenizer_->bos() >= 0 &&
                    (bos_mode_ == BosMode::kAlways || (bos_mode_ == BosMode::kAuto && tokenizer_->add_bos()));
  return adds ? "added" : "not added";
}

std::vector<int32_t> TextModel::prompt(std::string_view text, bool special) const {
  std::vector<int32_t> ids = tokenizer().encode(text, special);
  tokenizer().apply_bos(ids, bos_mode_);
  return ids;
}

std::string TextModel::render(const nlohmann::ordered_json& messages) const {
  if (template_source_.empty()) fail("{}: expected a chat template, found none (use a plain prompt)", path_);
  if (template_ == nullptr) template_ = std::make_unique<ChatTemplate>(template_source_);
  ChatPrompt prompt;
  prompt.messages = messages;
  prompt.now = local_now();
  if (tokenizer_ != nullptr) {
    if (tokenizer_->bos() >= 0) prompt.bos_token = std::string(tokenizer_->piece(tokenizer_->bos()));
    if (tokenizer_->eos() >= 0) prompt.eos_token = std::string(tokenizer_->piece(tokenizer_->eos()));
  }
  return template_->render(prompt);
}

std::string TextModel::chat_text(std::span<const ChatMessage> messages) const {
  auto list = nlohmann::ordered_json::array();
  for (const ChatMessage& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  return render(list);
}

std::vector<int32_t> TextModel::chat_prompt(std::span<const ChatMessage> messages) const {
  const Tokenizer& tok = tokenizer();
  // Texts of control tokens inside messages, in order; the prompt with and without them tells template from user.
  std::vector<std::string> hidden;
  auto list = nlohmann::ordered_json::array();
  for (const ChatMessage& m : messages) {
    if (m.content.find("\xf3\xb0\x80\x80") != std::string::npos)
      fail("chat message: expected text without the private-use character U+F0000, found one");
    std::string content;
    size_t plain = 0;
    for (const auto& [begin, end] : tok.control_ranges(m.content)) {
      content += m.content.substr(plain, begin - plain) + placeholder(hidden.size());
      hidden.push_back(m.content.substr(begin, end - begin));
      plain = end;
    }
    list.push_back({{"role", m.role}, {"content", content + m.content.substr(plain)}});
  }
  const std::string rendered = render(list);
  std::string text;
  std::vector<Tokenizer::Range> literal;
  for (size_t at = 0; at < rendered.size();) {
    const size_t mark = rendered.find("\xf3\xb0\x80\x80", at);
    text += rendered.substr(at, mark - at);
    if (mark == std::string::npos) break;
    const size_t close = rendered.find("\xf3\xb0\x80\x81", mark);
    if (close == std::string::npos) fail("chat template: cut a message inside a special token's text");
    const size_t index = std::stoul(rendered.substr(mark + 4, close - mark - 4));
    literal.push_back({text.size(), text.size() + hidden.at(index).size()});
    text += hidden[index];
    at = close + 4;
  }
  std::vector<int32_t> ids = tok.encode(text, true, literal);
  tok.apply_bos(ids, bos_mode_);
  return ids;
}

}  // namespace pop
