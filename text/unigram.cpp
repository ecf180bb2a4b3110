// The unigram language model (Kudo, arXiv 1804.10959): of all ways to cut a text into tokens the one with the largest
// sum of scores, found from left to right (Viterbi). Sums and ties as the `sentencepiece` library has them (float32
// between characters, the first of equals) or as Hugging Face `tokenizers` has them (float64).
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/added_tokens.h"
#include "text/token_model.h"
#include "text/utf8.h"

namespace pop {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score

class Unigram : public TokenModel {
 public:
  Unigram(const TokenizerData& data, const Vocabulary& vocabulary);
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  struct Node {
    double score = 0;  // of the best way to this place
    size_t begin = 0;  // of its last token
    int32_t id = kNone;
  };
  static constexpr int32_t kNone = -2, kUnknown = -1;
  void offer(Node& node, double score, size_t begin, int32_t id) const;

  const Vocabulary& vocabulary_;
  AddedTokens tokens_;
  std::vector<double> scores_;
  double best_score_ = std::numeric_limits<double>::lowest(), unknown_score_;
  int32_t unknown_;
  bool huggingface_;  // sums in float64, no bonus for user-defined tokens
};

Unigram::Unigram(const TokenizerData& data, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), scores_(data.scores), unknown_(data.unk), huggingface_(data.huggingface) {
  check_scores(data);
  double worst = std::numeric_limits<double>::max();
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const auto type = vocabulary.type(static_cast<int32_t>(id));
    if (type != TokenType::kNormal && type != TokenType::kUserDefined) continue;
    const bool user = !huggingface_ && type == TokenType::kUserDefined;
    if (vocabulary.find_normal(data.tokens[id]) != static_cast<int32_t>(id)) continue;  // beside the model
    if (!data.tokens[id].empty()) tokens_.add(data.tokens[id], static_cast<int32_t>(id));
    if (user) continue;
    worst = std::min(worst, scores_[id]);
    best_score_ = std::max(best_score_, scores_[id]);
  }
  unknown_score_ = worst - kUnknownPenalty;
}

void Unigram::offer(Node& node, double score, size_t begin, int32_t id) const {
  if (!huggingface_) score = static_cast<float>(score);
  if (node.id == kNone || score > node.score) node = {score, begin, id};
}

void Unigram::encode(std::string_view piece, BpeScratch&, std::vector<int32_t>& out) const {
  std::vector<Node> ends(piece.size() + 1);
  for (size_t at = 0; at < piece.size();) {
    const std::string_view rest = piece.substr(at);
    const size_t character = std::max<size_t>(1, utf8_char_length(rest));
    bool single = false;
    tokens_.each_match(rest, [&](int32_t id, size_t length) {
      // A user-defined token wins over whatever could be made of its characters.
      const bool user = !huggingface_ && vocabulary_.type(id) == TokenType::kUserDefined;
      const double score = user ? static_cast<double>(length) * best_score_ - 0.1 : scores_[static_cast<size_t>(id)];
      offer(ends[at + length], score + ends[at].score, at, id);
      single = single || length == character;
    });
    if (!single) offer(ends[at + character], unknown_score_ + ends[at].score, at, kUnknown);
    at += character;
  }
  std::vector<std::pair<size_t, size_t>> ranges;
  for (size_t end = piece.size(); end > 0; end = ends[end].begin) ranges.push_back({ends[end].begin, end});
  bool unknown = false;
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
    const auto [begin, end] = *range;
    if (ends[end].id >= 0)
      out.push_back(ends[end].id), unknown = false;
    else
      unknown = append_unknown(piece.substr(begin, end - begin), vocabulary_, unknown_, unknown, out);
  }
}

}  // namespace

std::unique_ptr<TokenModel> make_unigram(const TokenizerData& data, const Vocabulary& vocabulary) {
  return std::make_unique<Unigram>(data, vocabulary);
}

}  // namespace pop
