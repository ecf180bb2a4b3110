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

std::string sha256_hex(std::span<const uint8_t> bytes) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, bytes.data(), bytes.size());
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256Final(digest, &context);
  std::string hex;
  for (const uint8_t b : digest) hex += fmt::format("{:02x}", b);
  return hex;
}

}  // namespace pop
