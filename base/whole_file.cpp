#include "base/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace pop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".tmp-";
constexpr size_t kRandomDigits = 16;

// Names need only be free, which O_EXCL sees to.
std::string some_name(const std::string& path) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) < 0) random = uint64_t(getpid());
  return fmt::format("{}{}{:0{}x}", path, kMark, random, kRandomDigits);
}

// Whether `name` is what some_name() makes of `whole`; another file of a user's is not to be touched.
bool is_left_over(const std::string& name, const std::string& whole) {
  const std::string prefix = whole + kMark;
  return name.starts_with(prefix) && name.size() == prefix.size() + kRandomDigits &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

// A link is followed, so that what it points to is replaced and not the link.
std::string target_of(const std::string& path) {
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  return ignored ? path : real.string();
}

void sync_folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  static_cast<void>(fsync(fd));  // the file itself is safe; at worst its name is lost with the power
  close(fd);
}

}  // namespace

WholeFile::WholeFile(const std::string& path, mode_t mode) : path_(target_of(path)) {
  struct stat status = {};
  const bool replaces = stat(path_.c_str(), &status) == 0;
  const mode_t its_mode = status.st_mode & 07777;
  if (replaces && !S_ISREG(status.st_mode))
    fail("{}: expected a file to write, found {}", printable(path_, 400),
         S_ISDIR(status.st_mode) ? "a folder" : "something else");
  // Between being made and being locked it may be taken for a left-over and removed: then another is made.
  status = {};
  for (int tries = 0; status.st_nlink == 0 && tries < 100; ++tries) {
    if (fd_ >= 0) close(fd_);
    temporary_ = some_name(path_);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) fail("{}: cannot be written: {}", printable(path_, 400), std::strerror(errno));
    int locked = -1;  // not on every file system; there it may be removed later
    do locked = flock(fd_, LOCK_EX);
    while (locked != 0 && errno == EINTR);
    if (fstat(fd_, &status) != 0) break;
  }
  if (replaces) static_cast<void>(fchmod(fd_, its_mode));  // who may read it does not change
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (fd_ >= 0) close(fd_);
}

void WholeFile::reserve(uint64_t bytes) const {
  if (bytes != 0 && fallocate(fd_, 0, 0, off_t(bytes)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    fail_write(bytes);
}

void WholeFile::write(std::span<const uint8_t> bytes) const {
  constexpr size_t kStep = size_t(8) << 20;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(kStep, bytes.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(bytes.size());
    bytes = bytes.subspan(size_t(n));
  }
}

void WholeFile::become_whole() {
  if (fsync(fd_) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail("{}: cannot be written: {}", printable(path_, 400), std::strerror(errno));
  temporary_.clear();
  sync_folder_of(path_);
}

void WholeFile::remove_left_over(const std::string& path) {
  std::error_code ignored;
  const fs::path whole(target_of(path));
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (!is_left_over(it->path().filename().string(), whole.filename().string())) continue;
    const int fd = ::open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(it->path().c_str());
    close(fd);
  }
}

void WholeFile::fail_write(uint64_t bytes) const {
  fail("{}: expected room for {} more bytes, could not write them: {}", printable(path_, 400), bytes,
       std::strerror(errno));
}

}  // namespace pop
