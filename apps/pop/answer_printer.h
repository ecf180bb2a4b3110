// Streams an answer as wrapped, indented lines and marks the first word that differs from another answer.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "apps/pop/terminal.h"

namespace pop::app {

class AnswerPrinter {
 public:
  // reference: words of the answer to compare with, or null. Prints to stdout.
  AnswerPrinter(const Style& style, const std::vector<std::string>* reference) : style_(style), reference_(reference) {}
  void add(std::string_view text);
  void finish();  // the last word, and the end of the line

  const std::vector<std::string>& words() const { return words_; }
  int first_difference() const { return first_difference_; }  // index of the word, -1 if there is none

 private:
  void emit_word();
  void emit_newline();
  const Style& style_;
  const std::vector<std::string>* reference_;
  std::vector<std::string> words_;
  std::string word_;
  size_t column_ = 0;
  int first_difference_ = -1;
};

}  // namespace pop::app
