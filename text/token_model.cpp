#include "text/token_model.h"

#include <cmath>

#include "base/error.h"

namespace pop {

std::unique_ptr<TokenModel> make_token_model(const TokenizerData& data, const Vocabulary& vocabulary,
                                             bool ignore_merges) {
  if (data.model == "gpt2") return make_byte_bpe(data, vocabulary, ignore_merges);
  if (data.model == "bpe") return make_char_bpe(data, vocabulary, ignore_merges);
  if (data.model == "unigram") return make_unigram(data, vocabulary);
  return make_score_bpe(data, vocabulary);
}

void check_scores(const TokenizerData& data) {
  if (data.scores.size() != data.tokens.size())
    fail("{}scores: expected one per token ({}), found {}", data.keys, data.tokens.size(), data.scores.size());
  for (size_t id = 0; id < data.scores.size(); ++id)
    if (!std::isfinite(data.scores[id]))
      fail("{}scores: expected a number for token {}, found {}", data.keys, id, data.scores[id]);
}

bool append_unknown(std::string_view text, const Vocabulary& vocabulary, int32_t unknown, bool unknown_before,
                    std::vector<int32_t>& out) {
  const auto& bytes = vocabulary.byte_ids();
  if (bytes[0] >= 0) {  // then there are all 256
    for (const char byte : text) out.push_back(bytes[static_cast<uint8_t>(byte)]);
    return false;
  }
  if (!unknown_before && unknown >= 0) out.push_back(unknown);
  return true;
}

}  // namespace pop
