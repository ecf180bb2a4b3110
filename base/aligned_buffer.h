// An owned block of bytes, 64-byte aligned; from 2 MiB on, mapped, and backed by huge pages where wanted and given.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace pop {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Huge: fewer TLB misses for what is read whole. Small: for what is mostly never touched (a huge page is zeroed whole at
  // the first touch: the cache of an unused context would cost a second).
  enum class Pages : uint8_t { Huge, Small };
  // Zero-filled. Throws Error if the system has not that much memory.
  explicit AlignedBuffer(size_t bytes, Pages pages = Pages::Huge);
  ~AlignedBuffer() { release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  // Writes one byte per page, so that the first use does not pay for page faults.
  void touch();

 private:
  void release();
  void swap(AlignedBuffer& o) {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    std::swap(mapped_, o.mapped_);
  }
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // length of the mapping, 0 if from aligned_alloc
};

}  // namespace pop
