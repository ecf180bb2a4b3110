// What a generated answer is worth: filters that take a string out of it, and metrics that compare it with targets. Semantics are
// those of lm-evaluation-harness 0.4 (filters/extraction.py, api/metrics.py: exact_match, tasks/coqa/utils.py), which is Python:
// regular expressions over Unicode, str.lower, str.strip. Texts are well-formed UTF-8 (valid_text).
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pop::app {

// The text with U+FFFD in place of every cut or impossible character, as Python's errors="replace" has it.
std::string valid_text(std::string_view bytes);

// A regular expression (PCRE2, Unicode). Throws Error: `where`, the pattern, the reason.
class Pattern {
 public:
  Pattern(const std::string& where, const std::string& pattern);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Of every match, left to right without overlap: the first group that is not empty (the whole match if the pattern has no
  // group). Groups all empty: "[invalid]", as in the harness. Throws Error if a match takes more steps than a limit.
  std::vector<std::string> find_all(std::string_view text) const;
  // The text with something else in place of every match.
  std::string replace(std::string_view text, std::string_view with) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Takes a string from an answer.
struct AnswerFilter {
  std::string name = "none";
  bool strip = false;              // white space at both ends
  std::vector<Pattern> pattern{};  // one or none
  int pick = 0;                    // which match: 0 the first, -1 the last

  // No such match: "[invalid]".
  std::string apply(std::string_view answer) const;
};

// How answer and targets are made alike: in this order.
struct ExactMatch {
  std::vector<Pattern> remove{};
  bool ignore_case = false, ignore_punctuation = false;  // string.punctuation: ASCII

  std::string normalize(std::string_view text) const;
  // 1 if the answer equals one of the targets, else 0. targets: at least one.
  double score(std::string_view answer, std::span<const std::string> targets) const;
};

// SQuAD's words: lower case, without ASCII punctuation, without a, an, the, split at white space.
std::vector<std::string> squad_words(std::string_view text);

struct SquadScore {
  double em = 0, f1 = 0;
};
// Of the first line of the stripped answer. With several targets (people's answers) the mean over leaving out one of them of the
// best score against the others, which is what one more person would get. targets: at least one.
SquadScore squad_score(std::string_view answer, std::span<const std::string> targets);

}  // namespace pop::app
