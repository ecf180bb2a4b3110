// Checks of option values, each with a message that says what was expected and what was found.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pop::app {

// A finite number in [low, high].
CLI::Validator real_in(double low, double high);
// A whole number in [low, high].
CLI::Validator whole_in(int64_t low, int64_t high);
// One of the words; a near miss is answered with a suggestion.
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator not_empty();
// For transform(): the text in lower case.
CLI::Validator lower_case();

// The candidate with the fewest edits to `word` (two words exchanged, a letter changed, added or left out: one edit each),
// or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace pop::app
