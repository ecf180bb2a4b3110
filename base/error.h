// Errors: the one way the library reports bad input, a bad model or a bad state.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace pop {

// One line a user can act on: names the file, tensor, field or option, what was expected and what was found.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with a formatted message: fail("{}: expected {} bytes, found {}", path, want, have).
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Text from outside made safe to print: control characters and bytes that are not UTF-8 become \xNN, at most `limit` bytes are kept.
std::string printable(std::string_view text, size_t limit = 80);

}  // namespace pop
