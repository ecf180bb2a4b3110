#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pop {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty()) fail("stop: expected text, found an empty string");
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  // Hold back the longest end that a stop string could continue.
  size_t hold = 0;
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n)
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        hold = n;
        break;
      }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return out;
}

std::string StopFilter::flush() { return std::exchange(held_, {}); }

}  // namespace pop
