// Changes of a whole text before it is cut: the steps of a normalizer.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "text/text_steps.h"

namespace pop {

// Every `from` (not empty) in `text` by `to`, from left to right.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// The text after all steps. Each run of well-formed UTF-8 is changed by itself, bytes that are not UTF-8 are kept.
// Cost: linear but for sorting runs of marks.
std::string normalize(std::span<const NormalStep> steps, std::string_view text);

}  // namespace pop
