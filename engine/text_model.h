// The text side of a model: its tokenizer and chat template, from GGUF metadata or from the files of a Hugging Face folder.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/pop.h"
#include "formats/gguf.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pop {

// Whether metadata has a tokenizer ("none" is none), and what it says. Throws Error naming the key.
bool has_tokenizer(const GgufFile& file);
TokenizerData read_tokenizer(const GgufFile& file);

class TextModel {
 public:
  // A file without a tokenizer gives a model that computes ids only; a damaged one throws Error.
  TextModel(const GgufFile& file, const std::string& bos_mode, int vocab);
  // The same from a Hugging Face folder (text/hf_folder.h). end_ids: those that end a generation with or without a tokenizer.
  TextModel(const std::string& folder, const std::string& bos_mode, int vocab, std::vector<int32_t> end_ids = {});

  const Tokenizer& tokenizer() const;  // throws Error if there is none
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool ends_generation(int32_t id) const;
  const std::string& model_name() const { return model_; }
  const std::string& pre_name() const { return pre_; }
  const std::string& template_source() const { return template_source_; }
  // What happens at the start of a prompt: "added" or "not added".
  std::string bos_description() const;

  std::vector<int32_t> prompt(std::string_view text, bool special) const;
  std::string chat_text(std::span<const ChatMessage> messages) const;
  std::vector<int32_t> chat_prompt(std::span<const ChatMessage> messages) const;

 private:
  std::string render(const nlohmann::ordered_json& messages) const;

  std::string path_, model_, pre_, template_source_;
  BosMode bos_mode_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> end_ids_;
  mutable std::unique_ptr<ChatTemplate> template_;  // compiled at first use: a broken template must not stop `run`
};

}  // namespace pop
