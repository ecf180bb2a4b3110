#include "apps/pop/answer_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace pop::app {
namespace {

constexpr size_t kIndent = 2, kColumns = 80;

}  // namespace

void AnswerPrinter::add(std::string_view text) {
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\r') {
      emit_word();
    } else if (c == '\n') {
      emit_word();
      emit_newline();
    } else {
      word_ += c;
    }
  }
  std::fflush(stdout);
}

void AnswerPrinter::finish() {
  emit_word();
  emit_newline();
  std::fflush(stdout);
}

void AnswerPrinter::emit_word() {
  if (word_.empty()) return;
  const size_t index = words_.size();
  const bool differs =
      reference_ && first_difference_ < 0 && (index >= reference_->size() || (*reference_)[index] != word_);
  if (differs) first_difference_ = static_cast<int>(index);
  // Without colours the mark must be readable too.
  const std::string shown = !differs ? word_ : style_.colored() ? style_.marked(word_) : ">>" + word_ + "<<";
  const size_t columns = width_of(word_) + (differs && !style_.colored() ? 4 : 0);
  if (column_ > 0 && column_ + 1 + columns > kColumns) emit_newline();
  if (column_ == 0) {
    fmt::print("{:{}}{}", "", kIndent, shown);
    column_ = kIndent + columns;
  } else {
    fmt::print(" {}", shown);
    column_ += 1 + columns;
  }
  words_.push_back(word_);
  word_.clear();
}

void AnswerPrinter::emit_newline() {
  if (column_ == 0) return;  // blank lines of an answer cost room and say nothing
  fmt::print("\n");
  column_ = 0;
}

}  // namespace pop::app
