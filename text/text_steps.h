// How text is prepared and cut before the model sees it, as data: normalizers and pre-tokenizers.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace pop {

class Charsmap;

// The character that stands for a space in SentencePiece's vocabularies, U+2581.
constexpr const char* kSpaceMark = "\u2581";

// One change of the whole text.
struct NormalStep {
  enum class Kind {
    kNfc,  // the Unicode normalisation forms
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,     // character by character, as Unicode's simple and special mappings have it
    kStrip,         // white space at the beginning (`left`) and at the end (`right`) goes
    kPrepend,       // `to` in front of a text that is not empty
    kPrefix,        // `to` in front of a text that does not begin with it; `first_only`: and begins the input
    kReplace,       // every `from` by `to`
    kCharsmap,      // Charsmap::apply
    kSingleSpaces,  // no space at the beginning and the end, and one where there are several
  };
  Kind kind;
  std::string from = {}, to = {};
  bool left = false, right = false, first_only = false;
  std::shared_ptr<const Charsmap> charsmap = {};
};

// One cut of every piece that the cuts before it left, by the matches of a pattern. The names are those of Hugging Face
// tokenizers.
struct CutStep {
  enum class Behaviour {
    kIsolated,            // a match is a piece, and so is what lies between matches
    kRemoved,             // matches go
    kContiguous,          // neighbouring matches are one piece
    kMergedWithPrevious,  // a match belongs to what stands before it
    kMergedWithNext,
  };
  std::string pattern;  // PCRE2
  Behaviour behaviour = Behaviour::kIsolated;
  bool invert = false;  // what lies between matches counts as the match
};

struct TextSteps {
  std::vector<NormalStep> normal;   // first; then normalised added tokens are looked for
  std::vector<NormalStep> prepare;  // what pre-tokenizers change: text between added tokens
  std::vector<CutStep> cuts;
  bool ignore_merges = false;  // a piece that is a token as a whole is that token whatever the merges say
};

}  // namespace pop
