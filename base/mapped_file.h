// A file mapped read-only. Pages are read when touched; the mapping lives as long as the object.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pop {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error: missing, a folder, not readable, empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  int64_t modified_ns() const { return modified_ns_; }  // the file's time of change when it was opened, since 1970

  // Advice about a part of bytes(); what lies outside of it is ignored. None changes a value, the system may ignore all.
  void will_need(std::span<const uint8_t> part) const;  // starts reading it from the disk, does not wait for it
  void fault_in(std::span<const uint8_t> part) const;   // one call in place of a page fault for every few pages
  void release(
      std::span<const uint8_t> part) const;  // no longer counted as this process's memory; read again if touched
  void expect_random(bool random) const;     // of all of it: single pages are touched, reading ahead is a waste

 private:
  void advise(std::span<const uint8_t> part, int advice) const;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
  std::string path_;
};

}  // namespace pop
