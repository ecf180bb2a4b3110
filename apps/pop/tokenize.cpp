// pop tokenize, pop detokenize: text to token ids and back.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/results.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct TokenizeArgs {
  EngineOptions engine;
  PromptArgs prompt;
  OutputArgs output;
  std::optional<std::string> lines;
  bool skip_special = false;
};

void add_tokenizer_options(CLI::App& app, TokenizeArgs& args) {
  app.add_option("-m,--model", args.engine.model,
                 "GGUF file, the first of a split one, or a Hugging Face folder [the default model]")
      ->option_text("PATH")
      ->check(not_empty())
      ->group("Model");
  add_output_options(app, args.output);
}

Engine make_text_engine(const TokenizeArgs& args) {
  EngineOptions options = args.engine;
  options.text_only = true;
  return make_engine(options, args.output);
}

template <class Action>
void for_each_line(const std::string& path, Action&& action) {
  const std::string bytes = read_file(path);
  size_t number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    action(std::string_view(bytes).substr(at, end - at), ++number);
    at = end + 1;
  }
}

void print_ids(const TokenizeArgs& args, const Engine& engine, std::string_view text) {
  const auto ids = engine.prompt(text, args.prompt.special);
  if (!args.output.json) {
    fmt::print("{}\n", fmt::join(ids, ","));
    return;
  }
  Json json;
  json["ids"] = ids;
  json["tokens"] = Json::array();
  for (const int32_t id : ids) json["tokens"].push_back(engine.token_text(id));
  json["text"] = text;
  print_json(json);
}

int tokenize(const TokenizeArgs& args) {
  if (args.prompt.ids) throw UsageError("tokenize: expected a text; ids become text with pop detokenize");
  if (args.lines && args.prompt.given()) throw UsageError("--lines excludes -p, -f and -");
  const std::string text = args.lines ? "" : args.prompt.read(false);
  Engine engine = make_text_engine(args);
  if (args.lines)
    for_each_line(*args.lines, [&](std::string_view line, size_t) { print_ids(args, engine, line); });
  else
    print_ids(args, engine, text);
  return kDone;
}

void print_text(const TokenizeArgs& args, const Engine& engine, std::string_view list, const std::string& where) {
  const auto ids = parse_ids(list, where);
  check_ids(ids, engine.info(), where);
  const std::string text = engine.decode(ids, args.skip_special);
  if (!args.output.json) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // exactly the bytes, so that it undoes tokenize
    return;
  }
  Json json;
  json["ids"] = ids;
  json["text"] = text;
  print_json(json);
}

int detokenize(const TokenizeArgs& args) {
  const bool from_file = args.prompt.file || args.prompt.dash == "-";
  const int sources = int(args.prompt.ids.has_value()) + int(from_file) + int(args.lines.has_value());
  if (sources != 1)
    throw UsageError("detokenize: expected one of --ids LIST, -f FILE, --lines FILE or - (standard input)");
  Engine engine = make_text_engine(args);
  if (args.lines) {
    for_each_line(*args.lines, [&](std::string_view line, size_t number) {
      print_text(args, engine, line, fmt::format("{}:{}", printable(*args.lines, 400), number));
      if (!args.output.json) fmt::print("\n");
    });
  } else if (from_file) {
    const std::string path = args.prompt.file.value_or("-");
    print_text(args, engine, read_file(path), path);
  } else {
    print_text(args, engine, *args.prompt.ids, "--ids");
  }
  return kDone;
}

void add_detokenize(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<TokenizeArgs>();
  CLI::App* app = root.add_subcommand("detokenize");
  app->description("Text of token ids: exactly the bytes the ids stand for, nothing added.");
  app->add_option("--ids", args->prompt.ids, "Token ids, separated by commas or blanks")->option_text("LIST");
  app->add_option("-f,--file", args->prompt.file, "A file of ids")->option_text("FILE");
  app->add_option("source", args->prompt.dash, "Standard input")->option_text("-");
  app->add_option("--lines", args->lines,
                  "A file (or -) with the ids of one document per line; one document per line out")
      ->option_text("FILE");
  app->add_flag("--skip-special", args->skip_special, "Leave special tokens out");
  add_tokenizer_options(*app, *args);
  app->footer(
      "Examples:\n"
      "  pop detokenize --ids 504,3575,282\n"
      "  pop tokenize -f text.txt | pop detokenize - | cmp - text.txt\n");
  commands.push_back({app, [args] { return detokenize(*args); }});
}

}  // namespace

void add_tokenize(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<TokenizeArgs>();
  CLI::App* app = root.add_subcommand("tokenize");
  app->description("Token ids of a text, separated by commas. The last newline of a file belongs to the text.");
  add_prompt_options(*app, args->prompt);
  app->remove_option(app->get_option("--ids"));
  app->add_option("--lines", args->lines, "A file (or -) with one document per line; one list of ids per line out")
      ->option_text("FILE")
      ->group("Prompt (one of them)");
  app->add_option("--bos", args->engine.bos,
                  "Beginning-of-sequence token: auto (what the file says), never, always [auto]")
      ->option_text("WHEN")
      ->group("Model");
  add_tokenizer_options(*app, *args);
  app->footer(
      "Examples:\n"
      "  pop tokenize -p \"Hello, world\"\n"
      "  pop tokenize --lines documents.txt --json\n");
  commands.push_back({app, [args] { return tokenize(*args); }});
  add_detokenize(root, commands);
}

}  // namespace pop::app
