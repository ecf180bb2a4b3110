// In AddressSanitizer builds: marks memory that must not be touched for a while. Nothing in other builds.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define POP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POP_ASAN 1
#endif
#endif

#ifdef POP_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace pop {

#ifdef POP_ASAN
inline constexpr bool kAddressSanitizer = true;
inline void poison_memory(const void* p, size_t bytes) { __asan_poison_memory_region(p, bytes); }
inline void unpoison_memory(const void* p, size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
#else
inline constexpr bool kAddressSanitizer = false;
inline void poison_memory(const void*, size_t) {}
inline void unpoison_memory(const void*, size_t) {}
#endif

}  // namespace pop
