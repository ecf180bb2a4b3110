#define PCRE2_CODE_UNIT_WIDTH 8
#include "apps/eval/answers.h"

#include <pcre2.h>

#include <algorithm>
#include <new>
#include <set>

#include "base/error.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace pop::app {
namespace {

constexpr const char* kInvalid = "[invalid]";  // the harness's word for "nothing found"

// Patterns come with task files. One that backtracks without end is refused after about a second.
constexpr uint32_t kMatchLimit = 10'000'000;

std::string without_punctuation(std::string text) {
  std::erase_if(text, [](char c) { return c > ' ' && c < 0x7f && !std::isalnum(static_cast<unsigned char>(c)); });
  return text;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> out(1);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!jinja::is_space(jinja::decode_at(text, at)))
      out.back() += text.substr(begin, at - begin);
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

SquadScore squad_pair(const std::vector<std::string>& gold, const std::vector<std::string>& answer) {
  const double exact = gold == answer ? 1 : 0;
  if (gold.empty() || answer.empty()) return {exact, exact};
  std::multiset<std::string> left(gold.begin(), gold.end());
  size_t same = 0;
  for (const std::string& word : answer)
    if (const auto found = left.find(word); found != left.end()) {
      left.erase(found);
      ++same;
    }
  if (same == 0) return {exact, 0};
  const double precision = double(same) / double(answer.size()), recall = double(same) / double(gold.size());
  return {exact, 2 * precision * recall / (precision + recall)};
}

}  // namespace

std::string valid_text(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    size_t length = utf8_char_length(bytes);
    if (length > 0) {
      out += bytes.substr(0, length);
    } else {
      utf8_append(out, 0xfffd);
      for (length = 1; length < std::min<size_t>(3, bytes.size()) && utf8_is_cut_char(bytes.substr(0, length + 1));)
        ++length;
    }
    bytes.remove_prefix(length);
  }
  return out;
}

struct Pattern::Impl {
  std::string where;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_match_data* data = nullptr;

  ~Impl() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }

  // The next match from `at` on, as offsets of the whole and of the groups; false: none.
  bool next(std::string_view text, size_t at, bool not_empty) const {
    const uint32_t options = PCRE2_NO_UTF_CHECK | (not_empty ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0);
    const int found =
        pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, data, context);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
      fail("{}: a match took too many steps (PCRE2 error {})", where, found);
    return found > 0;
  }

  std::string_view group(std::string_view text, uint32_t number) const {
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
    const PCRE2_SIZE begin = offsets[2 * size_t(number)], end = offsets[2 * size_t(number) + 1];
    return begin == PCRE2_UNSET || end < begin ? std::string_view() : text.substr(begin, end - begin);
  }

  // Calls act() at every match. An empty match behind another is a match, as in Python.
  template <class Act>
  void each(std::string_view text, Act act) const {
    size_t at = 0;
    bool was_empty = false;
    while (at <= text.size()) {
      if (!next(text, at, was_empty)) {
        if (!was_empty) return;
        // Only an empty match is here: one character on.
        was_empty = false;
        at += at < text.size() ? std::max<size_t>(1, utf8_char_length(text.substr(at))) : 1;
        continue;
      }
      const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
      const size_t begin = offsets[0], end = offsets[1];
      act(begin, end);
      was_empty = end <= begin;
      at = std::max(at, end);
    }
  }
};

Pattern::Pattern(const std::string& where, const std::string& pattern) : impl_(std::make_unique<Impl>()) {
  impl_->where = where;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> options(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!options) throw std::bad_alloc();
  pcre2_set_newline(options.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  impl_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, options.get());
  if (!impl_->code) {
    PCRE2_UCHAR reason[128];
    pcre2_get_error_message(error, reason, sizeof reason);
    fail("{}: expected a regular expression, found '{}': {} at byte {}", where, printable(pattern),
         reinterpret_cast<const char*>(reason), at);
  }
  impl_->context = pcre2_match_context_create(nullptr);
  impl_->data = pcre2_match_data_create_from_pattern(impl_->code, nullptr);
  if (!impl_->context || !impl_->data) throw std::bad_alloc();
  pcre2_set_match_limit(impl_->context, kMatchLimit);
  pcre2_set_depth_limit(impl_->context, kMatchLimit);
  pcre2_set_heap_limit(impl_->context, 64 * 1024);  // KiB
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<std::string> Pattern::find_all(std::string_view text) const {
  uint32_t groups = 0;
  pcre2_pattern_info(impl_->code, PCRE2_INFO_CAPTURECOUNT, &groups);
  std::vector<std::string> out;
  impl_->each(text, [&](size_t begin, size_t end) {
    if (groups <= 1) {
      out.emplace_back(groups == 1 ? impl_->group(text, 1) : text.substr(begin, end - std::min(begin, end)));
      return;
    }
    out.emplace_back(kInvalid);
    for (uint32_t i = 1; i <= groups; ++i)
      if (const std::string_view found = impl_->group(text, i); !found.empty()) {
        out.back() = found;
        return;
      }
  });
  return out;
}

std::string Pattern::replace(std::string_view text, std::string_view with) const {
  std::string out;
  size_t kept = 0;
  impl_->each(text, [&](size_t begin, size_t end) {
    if (begin > kept) out += text.substr(kept, begin - kept);
    out += with;
    kept = std::max(kept, end);
  });
  return out += text.substr(kept);
}

std::string AnswerFilter::apply(std::string_view answer) const {
  if (strip) answer = jinja::strip(answer, true, true);
  if (pattern.empty()) return std::string(answer);
  const std::vector<std::string> found = pattern.front().find_all(answer);
  const auto count = static_cast<int64_t>(found.size());
  const int64_t at = pick >= 0 ? pick : count + pick;
  if (at < 0 || at >= count) return kInvalid;
  return std::string(jinja::strip(found[static_cast<size_t>(at)], true, true));
}

std::string ExactMatch::normalize(std::string_view text) const {
  std::string out(text);
  for (const Pattern& pattern : remove) out = pattern.replace(out, "");
  if (ignore_case) out = jinja::lower(out);
  if (ignore_punctuation) out = without_punctuation(std::move(out));
  return out;
}

double ExactMatch::score(std::string_view answer, std::span<const std::string> targets) const {
  const std::string mine = normalize(answer);
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return normalize(target) == mine; })
             ? 1
             : 0;
}

std::vector<std::string> squad_words(std::string_view text) {
  static const Pattern articles("squad", R"(\b(a|an|the)\b)");
  return split_words(articles.replace(without_punctuation(jinja::lower(text)), " "));
}

SquadScore squad_score(std::string_view answer, std::span<const std::string> targets) {
  answer = jinja::strip(answer, true, true);
  const std::vector<std::string> mine = squad_words(answer.substr(0, answer.find('\n')));
  std::vector<SquadScore> pairs;
  for (const std::string& target : targets) pairs.push_back(squad_pair(squad_words(target), mine));
  if (pairs.size() == 1) return pairs.front();
  SquadScore out;
  for (size_t left_out = 0; left_out < pairs.size(); ++left_out) {
    SquadScore best;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i == left_out) continue;
      best = {std::max(best.em, pairs[i].em), std::max(best.f1, pairs[i].f1)};
    }
    out.em += best.em;
    out.f1 += best.f1;
  }
  out.em /= double(pairs.size());
  out.f1 /= double(pairs.size());
  return out;
}

}  // namespace pop::app
