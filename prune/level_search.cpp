#include "prune/level_search.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace pop {
namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return size_t(random() % n); }  // the same on every platform

// One layer of those that may go by `step`; -1: none may.
int draw_layer(Random& random, const Levels& levels, std::span<const LevelRange> ranges, int step, int except) {
  std::vector<int> free;
  for (size_t l = 0; l < levels.size(); ++l) {
    const int level = levels[l] + step;
    if (int(l) != except && level >= ranges[l].lowest && level <= ranges[l].highest) free.push_back(int(l));
  }
  return free.empty() ? -1 : free[below(random, free.size())];
}

Levels mutated(Random& random, const Levels& parent, std::span<const LevelRange> ranges) {
  Levels child = parent;
  const size_t first = 1 + below(random, 4), second = 1 + below(random, 4);
  for (size_t i = 0; i < std::min(first, second); ++i) {
    const int down = draw_layer(random, child, ranges, -1, -1);
    const int up = down < 0 ? -1 : draw_layer(random, child, ranges, +1, down);
    if (up < 0) break;
    --child[size_t(down)];
    ++child[size_t(up)];
  }
  return child;
}

std::vector<Levels> children(Random& random, const Levels& parent, std::span<const LevelRange> ranges, int wanted) {
  std::vector<Levels> found;
  constexpr int kTries = 50;  // for each: where few moves are left, most were seen before
  for (int tries = 0; int(found.size()) < wanted && tries < wanted * kTries; ++tries) {
    Levels child = mutated(random, parent, ranges);
    if (child != parent && std::find(found.begin(), found.end(), child) == found.end())
      found.push_back(std::move(child));
  }
  return found;
}

}  // namespace

Levels LevelSearch::run(std::span<const LevelRange> ranges) const {
  Random random(seed);
  Levels parent(ranges.size());
  for (int generation = 0; generation < generations; ++generation) {
    std::vector<Levels> left = children(random, parent, ranges, offspring);
    if (left.empty()) break;  // nothing can move
    double best = 0;
    for (int stage = 0; stage < int(survivors.size()); ++stage) {
      if (stage + 1 == int(survivors.size())) left.insert(left.begin(), parent);  // of equals the parent stays
      const std::vector<double> losses = loss(stage, left);
      std::vector<size_t> order(left.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return losses[a] < losses[b]; });
      order.resize(std::min(order.size(), size_t(survivors[size_t(stage)])));
      std::vector<Levels> next;
      for (const size_t i : order) next.push_back(left[i]);
      if (!order.empty()) best = losses[order.front()];
      left = std::move(next);
    }
    parent = left.front();
    if (on_generation) on_generation(generation, best, parent);
  }
  return parent;
}

}  // namespace pop
