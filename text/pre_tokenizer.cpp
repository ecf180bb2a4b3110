#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>
#include <pcre2.h>

#include <new>

#include "base/error.h"
#include "text/normalize.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace pop {
namespace {

// A run of white space leaves its last character to the word that follows it.
#define POP_SPACES "[" POP_SPACE "]+(?![^" POP_SPACE "])|[" POP_SPACE "]+"
#define POP_OTHERS " ?[^" POP_SPACE POP_LETTER POP_NUMBER "]+"
#define POP_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?[" POP_LETTER "]+| ?[" POP_NUMBER "]+|" POP_OTHERS "|" POP_SPACES
// Llama-3 and Qwen2 differ in how many digits go together.
#define POP_LLAMA3(digits)                                                                                    \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" POP_LETTER POP_NUMBER "]?[" POP_LETTER "]+|[" POP_NUMBER "]" digits \
  "|" POP_OTHERS "[\\r\\n]*|[" POP_SPACE "]*[\\r\\n]+|" POP_SPACES

struct Kind {
  std::string_view name;
  std::vector<std::string> patterns;
  bool nfc, ignore_merges, adds_bos;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"smollm", {"[" POP_NUMBER "]", POP_GPT2}, false, false, false},
      {"gpt-2", {POP_GPT2}, false, false, false},
      {"llama-bpe", {POP_LLAMA3("{1,3}")}, false, true, true},
      {"qwen2", {POP_LLAMA3("")}, true, false, false},
      {"default",
       {"[" POP_PUNCTUATION "$+<=>^~|]+", POP_GPT2, "[" POP_NUMBER "]+", "[0-9][0-9][0-9]"},
       false,
       false,
       false},
  };
  return all;
}

struct Alias {
  std::string_view name, of;
};
constexpr Alias kAliases[] = {{"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}, {"phi-2", "gpt-2"}};

const Kind& kind_of(std::string_view name) {
  std::string_view wanted = name;
  for (const Alias& alias : kAliases)
    if (alias.name == name) wanted = alias.of;
  for (const Kind& kind : kinds())
    if (kind.name == wanted) return kind;
  fail("tokenizer.ggml.pre: expected one of {}, found \"{}\"", fmt::join(PreTokenizer::names(), ", "), printable(name));
}

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeFree>;

Code compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error,
                          &where, nullptr));
  if (!code) fail("pre-tokenizer pattern: PCRE2 error {} at {}", error, where);
  // Where JIT is not to be had (no writable code pages), pcre2_match interprets: slower, the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Cuts `span` by one pattern.
void cut(const pcre2_code* code, pcre2_match_data* match, pcre2_match_context* context, std::string_view span,
         std::vector<std::string_view>& out) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(span.data());
  size_t from = 0;
  while (from < span.size()) {
    // The span is known to be UTF-8, and checking it again at each match would cost its square.
    const int result = pcre2_match(code, subject, span.size(), from, PCRE2_NO_UTF_CHECK, match, context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) fail("pre-tokenizer: PCRE2 error {} at byte {} of a text of {} bytes", result, from, span.size());
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(match);
    if (at[0] > from) out.push_back(span.substr(from, at[0] - from));
    out.push_back(span.substr(at[0], at[1] - at[0]));
    from = at[1];
  }
  if (from < span.size()) out.push_back(span.substr(from));
}

}  // namespace

struct PreTokenizer::Impl {
  std::vector<Code> codes;
  std::unique_ptr<pcre2_match_context, ContextFree> context;
  std::vector<NormalStep> normal;
  bool ignore_merges = false, adds_bos = false;
};

PreTokenizer::PreTokenizer(std::string_view name)
    : PreTokenizer(
          TextSteps{kind_of(name).nfc ? std::vector<NormalStep>{{NormalStep::Kind::kNfc}} : std::vector<NormalStep>{},
                    kind_of(name).patterns, kind_of(name).ignore_merges}) {
  impl_->adds_bos = kind_of(name).adds_bos;
}

PreTokenizer::PreTokenizer(const TextSteps& steps) : impl_(std::make_unique<Impl>()) {
  impl_->normal = steps.normal;
  impl_->ignore_merges = steps.ignore_merges;
  for (const std::string& pattern : steps.cuts) impl_->codes.push_back(compile(pattern));
  impl_->context.reset(pcre2_match_context_create(nullptr));
  if (!impl_->context) throw std::bad_alloc();
  // The patterns backtrack over one repeat at most, so matching is linear and needs no limit; the default ones (10
  // million steps) would make long runs of spaces an error.
  pcre2_set_match_limit(impl_->context.get(), UINT32_MAX);
  pcre2_set_depth_limit(impl_->context.get(), UINT32_MAX);
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string_view> PreTokenizer::names() {
  std::vector<std::string_view> out;
  for (const Kind& kind : kinds()) out.push_back(kind.name);
  for (const Alias& alias : kAliases) out.push_back(alias.name);
  return out;
}

bool PreTokenizer::normalises() const { return !impl_->normal.empty(); }
bool PreTokenizer::ignore_merges() const { return impl_->ignore_merges; }
bool PreTokenizer::adds_bos_by_default() const { return impl_->adds_bos; }

std::string PreTokenizer::normalise(std::string_view text) const { return normalize(impl_->normal, text); }

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::unique_ptr<pcre2_match_data, MatchFree> match(pcre2_match_data_create(1, nullptr));
  if (!match) throw std::bad_alloc();
  std::vector<std::string_view> pieces, spans, next;
  each_run(
      text,
      [&](std::string_view run) {
        spans.assign(1, run);
        for (const Code& code : impl_->codes) {
          next.clear();
          for (const std::string_view span : spans) cut(code.get(), match.get(), impl_->context.get(), span, next);
          spans.swap(next);
        }
        pieces.insert(pieces.end(), spans.begin(), spans.end());
      },
      [&](std::string_view byte) { pieces.push_back(byte); });
  return pieces;
}

}  // namespace pop
