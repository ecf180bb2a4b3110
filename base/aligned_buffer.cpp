#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace pop {
namespace {
constexpr size_t kHugePage = size_t(2) << 20;
}

AlignedBuffer::AlignedBuffer(size_t bytes, Pages pages) {
  if (bytes == 0) return;
  if (bytes >= kHugePage) {
    if (bytes > SIZE_MAX - 2 * kHugePage) fail("out of memory: {} bytes asked for", bytes);
    const size_t length = (bytes + kHugePage - 1) & ~(kHugePage - 1);
    // Over-map by one huge page and trim: mmap itself aligns to 4 KiB only, and an unaligned head is never a huge page.
    void* raw = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) fail("out of memory: {} bytes asked for", bytes);
    auto* begin = static_cast<uint8_t*>(raw);
    auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) & ~(kHugePage - 1));
    if (aligned > begin) munmap(begin, size_t(aligned - begin));
    const size_t tail = size_t(begin + length + kHugePage - (aligned + length));
    if (tail > 0) munmap(aligned + length, tail);
    madvise(aligned, length, pages == Pages::Huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);  // best effort
    data_ = aligned;
    mapped_ = length;
  } else {
    const size_t length = (bytes + 63) & ~size_t(63);
    data_ = static_cast<uint8_t*>(std::aligned_alloc(64, length));
    if (data_ == nullptr) fail("out of memory: {} bytes asked for", bytes);
    std::memset(data_, 0, length);
  }
  size_ = bytes;
}

void AlignedBuffer::touch() {
  for (size_t i = 0; i < size_; i += 4096) {
    volatile uint8_t* p = data_ + i;
    *p = *p;
  }
}

void AlignedBuffer::release() {
  if (mapped_ != 0)
    munmap(data_, mapped_);
  else
    std::free(data_);
  data_ = nullptr;
  size_ = mapped_ = 0;
}

}  // namespace pop
