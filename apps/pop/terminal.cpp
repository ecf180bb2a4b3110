#include "apps/pop/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "apps/pop/command.h"
#include "base/error.h"

namespace pop::app {
namespace {

// Ctrl-C, and what asks a program to end: kill, a closed terminal, a machine that shuts down.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t interrupted = 0;  // the signal's number; a signal handler can reach nothing but a global
struct sigaction previous[std::size(kSignals)];

void on_interrupt(int signal) {
  if (interrupted) _exit(128 + signal);
  interrupted = signal;
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{} min {:02} s", s / 60, s % 60);
}

}  // namespace

void to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void report(std::string message) {
  for (char& c : message)
    if (c == '\n' || c == '\r') c = ' ';  // one line, whatever a library put into its message
  to_stderr(fmt::format("pop: {}\n", printable(message, 4000)));
}

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

Style::Style(const OutputArgs& args) {
  const char* off = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = !term || std::string_view(term) == "dumb";
  colored_ = args.color == "always" || (args.color == "auto" && !(off && *off) && !dumb && is_terminal(STDOUT_FILENO));
}

std::string Style::wrap(const char* code, std::string_view text) const {
  return colored_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

InterruptScope::InterruptScope() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a read that waits for the user must return
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &previous[i]);
    // nohup and its like have the others ignored, and so they stay.
    if (kSignals[i] == SIGINT || previous[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

bool InterruptScope::raised() { return interrupted != 0; }

bool InterruptScope::told_to_end() { return interrupted != 0 && interrupted != SIGINT; }

int InterruptScope::exit_code() { return interrupted != 0 ? 128 + interrupted : int(kInterrupted); }

void InterruptScope::clear() {
  if (interrupted == SIGINT) interrupted = 0;
}

Progress::Progress(std::string what, const OutputArgs& args)
    : what_(std::move(what)),
      enabled_(!args.quiet && is_terminal(STDERR_FILENO)),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) to_stderr("\r\x1b[K");
}

void Progress::update(int64_t done, int64_t total) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || total <= 0 || now - start_ < 1s || now - last_ < 100ms) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const double share = std::clamp(double(done) / double(total), 0.0, 1.0);
  const int filled = int(share * kWidth);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::string left = share > 0 ? duration(elapsed * (1 - share) / share) : "?";
  to_stderr(fmt::format("\r{} [{:#<{}}{:.<{}}] {:3.0f}%, {} left\x1b[K", what_, "", filled, "", kWidth - filled,
                        share * 100, left));
}

size_t width_of(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void note(const OutputArgs& args, const std::string& line) {
  if (!args.quiet) to_stderr(line + "\n");
}

}  // namespace pop::app
