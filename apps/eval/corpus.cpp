#include "apps/eval/corpus.h"

#include <algorithm>
#include <charconv>

#include "apps/eval/items.h"
#include "apps/pop/args.h"
#include "base/error.h"
#include "base/hash.h"

namespace pop::app {
namespace {

// Queries for the tokens after positions first .. of a stretch of ids whose inputs are ids[begin, end).
ForcedText window(const std::vector<int32_t>& ids, size_t begin, size_t end, int first) {
  ForcedText out;
  out.ids.assign(ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end));
  for (int position = first; position < static_cast<int>(end - begin); ++position)
    out.queries.push_back({position, ids[begin + static_cast<size_t>(position) + 1]});
  return out;
}

int32_t special_id(const ModelInfo& info, std::string_view key) {
  for (const auto& [name, value] : info.metadata) {
    if (name != key) continue;
    int32_t id = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), id);
    if (error == std::errc() && end == value.data() + value.size() && id >= 0 && id < info.vocab) return id;
  }
  return -1;
}

}  // namespace

Corpus read_corpus(const std::string& path, bool lines) {
  Corpus corpus;
  corpus.path = path;
  if (lines) {
    const Items items = read_items({path, "", 0});
    corpus.sha256 = items.sha256;
    for (const Item& item : items.list) corpus.documents.push_back(text_field(item, "text", true));
  } else {
    corpus.documents.push_back(read_file(path));
    corpus.sha256 = sha256_text(corpus.documents[0]);
  }
  return corpus;
}

void add_corpus(Json& json, const Corpus& corpus) {
  json["corpus"] = corpus.path;
  json["corpus_sha256"] = corpus.sha256;
}

std::string sha256_ids(const std::vector<int32_t>& ids) {
  std::vector<uint8_t> bytes;
  bytes.reserve(ids.size() * 4);
  for (const int32_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(id) >> shift));
  return sha256_hex(bytes);
}

std::vector<ForcedText> llama_windows(const std::vector<int32_t>& ids, const std::vector<int32_t>& bos, int context,
                                      bool split) {
  std::vector<ForcedText> out;
  const auto length = static_cast<size_t>(context);
  for (size_t begin = 0; begin + length <= ids.size(); begin += length) {
    out.push_back(window(ids, begin, begin + length - 1, context / 2));
    if (!bos.empty()) out.back().ids.front() = bos.front();
    if (split) out.back().split = context / 2;
  }
  return out;
}

std::vector<ForcedText> chunk_windows(const std::vector<int32_t>& ids, int context) {
  std::vector<ForcedText> out;
  const auto length = static_cast<size_t>(context);
  for (size_t begin = 0; begin + length <= ids.size(); begin += length)
    out.push_back(window(ids, begin, begin + length - 1, 0));
  return out;
}

std::vector<ForcedText> rolling_windows(const std::vector<int32_t>& ids, int32_t prefix, int context) {
  std::vector<int32_t> all = {prefix};
  all.insert(all.end(), ids.begin(), ids.end());
  std::vector<ForcedText> out;
  const auto length = static_cast<size_t>(context);
  for (size_t predicted = 0; predicted < ids.size();) {
    const size_t count = std::min(length, ids.size() - predicted), end = predicted + count;  // inputs all[.., end)
    const size_t begin = end >= length ? end - length : 0;
    out.push_back(window(all, begin, end, static_cast<int>(predicted - begin)));
    predicted = end;
  }
  return out;
}

size_t blank_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if ((byte >= 0x09 && byte <= 0x0d) || (byte >= 0x1c && byte <= 0x20)) return 1;
  static constexpr std::string_view kLong[] = {
      "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83",
      "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a",
      "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
  for (const std::string_view blank : kLong)
    if (text.substr(at).starts_with(blank)) return blank.size();
  return 0;
}

size_t count_words(std::string_view text) {
  size_t words = 1;
  for (size_t at = 0; at < text.size();) {
    size_t blank = blank_at(text, at);
    if (blank == 0) {
      ++at;
      continue;
    }
    ++words;
    for (; blank > 0; blank = at < text.size() ? blank_at(text, at) : 0) at += blank;
  }
  return words;
}

int32_t prefix_token(const ModelInfo& info) {
  const int32_t bos = special_id(info, "tokenizer.ggml.bos_token_id");
  const int32_t id = bos >= 0 ? bos : special_id(info, "tokenizer.ggml.eos_token_id");
  if (id < 0)
    fail(
        "{}: expected tokenizer.ggml.bos_token_id or eos_token_id (a text without context begins with it), found "
        "neither",
        printable(info.path, 400));
  return id;
}

}  // namespace pop::app
