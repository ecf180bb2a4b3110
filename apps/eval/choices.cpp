#include "apps/eval/choices.h"

#include <algorithm>

#include "apps/eval/corpus.h"
#include "base/error.h"

namespace pop::app {
namespace {

size_t characters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool has(const Item& item, const char* name) { return item.json.contains(name); }

std::string text_or(const Item& item, const char* name, const std::string& otherwise) {
  return has(item, name) ? text_field(item, name, true) : otherwise;
}

// Where the blanks at a text's end begin.
size_t end_without_blanks(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t blank = blank_at(text, at);
    at += std::max<size_t>(1, blank);
    if (blank == 0) end = at;
  }
  return end;
}

}  // namespace

ChoiceItem choice_item(const Items& items, const Item& item) {
  const Item& header = items.header;
  if (has(header, "kind") && text_field(header, "kind") != "choice")
    bad_field(header, "kind", "\"choice\" for eval mc");
  const std::string preamble = text_or(header, "preamble", ""), delimiter = text_or(header, "delimiter", " ");
  ChoiceItem out;
  if (has(item, "contexts")) {
    const std::string ending = delimiter + text_field(item, "ending");
    for (const std::string& context : text_list(item, "contexts", 2)) out.pairs.push_back({preamble + context, ending});
  } else {
    const std::string context = preamble + text_field(item, "context", true);
    for (const std::string& choice : text_list(item, "choices", 2)) {
      out.pairs.push_back({context, delimiter + choice});
      out.lengths.push_back(characters(choice));
    }
  }
  out.gold = size_t(int_field(item, "gold", 0, int64_t(out.pairs.size()) - 1));
  out.target = has(item, "contexts") ? text_field(item, "ending") : std::to_string(out.gold);
  if (has(item, "cluster")) out.cluster = text_field(item, "cluster");
  return out;
}

TokenPair split_pair(const Engine& engine, const ChoicePair& pair, int32_t prefix, const std::string& where) {
  const size_t end = end_without_blanks(pair.context);
  const std::string context = pair.context.substr(0, end), continuation = pair.context.substr(end) + pair.continuation;
  TokenPair out;
  if (context.empty()) {
    out.continuation = engine.encode(continuation);
    out.context = {prefix};
    if (!out.continuation.empty() && out.continuation.front() == prefix)
      out.continuation.erase(out.continuation.begin());
  } else {
    const std::vector<int32_t> whole = engine.prompt(context + continuation);
    out.context = engine.prompt(context);
    if (whole.size() > out.context.size())
      out.continuation.assign(whole.begin() + static_cast<ptrdiff_t>(out.context.size()), whole.end());
  }
  if (out.continuation.empty()) fail("{}: expected a choice of at least one token of its own, found none", where);
  return out;
}

Decision decide(const std::vector<double>& scores, const std::vector<size_t>& lengths) {
  Decision out;
  for (size_t i = 1; i < scores.size(); ++i) {
    if (scores[i] > scores[out.choice]) out.choice = i;
    if (lengths.empty()) continue;
    const size_t best = out.choice_norm;
    if (scores[i] / double(lengths[i]) > scores[best] / double(lengths[best])) out.choice_norm = i;
  }
  return out;
}

}  // namespace pop::app
