#include "apps/eval/gen_task.h"

#include <climits>
#include <utility>

#include "base/error.h"

namespace pop::app {
namespace {

constexpr std::pair<std::string_view, GenMetric> kMetrics[] = {{"exact_match", GenMetric::exact_match},
                                                               {"squad", GenMetric::squad},
                                                               {"code", GenMetric::code},
                                                               {"greedy", GenMetric::greedy}};

bool has(const Item& item, const char* name) { return item.json.contains(name); }

bool flag(const Item& item, const char* name) { return has(item, name) && bool_field(item, name); }

std::vector<Pattern> patterns(const Item& item, const char* name) {
  std::vector<Pattern> out;
  for (const std::string& text : text_list(item, name, 0))
    out.emplace_back(fmt::format("{}: \"{}\"", item.where, name), text);
  return out;
}

AnswerFilter filter(const Item& item) {
  AnswerFilter out;
  out.name = text_field(item, "name");
  out.strip = flag(item, "strip");
  if (has(item, "regex")) out.pattern.emplace_back(item.where + ": \"regex\"", text_field(item, "regex"));
  if (has(item, "pick")) out.pick = static_cast<int>(int_field(item, "pick", INT_MIN, INT_MAX));
  return out;
}

std::vector<AnswerFilter> filters(const Item& header) {
  std::vector<AnswerFilter> out;
  if (!has(header, "filters")) return out;
  const Json& list = header.json["filters"];
  if (!list.is_array() || list.empty()) bad_field(header, "filters", "a list of at least one object");
  for (const Json& entry : list) {
    const std::string where = fmt::format("{}: \"filters\": entry {}", header.where, out.size() + 1);
    if (!entry.is_object()) fail("{}: expected an object, found {}", where, entry.type_name());
    out.push_back(filter({-1, where, "", entry}));
    for (size_t i = 0; i + 1 < out.size(); ++i)
      if (out[i].name == out.back().name) fail("{}: expected another name than entry {}", where, i + 1);
  }
  return out;
}

ExactMatch exact_match(const Item& header) {
  ExactMatch out;
  if (!has(header, "exact_match")) return out;
  if (!header.json["exact_match"].is_object()) bad_field(header, "exact_match", "an object");
  const Item inner{-1, header.where + ": \"exact_match\"", "", header.json["exact_match"]};
  if (has(inner, "remove")) out.remove = patterns(inner, "remove");
  out.ignore_case = flag(inner, "ignore_case");
  out.ignore_punctuation = flag(inner, "ignore_punctuation");
  return out;
}

GenMetric metric(const Item& header) {
  if (!has(header, "metric")) return GenMetric::exact_match;
  const std::string& name = text_field(header, "metric");
  for (const auto& [known, value] : kMetrics)
    if (name == known) return value;
  bad_field(header, "metric", "exact_match, squad, code or greedy");
}

std::vector<std::string> targets(const Item& item) {
  if (has(item, "targets")) return text_list(item, "targets", 1);
  return {text_field(item, "target")};
}

}  // namespace

std::vector<std::string> GenTask::metrics() const {
  switch (metric) {
    case GenMetric::squad: return {"em", "f1"};
    case GenMetric::code: return {"pass@1"};
    case GenMetric::greedy: return {"acc"};
    case GenMetric::exact_match: break;
  }
  return {"exact_match"};
}

GenTask gen_task(const Items& items) {
  const Item& header = items.header;
  GenTask task;
  const size_t slash = items.path.rfind('/');
  task.name =
      has(header, "task") ? text_field(header, "task") : items.path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (has(header, "kind") && text_field(header, "kind") != "generate")
    bad_field(header, "kind", "\"generate\" (eval mc scores \"choice\")");
  if (has(header, "preamble")) task.preamble = text_field(header, "preamble", true);
  task.until = has(header, "until") ? text_list(header, "until", 0) : std::vector<std::string>{"\n"};
  if (has(header, "max_tokens")) task.max_tokens = static_cast<int>(int_field(header, "max_tokens", 1, 1 << 20));
  task.metric = metric(header);
  task.filters = filters(header);
  if (task.filters.empty()) {
    task.filters.emplace_back();
    task.filters.back().strip = task.metric == GenMetric::exact_match;
  } else if (task.metric != GenMetric::exact_match) {
    bad_field(header, "filters", "none: they belong to the metric exact_match");
  }
  task.exact = exact_match(header);
  if (has(header, "program")) {
    const std::string& program = text_field(header, "program");
    if (program != "answer" && program != "prompt+answer") bad_field(header, "program", "answer or prompt+answer");
    task.program_has_prompt = program == "prompt+answer";
  }
  return task;
}

GenItem gen_item(const GenTask& task, const Item& item) {
  GenItem out;
  const std::string& prompt = text_field(item, "prompt");
  out.prompt = task.preamble + prompt;
  if (has(item, "cluster")) out.cluster = text_field(item, "cluster");
  if (task.metric == GenMetric::code) {
    out.tests = text_field(item, "tests");
    out.targets = {out.tests};
    if (task.program_has_prompt) out.program_head = prompt;
  } else if (task.metric == GenMetric::greedy) {
    out.targets = {text_field(item, "target")};
  } else {
    out.targets = targets(item);
  }
  return out;
}

}  // namespace pop::app
