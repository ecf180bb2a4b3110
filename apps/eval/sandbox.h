// Runs Python source that nobody has read: a model wrote it.
//
// Each program gets a process of its own that can compute, read files and say whether it passed, and nothing else: no sockets, no
// processes or threads beside it, no change of any file (a filter of system calls, apps/eval/sandbox_filter.h), no memory above
// a limit, no input, its output thrown away, and an end by force. What it cannot do it is told as an ordinary OSError. It is
// not hidden from the program that it is tested: one that looks for the mark of success in its own interpreter can pass itself.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pop::app {

struct SandboxLimits {
  int cpu_s = 3;  // of processor time
  double wall_s = 15;
  uint64_t memory_bytes = uint64_t(1) << 30;  // address space
};

struct SandboxResult {
  bool passed = false;
  // "passed", the type of the exception ("AssertionError"), "timeout", "signal N", "exit N" (it ended the interpreter itself),
  // "too much output" (where the verdict is written), "interrupted".
  std::string verdict;
};

class Sandbox {
 public:
  // python: a program's name or path, version 3. Throws Error if there is none, or if this system cannot confine it: then
  // nothing is run at all.
  explicit Sandbox(const std::string& python, const SandboxLimits& limits = {});

  // Passed: the source ran to its end. `interrupted` is asked several times a second.
  SandboxResult run(std::string_view source, const std::function<bool()>& interrupted = {}) const;

  // For results: what confines, the interpreter's version and limits.
  const std::string& description() const { return description_; }

 private:
  std::string python_, description_;
  SandboxLimits limits_;
};

}  // namespace pop::app
