// BPE by a list of merges, over bytes or over characters.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/token_model.h"
#include "text/utf8.h"

namespace pop {
namespace {

BpeMerges read_merges(const TokenizerData& data, const Vocabulary& vocabulary) {
  BpeMerges merges;
  if (data.merges.size() > std::numeric_limits<uint32_t>::max()) fail("{}merges: too many", data.keys);
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string& merge = data.merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos)
      fail("{}merges: expected \"left right\" as merge {}, found \"{}\"", data.keys, rank, printable(merge));
    const auto id_of = [&](const std::string& text) {
      const auto found = vocabulary.find_text(text);
      // No control tokens: a merge that made one would let plain text forge it.
      const bool user = found && data.huggingface && vocabulary.type(*found) == TokenType::kUserDefined;
      if (!found || (!user && vocabulary.type(*found) != TokenType::kNormal))
        fail("{}merges: merge {} (\"{}\") needs a normal token \"{}\", the vocabulary has {}", data.keys, rank,
             printable(merge), printable(text), found ? "another type" : "none");
      return *found;
    };
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    const int32_t left_id = id_of(left), right_id = id_of(right);
    if (!merges.add(left_id, right_id, id_of(left + right)))
      fail("{}merges: expected every pair once, found \"{}\" again as merge {}", data.keys, printable(merge), rank);
  }
  return merges;
}

class ByteBpe : public TokenModel {
 public:
  ByteBpe(const TokenizerData& data, const Vocabulary& vocabulary, bool ignore_merges)
      : vocabulary_(vocabulary),
        merges_(read_merges(data, vocabulary)),
        ignore_merges_(ignore_merges),
        fuse_unknown_(data.fuse_unknown),
        unknown_(data.huggingface ? data.unk : -1) {}

  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const override {
    if (ignore_merges_)
      if (const auto whole = vocabulary_.find_normal(piece)) return out.push_back(*whole);
    scratch.symbols.clear();
    bool unknown = false;
    for (const char byte : piece) {
      const int32_t id = vocabulary_.byte_ids()[static_cast<uint8_t>(byte)];
      if (id >= 0)
        scratch.symbols.push_back({id, 0, 0});
      else if (unknown_ >= 0 && !(unknown && fuse_unknown_))
        scratch.symbols.push_back({unknown_, 0, 0});
      unknown = id < 0;
    }
    merges_.merge(scratch, out);
  }

 private:
  const Vocabulary& vocabulary_;
  BpeMerges merges_;
  bool ignore_merges_;  // a piece that is a token as a whole is that token whatever the merges say
  bool fuse_unknown_;
  int32_t unknown_;  // stands for bytes that have no token, where a tokenizer.json names one; else they are left out
};

// Characters that are no token become their byte tokens, or the unknown token, before anything is merged.
class CharBpe : public TokenModel {
 public:
  CharBpe(const TokenizerData& data, const Vocabulary& vocabulary, bool ignore_merges)
      : vocabulary_(vocabulary),
        merges_(read_merges(data, vocabulary)),
        ignore_merges_(ignore_merges),
        fuse_unknown_(data.fuse_unknown),
        unknown_(data.unk) {}

  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const override {
    if (ignore_merges_)
      if (const auto whole = vocabulary_.find_normal(piece)) return out.push_back(*whole);
    std::vector<int32_t> ids;
    bool unknown = false;
    for (size_t at = 0; at < piece.size();) {
      const size_t length = std::max<size_t>(1, utf8_char_length(piece.substr(at)));
      const std::string_view character = piece.substr(at, length);
      if (const auto id = vocabulary_.find_normal(character))
        ids.push_back(*id), unknown = false;
      else
        unknown = append_unknown(character, vocabulary_, unknown_, unknown && fuse_unknown_, ids);
      at += length;
    }
    scratch.symbols.clear();
    for (const int32_t id : ids) scratch.symbols.push_back({id, 0, 0});
    merges_.merge(scratch, out);
  }

 private:
  const Vocabulary& vocabulary_;
  BpeMerges merges_;
  bool ignore_merges_, fuse_unknown_;
  int32_t unknown_;
};

}  // namespace

std::unique_ptr<TokenModel> make_char_bpe(const TokenizerData& data, const Vocabulary& vocabulary, bool ignore_merges) {
  return std::make_unique<CharBpe>(data, vocabulary, ignore_merges);
}

std::unique_ptr<TokenModel> make_byte_bpe(const TokenizerData& data, const Vocabulary& vocabulary, bool ignore_merges) {
  return std::make_unique<ByteBpe>(data, vocabulary, ignore_merges);
}

}  // namespace pop
