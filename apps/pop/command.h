// A command of the program: what the parser knows of it, and what it does.
#pragma once
#include <functional>
#include <stdexcept>
#include <vector>

namespace CLI {
class App;
}

namespace pop::app {

enum ExitCode : int { kDone = 0, kFailed = 1, kUsage = 2, kInterrupted = 130 };  // of SIGTERM 143, of SIGHUP 129

// Options that contradict each other or lack something: exit code 2. Any other exception ends with exit code 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Command {
  CLI::App* app;                // parsed() says whether it was asked for
  std::function<int()> action;  // returns the exit code
};

using Commands = std::vector<Command>;

void add_demo(CLI::App& root, Commands& commands);
void add_run(CLI::App& root, Commands& commands);
void add_chat(CLI::App& root, Commands& commands);
void add_score(CLI::App& root, Commands& commands);
void add_info(CLI::App& root, Commands& commands);
void add_tokenize(CLI::App& root, Commands& commands);  // and detokenize
void add_methods(CLI::App& root, Commands& commands);
void add_calibrate(CLI::App& root, Commands& commands);
void add_convert(CLI::App& root, Commands& commands);
void add_eval(CLI::App& root, Commands& commands);
void add_bench(CLI::App& root, Commands& commands);
void add_help(CLI::App& root, Commands& commands);

}  // namespace pop::app
