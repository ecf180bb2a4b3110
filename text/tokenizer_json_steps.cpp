#include "text/tokenizer_json_steps.h"

#include <cctype>

#include "base/error.h"
#include "text/known_patterns.h"

namespace pop {
namespace {

std::string literal_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)) && c != '\0') out += '\\';
    out += c;
  }
  return out;
}

void read_normalizer(const JsonReader& json, std::vector<NormalStep>& steps) {
  if (json.is_null()) return;
  const std::string& type = json.at("type").text();
  using Kind = NormalStep::Kind;
  if (type == "Sequence") {
    const JsonReader list = json.at("normalizers");
    for (size_t i = 0; i < list.size(); ++i) read_normalizer(list.element(i), steps);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps.push_back({type == "NFC"    ? Kind::kNfc
                     : type == "NFD"  ? Kind::kNfd
                     : type == "NFKC" ? Kind::kNfkc
                                      : Kind::kNfkd});
  } else if (type == "Lowercase") {
    steps.push_back({Kind::kLowercase});
  } else if (type == "Strip") {
    NormalStep step{Kind::kStrip};
    step.left = json.at("strip_left").flag();
    step.right = json.at("strip_right").flag();
    steps.push_back(step);
  } else if (type == "Prepend") {
    steps.push_back({Kind::kPrepend, "", json.at("prepend").text()});
  } else if (type == "Replace") {
    const JsonReader from = json.at("pattern").at("String");
    if (from.is_null() || from.text().empty()) from.expected("a string to replace (patterns are not supported)");
    steps.push_back({Kind::kReplace, from.text(), json.at("content").text()});
  } else {
    json.at("type").expected("NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace or Sequence");
  }
}

CutStep::Behaviour read_behaviour(const JsonReader& json) {
  using Behaviour = CutStep::Behaviour;
  if (json.is_null() || json.text() == "Isolated") return Behaviour::kIsolated;
  if (json.text() == "Removed") return Behaviour::kRemoved;
  if (json.text() == "Contiguous") return Behaviour::kContiguous;
  if (json.text() == "MergedWithPrevious") return Behaviour::kMergedWithPrevious;
  if (json.text() == "MergedWithNext") return Behaviour::kMergedWithNext;
  json.expected("Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

CutStep read_split(const JsonReader& json) {
  CutStep cut;
  const JsonReader pattern = json.at("pattern");
  if (pattern.has("Regex")) {
    const JsonReader regex = pattern.at("Regex");
    if (!is_known_pattern(regex.text())) regex.expected("one of the published patterns (docs/tokenizers.md)");
    cut.pattern = pcre_pattern(regex.text());
  } else {
    const JsonReader text = pattern.at("String");
    if (text.is_null() || text.text().empty()) text.expected("a string or a Regex to cut by");
    cut.pattern = literal_pattern(text.text());
  }
  cut.behaviour = read_behaviour(json.at("behavior"));
  cut.invert = json.at("invert").flag(false);
  return cut;
}

// Changes of the text can only be made before it is cut.
void expect_no_cut(const JsonReader& json, const TextSteps& steps) {
  if (!steps.cuts.empty()) json.expected("no pre-tokenizer before one that changes the text");
}

void read_metaspace(const JsonReader& json, TextSteps& steps) {
  expect_no_cut(json, steps);
  if (json.at("replacement").text() != kSpaceMark) json.at("replacement").expected("\u2581");
  std::string scheme = json.at("add_prefix_space").flag(true) ? "always" : "never";  // how older files say it
  if (json.has("prepend_scheme")) scheme = json.at("prepend_scheme").text();
  if (scheme != "always" && scheme != "first" && scheme != "never")
    json.at("prepend_scheme").expected("always, first or never");
  steps.prepare.push_back({NormalStep::Kind::kReplace, " ", kSpaceMark});
  if (scheme != "never") {
    NormalStep prefix{NormalStep::Kind::kPrefix, "", kSpaceMark};
    prefix.first_only = scheme == "first";
    steps.prepare.push_back(prefix);
  }
  if (json.at("split").flag(true)) steps.cuts.push_back({kSpaceMark, CutStep::Behaviour::kMergedWithNext});
}

void read_byte_level(const JsonReader& json, JsonPipeline& out) {
  if (json.at("add_prefix_space").flag(true)) {
    expect_no_cut(json, out.steps);
    out.steps.prepare.push_back({NormalStep::Kind::kPrefix, "", " "});
  }
  if (json.at("use_regex").flag(true)) out.steps.cuts.push_back({pcre_pattern(kGpt2Pattern)});
  out.byte_level = true;
}

void read_pre_tokenizer(const JsonReader& json, JsonPipeline& out) {
  if (json.is_null()) return;
  const std::string& type = json.at("type").text();
  if (out.byte_level) json.expected("no pre-tokenizer behind ByteLevel");
  if (type == "Sequence") {
    const JsonReader list = json.at("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) read_pre_tokenizer(list.element(i), out);
  } else if (type == "ByteLevel") {
    read_byte_level(json, out);
  } else if (type == "Split") {
    out.steps.cuts.push_back(read_split(json));
  } else if (type == "Digits") {
    out.steps.cuts.push_back({pcre_pattern(json.at("individual_digits").flag(false) ? R"(\p{N})" : R"(\p{N}+)")});
  } else if (type == "Punctuation") {
    out.steps.cuts.push_back({pcre_pattern(R"([\p{P}$+<=>^`|~])"), read_behaviour(json.at("behavior"))});
  } else if (type == "WhitespaceSplit") {
    out.steps.cuts.push_back({pcre_pattern(R"(\s)"), CutStep::Behaviour::kRemoved});
  } else if (type == "Metaspace") {
    read_metaspace(json, out.steps);
  } else {
    json.at("type").expected("ByteLevel, Split, Digits, Punctuation, Metaspace, WhitespaceSplit or Sequence");
  }
}

void read_decoder(const JsonReader& json, JsonPipeline& out) {
  const std::string& type = json.at("type").text();
  if (type == "Sequence") {
    const JsonReader list = json.at("decoders");
    for (size_t i = 0; i < list.size(); ++i) read_decoder(list.element(i), out);
  } else if (type == "ByteLevel") {
    out.decodes_bytes = true;
  } else if (type == "ByteFallback") {
    out.byte_fallback = true;
  } else if (type == "Metaspace") {
    if (json.at("replacement").text() != kSpaceMark) json.at("replacement").expected("\u2581");
    out.decodes_marks = true;
    out.strips_space = json.at("add_prefix_space").flag(true);
    if (json.has("prepend_scheme")) out.strips_space = json.at("prepend_scheme").text() != "never";
  } else if (type == "Replace") {
    const JsonReader from = json.at("pattern").at("String");
    if (from.text() != kSpaceMark) from.expected("\u2581");
    if (json.at("content").text() != " ") json.at("content").expected("a space");
    out.decodes_marks = true;
  } else if (type == "Strip") {
    if (json.at("content").text() != " ") json.at("content").expected("a space");
    if (json.at("stop").number() != 0) json.at("stop").expected("0");
    if (json.at("start").number() > 1) json.at("start").expected("0 or 1");
    out.strips_space = json.at("start").number() == 1;
  } else if (type != "Fuse") {
    json.at("type").expected("ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip or Sequence");
  }
}

}  // namespace

JsonPipeline read_pipeline(const JsonReader& root) {
  JsonPipeline out;
  read_normalizer(root.at("normalizer"), out.steps.normal);
  read_pre_tokenizer(root.at("pre_tokenizer"), out);
  read_decoder(root.at("decoder"), out);
  if (out.byte_level != out.decodes_bytes)
    fail("{}: expected ByteLevel if and only if the pre-tokenizer is, found {}", root.at("decoder").name(),
         out.decodes_bytes ? "it" : "another");
  if (!out.decodes_bytes && !out.decodes_marks)
    fail("{}: expected ByteLevel or spaces for U+2581, found neither", root.at("decoder").name());
  return out;
}

}  // namespace pop
