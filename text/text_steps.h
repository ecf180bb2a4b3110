// How text is prepared and cut before the model sees it, as data: normalizers and pre-tokenizers.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace pop {

class Charsmap;

// One change of the whole text.
struct NormalStep {
  enum class Kind {
    kNfc,
    kPrepend,  // `to` in front of a text that is not empty
    kReplace,  // every `from` by `to`
    kCharsmap,
    kSingleSpaces,  // no space at the beginning and the end, and one where there are several
  };
  Kind kind;
  std::string from = {}, to = {};
  std::shared_ptr<const Charsmap> charsmap = {};
};

// The character that stands for a space in SentencePiece's vocabularies, U+2581.
constexpr const char* kSpaceMark = "\u2581";

struct TextSteps {
  std::vector<NormalStep> normal;  // in order
  std::vector<std::string> cuts;   // PCRE2 patterns: each cuts every piece that the ones before it left: a match is a
                                   // piece, and so is what lies between matches
  bool ignore_merges = false;      // a piece that is a token as a whole is that token whatever the merges say
};

}  // namespace pop
