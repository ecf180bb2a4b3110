// A text as an evaluation sees it: its bytes' hash, its ids, and where the windows lie that are scored.
#pragma once
#include <string>
#include <vector>

#include "apps/eval/forced.h"
#include "apps/pop/results.h"

namespace pop::app {

struct Corpus {
  std::string path, sha256;  // of the file's bytes
  std::vector<std::string> documents;
};

// The file as one document, or as JSON Lines with a field "text" per document. Throws Error.
Corpus read_corpus(const std::string& path, bool lines);

// "corpus" and "corpus_sha256".
void add_corpus(Json& json, const Corpus& corpus);

// SHA-256 over ids as int32, little-endian.
std::string sha256_ids(const std::vector<int32_t>& ids);

// The windows of a perplexity convention: what is given, and which tokens are predicted in it.
//   llama     one ids list, consecutive windows of `context`, the rest dropped; the first token is replaced by `bos` unless that
//             is empty; predicted are those after context / 2, which decode does after a prefill of context / 2 (split). As
//             llama-perplexity does (evaluation.md 5.1).
//   hf-chunk  the same windows as they are, all tokens but the first predicted, in one pass (wanda, SparseGPT).
//   rolling   every token once, the first after `prefix`; a window holds up to `context` inputs, the last one reaches back
//             (lm-eval's get_rolling_token_windows and make_disjoint_window).
std::vector<ForcedText> llama_windows(const std::vector<int32_t>& ids, const std::vector<int32_t>& bos, int context,
                                      bool split);
std::vector<ForcedText> chunk_windows(const std::vector<int32_t>& ids, int context);
std::vector<ForcedText> rolling_windows(const std::vector<int32_t>& ids, int32_t prefix, int context);

// Words as lm-eval counts them: pieces between runs of blanks, empty ones at the ends counted (len(re.split(r"\s+", text))).
size_t count_words(std::string_view text);

// Blanks as Python's str.isspace and re's \s see them in UTF-8: how many bytes of one begin at text[at]; 0: none.
size_t blank_at(std::string_view text, size_t at);

// The token that stands for "before the text": the model file's beginning-of-sequence token, else its end-of-sequence token.
// Throws Error if it has neither.
int32_t prefix_token(const ModelInfo& info);

}  // namespace pop::app
