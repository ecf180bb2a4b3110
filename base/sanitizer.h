// Which sanitizer this is built with. In AddressSanitizer builds: marks memory that must not be touched for a while; nothing in others.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define POP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POP_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define POP_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define POP_TSAN 1
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

#ifdef POP_TSAN
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace pop
