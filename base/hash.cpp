#include "base/hash.h"

#include <fmt/format.h>
#include <sha2.h>
#include <xxhash.h>

#include <bit>

#include "base/error.h"

namespace pop {

static_assert(std::endian::native == std::endian::little, "logits are hashed as they lie in memory: little-endian");

struct StreamHash::Impl {
  XXH64_state_t* state = XXH64_createState();
  Impl() {
    if (state == nullptr) fail("out of memory: hash state");
    XXH64_reset(state, 0);
  }
  ~Impl() { XXH64_freeState(state); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

StreamHash::StreamHash() : impl_(std::make_unique<Impl>()) {}
StreamHash::~StreamHash() = default;
StreamHash::StreamHash(StreamHash&&) noexcept = default;
StreamHash& StreamHash::operator=(StreamHash&&) noexcept = default;
void StreamHash::update(std::span<const float> values) { update_bytes(values.data(), values.size_bytes()); }
void StreamHash::update_bytes(const void* data, size_t bytes) { XXH64_update(impl_->state, data, bytes); }
std::string StreamHash::hex() const { return fmt::format("{:016x}", XXH64_digest(impl_->state)); }
void StreamHash::reset() { XXH64_reset(impl_->state, 0); }

struct Sha256::Impl {
  SHA2_CTX context;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) { SHA256Init(&impl_->context); }
Sha256::~Sha256() = default;
void Sha256::update(std::span<const uint8_t> bytes) { SHA256Update(&impl_->context, bytes.data(), bytes.size()); }

std::string Sha256::hex() {
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256Final(digest, &impl_->context);
  std::string hex;
  for (const uint8_t b : digest) hex += fmt::format("{:02x}", b);
  return hex;
}

std::string sha256_hex(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

uint64_t checksum(std::span<const uint8_t> bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

}  // namespace pop
