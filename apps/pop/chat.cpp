// pop chat: a conversation, dense or pruned, switched while it runs.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct ChatArgs {
  EngineOptions engine;
  PruneArgs prune;
  SamplingArgs sampling;
  OutputArgs output;
  std::string system;
  int max_tokens = 512;
};

constexpr const char* kCommands =
    "/prune METHOD [RATIO]  e.g. /prune pop 0.3: the next answers by this method\n"
    "/dense                 the next answers by the whole model\n"
    "/stats                 speed and bytes of the last answer\n"
    "/reset                 forget the conversation\n"
    "/help                  this list\n"
    "Ctrl-C stops an answer, Ctrl-D leaves.";

// Lines from descriptor 0. Not std::getline: a Ctrl-C must end the wait.
class Input {
 public:
  enum class Outcome { Line, End, Interrupted };
  Outcome read_line(std::string& line) {
    for (;;) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Outcome::Line;
      }
      char block[4096];
      const ssize_t n = read(STDIN_FILENO, block, sizeof block);
      if (n < 0 && errno == EINTR) return Outcome::Interrupted;
      if (n <= 0) {
        line = std::exchange(buffer_, {});
        return line.empty() ? Outcome::End : Outcome::Line;
      }
      buffer_.append(block, static_cast<size_t>(n));
    }
  }

 private:
  std::string buffer_;
};

class Chat {
 public:
  explicit Chat(const ChatArgs& args)
      : args_(args),
        engine_(make_engine(args.engine, args.output, {args.prune.settings.method})),
        session_(engine_.session(args.prune.resolved(args.sampling.seed))) {
    if (engine_.info().chat_template.empty())
      fail("{}: the model has no chat template; use pop run", printable(engine_.info().path, 400));
    reset();
  }

  int run() {
    InterruptScope interrupts;
    note(args_.output,
         fmt::format("{} ({}); /help lists the commands", engine_.info().name, describe(session_->plan())));
    Input input;
    for (std::string line;;) {
      prompt();
      InterruptScope::clear();
      if (InterruptScope::told_to_end()) return kInterrupted;
      switch (input.read_line(line)) {
        case Input::Outcome::End:
          if (is_terminal(STDIN_FILENO)) note(args_.output, "");
          return kDone;
        case Input::Outcome::Interrupted:
          if (!InterruptScope::told_to_end()) note(args_.output, "\nCtrl-D leaves");
          continue;
        case Input::Outcome::Line: break;
      }
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      try {
        line.starts_with("/") ? command(line) : answer(line);
      } catch (const std::exception& error) {  // a conversation outlives a mistake
        report(error.what());
      }
    }
  }

 private:
  void prompt() const {
    if (is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO) && !args_.output.quiet) to_stderr("> ");
  }

  void reset() {
    messages_.clear();
    if (!args_.system.empty()) messages_.push_back({"system", args_.system});
    session_->reset();
    last_ = {};
  }

  void command(const std::string& line) {
    std::istringstream words(line);
    std::string name, method, number, rest;
    words >> name >> method >> number >> rest;
    if (name == "/prune") {
      set_method(method, number, rest);
    } else if (!method.empty()) {
      note(args_.output, fmt::format("{} takes nothing after it; /help lists the commands", printable(name)));
    } else if (name == "/dense") {
      set_method("dense", "", "");
    } else if (name == "/stats") {
      const bool none = last_.prompt_tokens == 0;
      note(args_.output, none ? "no answer yet" : fmt::format("{}: {}", describe(session_->plan()), describe(last_)));
    } else if (name == "/reset") {
      reset();
      note(args_.output, "forgotten");
    } else if (name == "/help") {
      note(args_.output, kCommands);
    } else {
      const std::string near = nearest(name, {"/prune", "/dense", "/stats", "/reset", "/help"});
      note(args_.output, fmt::format("unknown command {}{}; /help lists them", printable(name),
                                     near.empty() ? "" : fmt::format(", did you mean {}?", near)));
    }
  }

  void set_method(const std::string& method, const std::string& number, const std::string& rest) {
    if (method.empty() || !rest.empty()) fail("/prune: expected METHOD [RATIO], e.g. /prune pop 0.3");
    PruneSettings settings;
    settings.method = method;
    if (!number.empty()) {
      double ratio = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ratio);
      if (error != std::errc() || end != number.data() + number.size() || !(ratio >= 0 && ratio <= 1))
        fail("/prune: expected a ratio from 0 to 1, found '{}'", printable(number));
      settings.ratio = ratio;
    }
    session_ = engine_.session(settings);
    last_ = {};
    note(args_.output, describe(session_->plan()));
  }

  void answer(const std::string& line) {
    messages_.push_back({"user", line});
    GenerateOptions options;
    options.max_tokens = args_.max_tokens;
    options.sampling = args_.sampling.resolved(engine_.info());
    options.hooks.interrupted = InterruptScope::raised;
    options.on_text = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    try {
      const auto ids = engine_.chat_prompt(messages_);
      // Where the context is nearly full an answer is short rather than refused.
      last_ = session_->generate(ids, options);
    } catch (...) {
      messages_.pop_back();
      throw;
    }
    fmt::print("\n");
    std::fflush(stdout);
    if (last_.finish_reason == "interrupted" && last_.text.empty())
      messages_.pop_back();  // stopped before it said anything: the question is taken back too
    else
      messages_.push_back({"assistant", last_.text});
    if (last_.finish_reason == "length" && last_.prompt_tokens + last_.generated_tokens >= engine_.info().context)
      note(args_.output, "(the context is full; /reset starts afresh)");
    else if (last_.finish_reason == "length")
      note(args_.output, fmt::format("(cut after {} tokens; -n sets the limit)", args_.max_tokens));
    else if (last_.finish_reason == "interrupted")
      note(args_.output, "(stopped)");
  }

  const ChatArgs& args_;
  Engine engine_;
  std::unique_ptr<Session> session_;
  std::vector<ChatMessage> messages_;
  GenerateResult last_;
};

}  // namespace

void add_chat(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<ChatArgs>();
  CLI::App* app = root.add_subcommand("chat");
  app->description(
      "A conversation. Inside it: /prune METHOD RATIO, /dense, /stats, /reset, /help; Ctrl-C stops an answer, Ctrl-D "
      "leaves.");
  app->add_option("--system", args->system, "The system message [the template's own]")->option_text("TEXT");
  app->add_option("-n,--max-tokens", args->max_tokens, "Length of an answer at most, in tokens [512]")
      ->option_text("N")
      ->check(whole_in(1, 1 << 24));
  add_prune_options(*app, args->prune);
  add_sampling_options(*app, args->sampling);
  add_model_options(*app, args->engine);
  add_output_options(*app, args->output);
  app->remove_option(app->get_option("--json"));
  app->footer(
      "Examples:\n"
      "  pop chat\n"
      "  pop chat --prune pop --ratio 0.3 --system \"Answer in one sentence.\"\n");
  commands.push_back({app, [args] { return Chat(*args).run(); }});
}

}  // namespace pop::app
