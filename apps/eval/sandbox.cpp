#include "apps/eval/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "apps/eval/sandbox_filter.h"
#include "base/error.h"

namespace pop::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVerdictFd = 3, kSourceFd = 4;
constexpr size_t kMaxVerdict = 200;

// The first line of the source is the mark without which a verdict does not count. What the program could have replaced is
// kept in names of its own first. The names of the module are those that exec() gives an empty dictionary, as in the
// reference harness.
constexpr const char* kDriver =
    "import os\n"
    "write, leave = os.write, os._exit\n"
    "with open(4, 'rb') as file:\n"
    "    mark, source = file.read().split(b'\\n', 1)\n"
    "try:\n"
    "    exec(compile(source, 'answer.py', 'exec'), {})\n"
    "    verdict = 'passed'\n"
    "except BaseException as error:\n"
    "    verdict = 'failed ' + type(error).__name__\n"
    "write(3, mark + verdict.encode('ascii', 'replace')[:150] + b'\\n')\n"
    "leave(0)\n";

// What the child needs, made before the fork: between fork and exec nothing may allocate.
struct Plan {
  const char* python;
  std::vector<char*> argv, envp;
  SandboxFilter filter;
  SandboxLimits limits;
  int source, verdict;  // descriptors
};

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

// In the child: no function here allocates or locks. Each step that fails ends it with a number of its own.
[[noreturn]] void give_up(int step) { _exit(100 + step); }

void limit(int step, int what, uint64_t value) {
  const rlimit both{value, value};
  if (setrlimit(static_cast<__rlimit_resource>(what), &both) != 0) give_up(step);
}

void keep_only_streams(const Plan& plan) {
  // Above what is kept first, so that no duplicate falls on a descriptor that is still needed.
  const int source = fcntl(plan.source, F_DUPFD, 10), verdict = fcntl(plan.verdict, F_DUPFD, 10);
  const int nothing = open("/dev/null", O_RDWR);
  if (source < 0 || verdict < 0 || nothing < 0) give_up(1);
  const int none = fcntl(nothing, F_DUPFD, 10);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (dup2(none, stream) < 0) give_up(1);
  if (dup2(verdict, kVerdictFd) < 0 || dup2(source, kSourceFd) < 0) give_up(1);
#ifdef SYS_close_range
  if (syscall(SYS_close_range, kSourceFd + 1, ~0U, 0) == 0) return;
#endif
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) give_up(1);
  for (int fd = kSourceFd + 1; fd < static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 20)); ++fd) close(fd);
}

void forget_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
}

[[noreturn]] void become(Plan& plan, pid_t parent) {
  setsid();  // no terminal
  forget_signals();
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) give_up(2);
  keep_only_streams(plan);
  if (chdir("/") != 0) give_up(3);
  limit(4, RLIMIT_CORE, 0);
  limit(4, RLIMIT_FSIZE, 0);
  limit(4, RLIMIT_NOFILE, 64);
  limit(4, RLIMIT_NPROC, 0);
  limit(4, RLIMIT_CPU, static_cast<uint64_t>(plan.limits.cpu_s));
  limit(4, RLIMIT_AS, plan.limits.memory_bytes);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up(5);
  for (const size_t at : plan.filter.own_pid) plan.filter.program[at].k = static_cast<unsigned>(getpid());
  sock_fprog program{static_cast<unsigned short>(plan.filter.program.size()), plan.filter.program.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) give_up(6);
  execve(plan.python, plan.argv.data(), plan.envp.data());
  give_up(7);
}

// The source behind its mark, in memory that nobody can change any more.
int sealed_source(std::string_view mark, std::string_view source) {
  const int fd = memfd_create("answer.py", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail("sandbox: cannot make a file in memory: {}", std::strerror(errno));
  for (std::string_view part : {mark, std::string_view("\n"), source})
    while (!part.empty()) {
      const ssize_t written = write(fd, part.data(), part.size());
      if (written < 0) fail("sandbox: cannot write the program: {}", std::strerror(errno));
      part.remove_prefix(static_cast<size_t>(written));
    }
  lseek(fd, 0, SEEK_SET);
  fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  return fd;
}

std::string random_mark() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x} ", device(), device(), device());
}

// Waits for the child's end and reads what it says meanwhile; ends it by force at the deadline.
struct Watch {
  pid_t child;
  int verdict;
  Clock::time_point deadline;
  const std::function<bool()>& interrupted;
  std::string said{};
  int status = 0;
  const char* ended = nullptr;  // why by us

  void wait() {
    while (waitpid(child, &status, WNOHANG) == 0) {
      read_more(50);
      if (interrupted && interrupted()) ended = "interrupted";
      if (!ended && Clock::now() >= deadline) ended = "timeout";
      if (!ended) continue;
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    read_more(0);
  }

 private:
  void read_more(int milliseconds) {
    pollfd one{verdict, POLLIN, 0};
    if (poll(&one, 1, milliseconds) <= 0) return;
    if (!(one.revents & POLLIN)) {  // closed: only its end is awaited
      poll(nullptr, 0, std::min(milliseconds, 2));
      return;
    }
    std::array<char, kMaxVerdict> bytes{};
    const ssize_t count = read(verdict, bytes.data(), bytes.size());
    if (count > 0) said.append(bytes.data(), static_cast<size_t>(count));
    if (said.size() > kMaxVerdict && !ended) ended = "too much output";
  }
};

SandboxResult judge(const Watch& watch, const std::string& mark) {
  if (watch.ended) return {false, watch.ended};
  if (WIFSIGNALED(watch.status)) {
    const int number = WTERMSIG(watch.status);
    // The kernel's answer to too much processor time.
    return {false, number == SIGXCPU || number == SIGKILL ? "timeout" : fmt::format("signal {}", number)};
  }
  const int code = WEXITSTATUS(watch.status);
  if (watch.said.rfind(mark, 0) != 0) return {false, fmt::format("exit {}", code)};
  std::string verdict = watch.said.substr(mark.size(), watch.said.find('\n') - mark.size());
  constexpr std::string_view kFailed = "failed ";
  if (verdict == "passed") return {true, verdict};
  if (verdict.rfind(kFailed, 0) == 0) verdict.erase(0, kFailed.size());
  return {false, printable(verdict)};
}

// The interpreter that a name stands for: what is found first may be a script that starts another program.
std::pair<std::string, std::string> find_python(const std::string& name) {
  std::string quoted = "'";
  for (const char c : name) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string command = quoted +
                              "' -I -c 'import os, sys, platform; assert sys.version_info >= (3, 6); "
                              "print(os.path.realpath(sys.executable)); print(platform.python_version())' 2>/dev/null";
  std::string out;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) fail("sandbox: cannot start a program: {}", std::strerror(errno));
  std::array<char, 512> bytes{};
  while (const size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe)) out.append(bytes.data(), count);
  const int status = pclose(pipe);
  const size_t line = out.find('\n');
  if (status != 0 || line == std::string::npos || out[0] != '/')
    fail("--python {}: expected Python 3.6 or later, found none", printable(name));
  return {out.substr(0, line), out.substr(line + 1, out.find('\n', line + 1) - line - 1)};
}

}  // namespace

Sandbox::Sandbox(const std::string& python, const SandboxLimits& limits) : limits_(limits) {
  std::string version;
  std::tie(python_, version) = find_python(python);
  const SandboxResult works = run("import socket");
  const SandboxResult network = run("import socket; socket.socket()");
  const SandboxResult process = run("import os; os.fork()");
  const SandboxResult file = run("open('/tmp/pop-sandbox', 'w')");
  if (!works.passed || network.verdict != "PermissionError" || process.verdict != "PermissionError" ||
      file.verdict != "PermissionError")
    fail("sandbox: this system cannot confine a program (seccomp; a trial gave {}, {}, {}, {}), so none is run",
         works.verdict, network.verdict, process.verdict, file.verdict);
  description_ = fmt::format("Python {}; seccomp: no network, no processes, no file changes; {} s of CPU, {} s, {} MiB",
                             version, limits_.cpu_s, limits_.wall_s, limits_.memory_bytes >> 20);
}

SandboxResult Sandbox::run(std::string_view source, const std::function<bool()>& interrupted) const {
  const std::string mark = random_mark();
  const Descriptor program(sealed_source(mark, source));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("sandbox: cannot make a pipe: {}", std::strerror(errno));
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);

  // No site packages, no variables of the user; the same hashes in every run.
  std::vector<std::string> words = {python_, "-s", "-S", "-B", "-X", "utf8", "-c", kDriver};
  std::vector<std::string> variables = {"PYTHONHASHSEED=0", "LANG=C.UTF-8", "HOME=/", "PATH=/usr/bin:/bin"};
  Plan plan{python_.c_str(), {}, {}, sandbox_filter(), limits_, program.get(), writing.get()};
  if (plan.filter.program.empty()) fail("sandbox: no filter of system calls for this machine, so no program is run");
  for (std::string& word : words) plan.argv.push_back(word.data());
  for (std::string& variable : variables) plan.envp.push_back(variable.data());
  plan.argv.push_back(nullptr);
  plan.envp.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail("sandbox: cannot start a process: {}", std::strerror(errno));
  if (child == 0) become(plan, parent);
  writing.reset();
  const auto allowed = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits_.wall_s));
  Watch watch{child, reading.get(), Clock::now() + allowed, interrupted};
  watch.wait();
  return judge(watch, mark);
}

}  // namespace pop::app
