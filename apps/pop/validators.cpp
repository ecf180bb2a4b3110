#include "apps/pop/validators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace pop::app {
namespace {

template <class Number>
std::optional<Number> parse(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Edits between two words: insertion, deletion, change, exchange of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

CLI::Validator real_in(double low, double high) {
  return {[low, high](std::string& text) {
            const auto value = parse<double>(text);
            if (value && std::isfinite(*value) && *value >= low && *value <= high) return std::string();
            return fmt::format("expected a number from {} to {}, found '{}'", low, high, printable(text));
          },
          ""};
}

CLI::Validator whole_in(int64_t low, int64_t high) {
  return {[low, high](std::string& text) {
            const auto value = parse<int64_t>(text);
            if (value && *value >= low && *value <= high) return std::string();
            return fmt::format("expected a whole number from {} to {}, found '{}'", low, high, printable(text));
          },
          ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            const std::string near = nearest(text, words);
            return fmt::format("expected one of {}, found '{}'{}", fmt::join(words, ", "), printable(text),
                               near.empty() ? "" : fmt::format(", the nearest is {}", near));
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](std::string& text) { return std::string(text.empty() ? "expected a text, found an empty one" : ""); }, ""};
}

CLI::Validator lower_case() {
  return {[](std::string& text) {
            for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
            return std::string();
          },
          ""};
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) return "";
  std::string best;
  size_t best_cost = (word.size() <= 5 ? 1 : std::max<size_t>(2, word.size() / 3)) + 1;
  for (const auto& candidate : candidates) {
    size_t cost = edit_distance(word, candidate);
    if (word.size() >= 3 && candidate.starts_with(word)) cost = std::min<size_t>(cost, 1);
    if (cost < best_cost && cost < std::max(word.size(), candidate.size())) {
      best = candidate;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace pop::app
