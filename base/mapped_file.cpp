#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pop {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  if (fd < 0) fail("{}: cannot open: {}", path, std::strerror(errno));
  struct stat st {};
  const bool ok = fstat(fd, &st) == 0;
  if (!ok || !S_ISREG(st.st_mode) || st.st_size == 0) {
    close(fd);
    fail("{}: expected a regular file with data, found {}", path,
         !ok                   ? "an unreadable entry"
         : S_ISDIR(st.st_mode) ? "a folder"
         : S_ISREG(st.st_mode) ? "an empty file"
                               : "a special file");
  }
  void* p = mmap(nullptr, size_t(st.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (p == MAP_FAILED) fail("{}: cannot map {} bytes: {}", path, st.st_size, std::strerror(error));
  data_ = static_cast<const uint8_t*>(p);
  size_ = size_t(st.st_size);
  modified_ns_ = int64_t(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec;
}

// Whole pages around the part: a neighbour's page that is released with it comes back at the next touch.
void MappedFile::advise(std::span<const uint8_t> part, int advice) const {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t begin = std::max(first, reinterpret_cast<uintptr_t>(part.data()) / page * page);
  const uintptr_t end = std::min(first + size_, reinterpret_cast<uintptr_t>(part.data()) + part.size());
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

void MappedFile::will_need(std::span<const uint8_t> part) const { advise(part, MADV_WILLNEED); }
void MappedFile::release(std::span<const uint8_t> part) const { advise(part, MADV_DONTNEED); }
void MappedFile::expect_random(bool random) const { advise(bytes(), random ? MADV_RANDOM : MADV_NORMAL); }
void MappedFile::fault_in(std::span<const uint8_t> part) const {
#ifdef MADV_POPULATE_READ  // Linux 5.14
  advise(part, MADV_POPULATE_READ);
#else
  static_cast<void>(part);
#endif
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    modified_ns_ = other.modified_ns_;
    path_ = std::move(other.path_);
  }
  return *this;
}

}  // namespace pop
