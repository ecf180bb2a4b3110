// Reads parts of mapped files from the disk before they are needed, a bounded way ahead, while other threads work on what came
// earlier. A disk is fast only if it is asked early, and in order.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_file.h"

namespace pop {

struct FilePart {
  const MappedFile* file = nullptr;
  std::span<const uint8_t> bytes;
};

class ReadAhead {
 public:
  // Begins to read `parts` in this order, at most kAhead bytes beyond what advance() said. The files must outlive the object.
  explicit ReadAhead(std::vector<FilePart> parts);
  ~ReadAhead();  // stops; what was asked of the disk still arrives
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  void advance(uint64_t bytes);  // so many more bytes, in the order of the parts, are used up

  static constexpr uint64_t kAhead = uint64_t(128) << 20;  // tens of milliseconds of the fastest disks

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pop
