// Changes of a whole text before it is cut: the steps of a normalizer.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "text/text_steps.h"

namespace pop {

// Every `from` (not empty) in `text` by `to`, from left to right.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// The text after all steps; begins_input: nothing stands before it. Each run of well-formed UTF-8 is changed by itself, bytes that
// are not UTF-8 are kept. Cost: linear but for sorting runs of marks. Throws Error where the steps make far more of the text than
// any normalisation does.
std::string normalize(std::span<const NormalStep> steps, std::string_view text, bool begins_input);

// White space by its Unicode property, in well-formed text: bytes of it at the beginning and at the end.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

// True if the character at the beginning or the end of `text` is part of a word: a letter, mark, digit or connector.
bool begins_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace pop
