// What the program does with the terminal: colours, a progress line, Ctrl-C.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/pop/args.h"

namespace pop::app {

bool is_terminal(int descriptor);

// Standard error may be closed or full: then there is nobody to tell, and no reason to stop.
void to_stderr(std::string_view text);

// "pop: MESSAGE" on standard error: one line, control characters shown as \xNN.
void report(std::string message);

// Columns that a text takes: its code points.
size_t width_of(std::string_view text);

// Escape sequences for stdout, or nothing where colours are off (--color, NO_COLOR, not a terminal).
class Style {
 public:
  explicit Style(const OutputArgs& args);
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string marked(std::string_view text) const { return wrap("1;31", text); }
  bool colored() const { return colored_; }

 private:
  std::string wrap(const char* code, std::string_view text) const;
  bool colored_;
};

// While one lives, Ctrl-C, SIGTERM and SIGHUP set a flag in place of ending the program, so that what was begun is put away; a
// second one without clear() between ends it at once.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool raised();
  static bool told_to_end();  // by another signal than Ctrl-C, which in a conversation only stops an answer
  static int exit_code();     // as shells have it: 128 and the signal; Ctrl-C's before there was one
  static void clear();        // forgets a Ctrl-C
};

// A line on stderr, redrawn in place: what, how far, time left. Silent unless stderr is a terminal and the work has lasted
// a second. Gone when the object is.
class Progress {
 public:
  Progress(std::string what, const OutputArgs& args);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(int64_t done, int64_t total);

 private:
  std::string what_;
  bool enabled_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

// A line for people on stderr, unless -q.
void note(const OutputArgs& args, const std::string& line);

}  // namespace pop::app
