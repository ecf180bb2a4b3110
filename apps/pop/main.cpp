// The program `pop`: finds the command, runs it, turns what went wrong into one line and an exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <new>
#include <system_error>

#include "apps/pop/command.h"
#include "apps/pop/help_formatter.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"
#include "engine/pop.h"

namespace pop::app {
namespace {

int complain(ExitCode code, std::string message) {
  std::fflush(stdout);
  report(std::move(message));
  return code;
}

// What was printed must have arrived before 0 may be said.
int finish(int code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return complain(kFailed, "standard output: could not be written");
  return code == kInterrupted ? InterruptScope::exit_code() : code;
}

int show(const std::string& page) {
  std::fwrite(page.data(), 1, page.size(), stdout);
  return finish(kDone);
}

// A file opened by a process whose standard output is closed would get its number, and the result would be written into
// it. The stand-ins are open the wrong way round, so that using them still fails.
void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

std::string version_text() {
  const BuildInfo build = build_info();
  std::string out =
      fmt::format("pop {} (commit {}, {}, {})\n", build.version, build.commit, build.compiler, build.build_type);
  out += "instruction sets built in:";
  for (const auto& name : built_isa_names()) out += " " + name;
  out += "\nfound on this machine:    ";
  for (const auto& name : available_isa_names()) out += " " + name;
  return out;
}

const CLI::App* deepest_parsed(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands()) return deepest_parsed(*sub);
  return &app;
}

std::string full_name(const CLI::App* app) {
  return app->get_parent() ? full_name(app->get_parent()) + " " + app->get_name() : app->get_name();
}

// "bench decode: ", and nothing for the program itself, whose name begins every line anyway.
std::string prefix(const CLI::App* app) {
  return app->get_parent() ? full_name(app).substr(full_name(app).find(' ') + 1) + ": " : "";
}

std::string unexpected(const CLI::App& command, const std::string& word) {
  std::vector<std::string> candidates;
  const bool option = word.starts_with("-") && word != "-";
  if (option) {
    for (const CLI::Option* known : command.get_options())
      for (const auto& name : known->get_lnames()) candidates.push_back("--" + name);
  } else {
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
      candidates.push_back(sub->get_name());
  }
  const std::string near = nearest(word.substr(0, word.find('=')), candidates);
  const bool names_command = !option && !candidates.empty();
  return fmt::format("{}unknown {} '{}'{}; see {} --help", prefix(&command),
                     option          ? "option"
                     : names_command ? "command"
                                     : "argument",
                     printable(word), near.empty() ? "" : fmt::format(", the nearest is {}", near),
                     full_name(&command));
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = deepest_parsed(app);
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    const auto words = command->remaining(true).empty() ? app.remaining(true) : command->remaining(true);
    // An option that is not known leaves its value behind as well: what is wrong is the option.
    const auto option = std::find_if(words.begin(), words.end(), [](const auto& w) { return w.starts_with("-"); });
    if (!words.empty()) return complain(kUsage, unexpected(*command, option == words.end() ? words[0] : *option));
  }
  std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && message.starts_with("-")) {
    const bool repeated = message.find("At Most") != std::string::npos;
    message = message.substr(0, message.find(':')) +
              (repeated ? ": expected once, found more than once" : ": expected a value, found none");
  }
  return complain(kUsage, prefix(command) + message);
}

int run_command(const Commands& commands) {
  try {
    for (const Command& command : commands) {
      if (!command.app->parsed()) continue;
      return finish(command.action());
    }
    return complain(kUsage, "no command given; see pop --help");
  } catch (const UsageError& error) {
    return complain(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return complain(kFailed, "not enough memory");
  } catch (const std::exception& error) {
    return complain(kFailed, std::ferror(stdout) ? "standard output: could not be written" : error.what());
  }
}

int run(int argc, char** argv) {
  CLI::App app(
      "Runs large language models dense, or pruned online: POP, Partition-guided Online Pruning (arXiv 2602.06822).",
      "pop");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "This page");
  app.set_version_flag("--version", version_text);
  app.footer(
      "Each command has its own --help. A first try:\n"
      "  pop demo\n"
      "  pop run -p \"The capital of France is\" -n 16 --prune pop --ratio 0.2\n");
  Commands commands;
  for (const auto add : {add_demo, add_run, add_chat, add_score, add_info, add_tokenize, add_methods, add_calibrate,
                         add_convert, add_eval, add_bench, add_help})
    add(app, commands);
  for (const Command& command : commands) command.app->group("Commands");
  app.require_subcommand(0, 1);  // else the second word of `help run` would be a command, too
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = deepest_parsed(app);
    const auto words = app.remaining(true);
    if (command == &app && !words.empty()) return complain(kUsage, unexpected(app, words[0]));
    return show(command->help());
  } catch (const CLI::Success& success) {  // --version
    return show(success.what() + std::string("\n"));
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return run_command(commands);
}

}  // namespace
}  // namespace pop::app

int main(int argc, char** argv) {
  pop::app::occupy_standard_descriptors();
  return pop::app::run(argc, argv);
}
