// Pre-tokenizers: how text is cut into the pieces that BPE never merges across, by the name in tokenizer.ggml.pre or
// by the steps that a file lists.
//
// Source of the patterns: the pre_tokenizer section of the tokenizer.json published with each model (Hugging Face),
// except `default`, which no tokenizer.json has: it is spelt as GGUF readers spell it for files that say "default".
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_steps.h"

namespace pop {

class PreTokenizer {
 public:
  // smollm, gpt-2, llama-bpe, qwen2, olmo, dbrx, tekken, gpt-4o, deepseek-v3, default, or an alias of one (names()). Any
  // other name is an error.
  explicit PreTokenizer(std::string_view name);
  // What a file says itself. A pattern that PCRE2 refuses is an error.
  explicit PreTokenizer(const TextSteps& steps);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The names the constructor takes, aliases last.
  static std::vector<std::string_view> names();

  // What stands behind a name, for writers of other files. patterns: in Hugging Face's spelling (known_patterns.h; those of
  // "default" are no published ones).
  struct Published {
    std::string_view name;
    std::vector<std::string_view> patterns;
    bool nfc, ignore_merges;
  };
  static Published published(std::string_view name);  // throws Error as the constructor
  // The first name that does the same as these steps; empty: none does.
  static std::optional<std::string_view> name_of(const TextSteps& steps);

  // The text as the model wants it: Unicode form C for qwen2, as its tokenizer.json says; the other names return the text
  // as it is.
  std::string normalise(std::string_view text) const;
  bool normalises() const;  // or prepare() changes anything

  // What pre-tokenizers change of a normalised text between added tokens. begins_input: nothing stands before it.
  std::string prepare(std::string text, bool begins_input) const;

  // TextSteps::ignore_merges (tokenizer.json "ignore_merges").
  bool ignore_merges() const;

  // What a model of this kind does about BOS when the file does not say (the tokenizer.json of Llama-3 and of Tekken
  // models add it, no other does).
  bool adds_bos_by_default() const;

  // The pieces of `text` in order, views into it; together they are all of it but for what CutStep says goes. Each byte that
  // is not part of well-formed UTF-8 is a piece of its own, and what stands between such bytes is cut as if it stood alone.
  // Thread-safe.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pop
