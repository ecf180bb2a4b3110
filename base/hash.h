// Hashes that name a result: XXH64 of logits, SHA-256 of files (both from libraries).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pop {

// XXH64 (seed 0) over bytes in the order given. Logits are hashed as little-endian float32, position after position.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  void update(std::span<const float> values);
  void update_bytes(const void* data, size_t bytes);
  std::string hex() const;  // 16 hex digits
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// SHA-256 of bytes given in parts.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const uint8_t> bytes);
  std::string hex();  // once, at the end; 64 hex digits

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string sha256_hex(std::span<const uint8_t> bytes);

// XXH64 (seed 0): a checksum at the speed of memory, against damage, not against malice.
uint64_t checksum(std::span<const uint8_t> bytes);

}  // namespace pop
