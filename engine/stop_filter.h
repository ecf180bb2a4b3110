// Stop strings over token borders: text is let through only when no stop string can begin in it any more.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace pop {

class StopFilter {
 public:
  // Throws Error if a stop string is empty.
  explicit StopFilter(std::vector<std::string> stops);

  // Takes more text; returns what can be shown now. After stopped() everything is swallowed.
  std::string push(std::string_view text);
  // The end without a stop string: what was held back.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace pop
