#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "apps/program_test.h"

extern char** environ;

namespace pop::app {
namespace {

pid_t start(const std::vector<std::string>& arguments, const Folder& folder) {
  std::vector<char*> argv = {const_cast<char*>(POP_PROGRAM)};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, folder.path("in").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, folder.path("out").c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, folder.path("err").c_str(), O_WRONLY | O_CREAT, 0600);
  // A test run from a script without job control inherits an ignored SIGINT, under nohup an ignored SIGHUP; a user's shell does
  // not do that.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = posix_spawn(&child, POP_PROGRAM, &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  EXPECT_EQ(error, 0) << "cannot start " << POP_PROGRAM;
  return child;
}

}  // namespace

Outcome pop(const std::vector<std::string>& arguments, const std::string& input, bool interrupt) {
  const auto wrote = [](const std::string& out) {
    std::error_code missing;
    return std::filesystem::file_size(out, missing) > 0 && !missing;
  };
  return pop_signalled(arguments, input, interrupt ? SIGINT : 0, wrote);
}

Outcome pop_signalled(const std::vector<std::string>& arguments, const std::string& input, int signal,
                      const std::function<bool(const std::string& out)>& when) {
  using namespace std::chrono_literals;
  Folder folder;
  folder.write("in", input);
  const pid_t child = start(arguments, folder);
  if (child < 0) return {};
  int status = 0;
  while (waitpid(child, &status, signal != 0 ? WNOHANG : 0) == 0) {
    if (when(folder.path("out"))) {
      kill(child, signal);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(2ms);
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_bytes(folder.path("out")),
          read_bytes(folder.path("err"))};
}

Json run_json(Words words) {
  words.push_back("--json");
  const Outcome done = pop(words);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 1) << "one object on one line";
  return done.code == 0 ? done.json() : Json::object();
}

Words tiny(const std::string& command, Words more) {
  more.insert(more.begin(), {command, "-m", kTiny});
  return more;
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "pop-program-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  folder_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Folder::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(folder_ / name, std::ios::binary) << bytes;
  return path(name);
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace pop::app
