// pop run: a prompt in, its continuation out.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/dump.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"

namespace pop::app {
namespace {

struct RunArgs {
  EngineOptions engine;
  PruneArgs prune;
  SamplingArgs sampling;
  PromptArgs prompt;
  DumpArgs dump;
  OutputArgs output;
  int max_tokens = 128;
  std::vector<std::string> stop;
  bool chat = false, ignore_eos = false;
  std::string system;
};

std::vector<int32_t> prompt_ids(const RunArgs& args, const Engine& engine, const std::string& text) {
  if (!args.chat) return args.prompt.tokens(engine, text);
  std::vector<ChatMessage> messages;
  if (!args.system.empty()) messages.push_back({"system", args.system});
  messages.push_back({"user", text});
  return engine.chat_prompt(messages);
}

void check(const RunArgs& args) {
  if (args.chat && args.prompt.ids) throw UsageError("--chat wraps a text; it cannot be used with --ids");
  if (!args.chat && !args.system.empty()) throw UsageError("--system belongs to --chat");
  for (const auto& text : args.stop)
    if (text.empty()) throw UsageError("--stop: expected a text, found an empty one");
}

GenerateResult generate(const RunArgs& args, const Engine& engine, Session& session, const std::vector<int32_t>& ids) {
  Dumps dumps(args.dump, session.plan());
  Progress progress("prompt", args.output);
  InterruptScope interrupts;
  GenerateOptions options;
  options.max_tokens = args.max_tokens;
  options.sampling = args.sampling.resolved(engine.info());
  options.stop = args.stop;
  options.ignore_eos = args.ignore_eos;
  options.hooks.interrupted = InterruptScope::raised;
  options.hooks.on_progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  options.hooks.profile = args.dump.profile;
  dumps.add_to(options.hooks);
  if (!args.output.json)
    options.on_text = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  GenerateResult result = session.generate(ids, options);
  dumps.close();
  return result;
}

int run(const RunArgs& args) {
  check(args);
  const PruneSettings prune = args.prune.resolved(args.sampling.seed);
  const std::string text = args.prompt.read(true);
  Engine engine = make_engine(args.engine, args.output, {prune.method});
  const auto ids = prompt_ids(args, engine, text);
  const auto session = engine.session(prune);
  const GenerateResult result = generate(args, engine, *session, ids);
  if (args.output.json) {
    print_json(run_json(engine.info(), session->plan(), result));
  } else {
    if (!result.text.ends_with('\n')) fmt::print("\n");
    std::fflush(stdout);
    note(args.output, fmt::format("[{}: {}]", describe(session->plan()), describe(result)));
    if (!result.profile.empty()) note(args.output, profile_table(result.profile));
  }
  return result.finish_reason == "interrupted" ? kInterrupted : kDone;
}

}  // namespace

void add_run(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<RunArgs>();
  CLI::App* app = root.add_subcommand("run");
  app->description(
      "Continues a prompt. The continuation goes to standard output as it is made, speed and bytes to standard error.");
  add_prompt_options(*app, args->prompt);
  app->add_flag("--chat", args->chat, "Wrap the text in the model's chat template")->group("Prompt (one of them)");
  app->add_option("--system", args->system, "With --chat: the system message")
      ->option_text("TEXT")
      ->group("Prompt (one of them)");
  app->add_option("-n,--max-tokens", args->max_tokens, "Stop after N tokens [128]")
      ->option_text("N")
      ->check(whole_in(0, 1 << 24));
  app->add_option("--stop", args->stop, "Stop before this text; may be given several times")
      ->option_text("TEXT")
      ->expected(1)
      ->take_all();
  app->add_flag("--ignore-eos", args->ignore_eos, "Go on after an end-of-generation token");
  add_prune_options(*app, args->prune);
  add_sampling_options(*app, args->sampling);
  add_model_options(*app, args->engine);
  add_dump_options(*app, args->dump);
  add_output_options(*app, args->output);
  app->footer(
      "A file's or standard input's last newline is not part of the prompt.\n\n"
      "Examples:\n"
      "  pop run -p \"The capital of France is\" -n 16 --temp 0\n"
      "  pop run --chat -p \"Name three rivers.\" --prune pop --ratio 0.2 --json\n");
  commands.push_back({app, [args] { return run(*args); }});
}

}  // namespace pop::app
