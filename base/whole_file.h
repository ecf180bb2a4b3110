// Writes a file that is there whole or not at all.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

namespace pop {

// Bytes go to a file of another name beside `path`, which takes its place when it is complete and on the disk: a reader sees the
// old file or the new one, whoever else writes and wherever this process is killed. Until then it is locked (flock): one that
// nobody has locked was left by a killed process (remove_left_over). An object that goes without become_whole() leaves nothing.
class WholeFile {
 public:
  // mode: of a new file, less the umask. Throws Error: the folder cannot be written to, `path` is something other than a file.
  explicit WholeFile(const std::string& path, mode_t mode = 0666);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  // Asks for the room first, so that a full disk is said at once.
  void reserve(uint64_t bytes) const;
  void write(std::span<const uint8_t> bytes) const;
  void become_whole();  // throws Error as the others: no room, no permission

  // Removes what killed writers of `path` left beside it.
  static void remove_left_over(const std::string& path);

 private:
  [[noreturn]] void fail_write(uint64_t bytes) const;
  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace pop
