#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "text/known_patterns.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace pop {
namespace {

struct Kind {
  std::string_view name;
  std::vector<std::string_view> patterns;  // published ones (known_patterns.h)
  bool nfc, ignore_merges, adds_bos;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"smollm", {R"(\p{N})", kGpt2Pattern}, false, false, false},
      {"gpt-2", {kGpt2Pattern}, false, false, false},
      {"llama-bpe", {kLlama3Pattern}, false, true, true},
      {"qwen2", {kQwen2Pattern}, true, false, false},
      {"olmo", {kGpt2Pattern}, true, false, false},
      {"dbrx", {kLlama3Pattern}, false, false, false},
      {"tekken", {kTekkenPattern}, false, true, true},
      {"gpt-4o", {kGpt4oPattern}, false, false, false},
      {"deepseek-v3", {kDeepseekDigits, kDeepseekCjk, kDeepseekWords}, false, false, false},
      {"default", {R"([\p{P}$+<=>^~|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}, false, false, false},
  };
  return all;
}

struct Alias {
  std::string_view name, of;
};
constexpr Alias kAliases[] = {{"llama3", "llama-bpe"},       {"llama-v3", "llama-bpe"}, {"phi-2", "gpt-2"},
                              {"deepseek-r1-qwen", "qwen2"}, {"starcoder", "smollm"},   {"refact", "smollm"}};

const Kind& kind_of(std::string_view name) {
  std::string_view wanted = name;
  for (const Alias& alias : kAliases)
    if (alias.name == name) wanted = alias.of;
  for (const Kind& kind : kinds())
    if (kind.name == wanted) return kind;
  fail("tokenizer.ggml.pre: expected one of {}, found \"{}\"", fmt::join(PreTokenizer::names(), ", "), printable(name));
}

TextSteps steps_of(const Kind& kind) {
  TextSteps steps;
  if (kind.nfc) steps.normal.push_back({NormalStep::Kind::kNfc});
  for (const std::string_view pattern : kind.patterns) steps.cuts.push_back({pcre_pattern(pattern)});
  steps.ignore_merges = kind.ignore_merges;
  return steps;
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

struct Span {
  std::string_view text;
  bool is_match;
};

// What a pattern finds in `span`, and what lies between.
void find_matches(const pcre2_code* code, pcre2_match_data* match, pcre2_match_context* context, std::string_view span,
                  std::vector<Span>& out) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(span.data());
  size_t from = 0;
  while (from < span.size()) {
    // The span is known to be UTF-8, and checking it again at each match would cost its square.
    const int result = pcre2_match(code, subject, span.size(), from, PCRE2_NO_UTF_CHECK, match, context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) fail("pre-tokenizer: PCRE2 error {} at byte {} of a text of {} bytes", result, from, span.size());
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(match);
    if (at[0] > from) out.push_back({span.substr(from, at[0] - from), false});
    out.push_back({span.substr(at[0], at[1] - at[0]), true});
    from = at[1];
  }
  if (from < span.size()) out.push_back({span.substr(from), false});
}

std::string_view joined(std::string_view left, std::string_view right) {
  return {left.data(), left.size() + right.size()};  // neighbours of one text
}

// The pieces that the spans make (CutStep::Behaviour).
void merge_spans(const std::vector<Span>& spans, CutStep::Behaviour behaviour, std::vector<std::string_view>& out) {
  const size_t first = out.size();
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool match = spans[i].is_match, match_before = i > 0 && spans[i - 1].is_match;
    bool join = false;
    switch (behaviour) {
      case CutStep::Behaviour::kIsolated: break;
      case CutStep::Behaviour::kRemoved:
        if (match) continue;
        break;
      case CutStep::Behaviour::kContiguous: join = i > 0 && match == match_before; break;
      case CutStep::Behaviour::kMergedWithPrevious: join = i > 0 && match && !match_before; break;
      case CutStep::Behaviour::kMergedWithNext: join = i > 0 && !match && match_before; break;
    }
    if (join && out.size() > first)
      out.back() = joined(out.back(), spans[i].text);
    else
      out.push_back(spans[i].text);
  }
}

}  // namespace

struct PreTokenizer::Impl {
  TextSteps steps;
  std::vector<Code> codes;  // of steps.cuts
  std::unique_ptr<pcre2_match_context, ContextFree> context;
  bool adds_bos = false;
};

PreTokenizer::PreTokenizer(std::string_view name) : PreTokenizer(steps_of(kind_of(name))) {
  impl_->adds_bos = kind_of(name).adds_bos;
}

PreTokenizer::PreTokenizer(const TextSteps& steps) : impl_(std::make_unique<Impl>()) {
  impl_->steps = steps;
  for (const CutStep& cut : steps.cuts) impl_->codes.push_back(compile(cut.pattern));
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

PreTokenizer::Published PreTokenizer::published(std::string_view name) {
  const Kind& kind = kind_of(name);
  return {kind.name, kind.patterns, kind.nfc, kind.ignore_merges};
}

std::optional<std::string_view> PreTokenizer::name_of(const TextSteps& steps) {
  const auto same = [&](const Kind& kind) {
    const TextSteps other = steps_of(kind);
    return steps.prepare.empty() && steps.ignore_merges == other.ignore_merges &&
           std::equal(steps.normal.begin(), steps.normal.end(), other.normal.begin(), other.normal.end(),
                      [](const NormalStep& a, const NormalStep& b) { return a.kind == b.kind; }) &&
           std::equal(steps.cuts.begin(), steps.cuts.end(), other.cuts.begin(), other.cuts.end(),
                      [](const CutStep& a, const CutStep& b) {
                        return a.pattern == b.pattern && a.behaviour == b.behaviour && a.invert == b.invert;
                      });
  };
  for (const Kind& kind : kinds())
    if (same(kind)) return kind.name;
  return std::nullopt;
}

bool PreTokenizer::normalises() const { return !impl_->steps.normal.empty() || !impl_->steps.prepare.empty(); }
bool PreTokenizer::ignore_merges() const { return impl_->steps.ignore_merges; }
bool PreTokenizer::adds_bos_by_default() const { return impl_->adds_bos; }

std::string PreTokenizer::normalise(std::string_view text) const { return normalize(impl_->steps.normal, text, true); }

std::string PreTokenizer::prepare(std::string text, bool begins_input) const {
  return impl_->steps.prepare.empty() ? std::move(text) : normalize(impl_->steps.prepare, text, begins_input);
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::unique_ptr<pcre2_match_data, MatchFree> match(pcre2_match_data_create(1, nullptr));
  if (!match) throw std::bad_alloc();
  std::vector<std::string_view> pieces, parts, next;
  std::vector<Span> spans;
  each_run(
      text,
      [&](std::string_view run) {
        parts.assign(1, run);
        for (size_t i = 0; i < impl_->codes.size(); ++i) {
          next.clear();
          for (const std::string_view part : parts) {
            spans.clear();
            find_matches(impl_->codes[i].get(), match.get(), impl_->context.get(), part, spans);
            if (impl_->steps.cuts[i].invert)
              for (Span& span : spans) span.is_match = !span.is_match;
            merge_spans(spans, impl_->steps.cuts[i].behaviour, next);
          }
          parts.swap(next);
        }
        pieces.insert(pieces.end(), parts.begin(), parts.end());
      },
      [&](std::string_view byte) { pieces.push_back(byte); });
  return pieces;
}

}  // namespace pop
