// SentencePiece's BPE: the two neighbours whose joint token has the best score are merged first, of equal ones the
// leftmost (Kudo and Richardson, arXiv 1808.06226; the order is that of the `sentencepiece` library).
#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/error.h"
#include "text/added_tokens.h"
#include "text/token_model.h"
#include "text/utf8.h"

namespace pop {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

struct Symbol {
  uint32_t begin, size;     // in the piece; size 0: merged into the one before
  uint32_t previous, next;  // symbols
  bool fixed;               // a user-defined token, which merges with nothing
};

// Tokens that merges may make, by their text, and how good they are.
struct Target {
  int32_t id;
  uint32_t rank;  // 0 is the best score; equal scores have equal ranks
  bool unused;
};

class ScoreBpe : public TokenModel {
 public:
  ScoreBpe(const TokenizerData& data, const Vocabulary& vocabulary);
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  // One call of encode.
  struct Run {
    std::string_view text;
    std::vector<Symbol> symbols;
    std::vector<uint64_t>& heap;                          // rank << 32 | left symbol
    std::unordered_map<std::string_view, size_t> halves;  // unused tokens that were made: bytes of the left half
    std::string_view of(const Symbol& s) const { return text.substr(s.begin, s.size); }
  };
  const Target* find(std::string_view text) const;
  void cut(Run& run) const;
  const Target* candidate(const Run& run, uint32_t at) const;
  void offer(Run& run, uint32_t at) const;
  void merge(Run& run) const;
  bool append(const Run& run, std::string_view text, bool unknown_before, std::vector<int32_t>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<std::string> texts_;                        // of targets_
  std::unordered_map<std::string_view, Target> targets_;  // keys view texts_
  AddedTokens user_defined_;
  size_t longest_ = 0;  // bytes of the longest target
  int32_t unknown_;
};

// Rank by score, best first; equal scores share a rank, so that the leftmost of them is merged first.
std::vector<uint32_t> ranks_of(const std::vector<double>& scores) {
  std::vector<double> distinct = scores;
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<uint32_t> out;
  for (const double score : scores)
    out.push_back(static_cast<uint32_t>(std::lower_bound(distinct.begin(), distinct.end(), score, std::greater<>()) -
                                        distinct.begin()));
  return out;
}

ScoreBpe::ScoreBpe(const TokenizerData& data, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), texts_(data.tokens), unknown_(data.unk) {
  check_scores(data);
  const std::vector<uint32_t> ranks = ranks_of(data.scores);
  targets_.reserve(texts_.size());
  for (size_t id = 0; id < texts_.size(); ++id) {
    const auto type = vocabulary.type(static_cast<int32_t>(id));
    // Control, unknown and byte tokens are never made of text.
    if (type != TokenType::kNormal && type != TokenType::kUserDefined && type != TokenType::kUnused) continue;
    const Target target{static_cast<int32_t>(id), ranks[id], type == TokenType::kUnused};
    // Unused tokens may repeat another's text; the other counts.
    const auto [known, added] = targets_.emplace(texts_[id], target);
    if (!added && known->second.unused) known->second = target;
    if (type == TokenType::kUserDefined) user_defined_.add(texts_[id], static_cast<int32_t>(id));
    longest_ = std::max(longest_, texts_[id].size());
  }
}

const Target* ScoreBpe::find(std::string_view text) const {
  if (text.size() > longest_) return nullptr;
  const auto found = targets_.find(text);
  return found == targets_.end() ? nullptr : &found->second;
}

// Symbols of one character each, or of one user-defined token: at each place the longest.
void ScoreBpe::cut(Run& run) const {
  for (size_t at = 0; at < run.text.size();) {
    const std::string_view rest = run.text.substr(at);
    const auto [id, length] = user_defined_.match(rest);
    const size_t size = id >= 0 ? length : std::max<size_t>(1, utf8_char_length(rest));
    const auto number = static_cast<uint32_t>(run.symbols.size());
    run.symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(size), number - 1, number + 1, id >= 0});
    at += size;
  }
  run.symbols.front().previous = kNone;
  run.symbols.back().next = kNone;
}

// What the symbol and its right neighbour make; null if nothing.
const Target* ScoreBpe::candidate(const Run& run, uint32_t at) const {
  const Symbol& left = run.symbols[at];
  if (left.size == 0 || left.next == kNone) return nullptr;
  const Symbol& right = run.symbols[left.next];
  if (left.fixed || right.fixed) return nullptr;
  return find(run.text.substr(left.begin, left.size + right.size));
}

void ScoreBpe::offer(Run& run, uint32_t at) const {
  const Target* target = candidate(run, at);
  if (!target) return;
  if (target->unused) {
    const Symbol& left = run.symbols[at];
    run.halves[run.text.substr(left.begin, left.size + run.symbols[left.next].size)] = left.size;
  }
  run.heap.push_back(static_cast<uint64_t>(target->rank) << 32 | at);
  std::push_heap(run.heap.begin(), run.heap.end(), std::greater<>());
}

// n symbols cost n log n: each merge makes at most two new candidates. An entry whose symbols have changed is one whose
// rank is no longer that of the pair at its place.
void ScoreBpe::merge(Run& run) const {
  run.heap.clear();
  for (uint32_t i = 0; i < run.symbols.size(); ++i) offer(run, i);
  while (!run.heap.empty()) {
    std::pop_heap(run.heap.begin(), run.heap.end(), std::greater<>());
    const uint64_t best = run.heap.back();
    run.heap.pop_back();
    const auto at = static_cast<uint32_t>(best);
    const Target* target = candidate(run, at);
    if (!target || target->rank != best >> 32) continue;
    Symbol& left = run.symbols[at];
    Symbol& right = run.symbols[left.next];
    left.size += right.size;
    left.next = right.next;
    right.size = 0;
    if (left.next != kNone) run.symbols[left.next].previous = at;
    if (left.previous != kNone) offer(run, left.previous);
    offer(run, at);
  }
}

// Unused tokens only help to make longer ones: what is left of them is taken apart again.
bool ScoreBpe::append(const Run& run, std::string_view text, bool unknown_before, std::vector<int32_t>& out) const {
  std::vector<std::string_view> todo = {text};
  while (!todo.empty()) {
    text = todo.back();
    todo.pop_back();
    const Target* target = find(text);
    const auto half = target && target->unused ? run.halves.find(text) : run.halves.end();
    if (half != run.halves.end()) {
      todo.push_back(text.substr(half->second));
      todo.push_back(text.substr(0, half->second));
    } else if (target) {
      out.push_back(target->id);
      unknown_before = false;
    } else {
      unknown_before = append_unknown(text, vocabulary_, unknown_, unknown_before, out);
    }
  }
  return unknown_before;
}

void ScoreBpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (piece.size() >= kNone) fail("text to tokenize: expected less than 4 GiB, found {} bytes", piece.size());
  Run run{piece, {}, scratch.heap, {}};
  cut(run);
  merge(run);
  bool unknown = false;
  for (uint32_t i = 0; i != kNone; i = run.symbols[i].next) unknown = append(run, run.of(run.symbols[i]), unknown, out);
}

}  // namespace

std::unique_ptr<TokenModel> make_score_bpe(const TokenizerData& data, const Vocabulary& vocabulary) {
  return std::make_unique<ScoreBpe>(data, vocabulary);
}

}  // namespace pop
