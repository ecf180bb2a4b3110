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

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

}  // namespace pop
