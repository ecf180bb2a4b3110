// How the channels that go are shared out over layers: the evolutionary search of Týr-the-Pruner (arXiv 2503.09657, section 3.3; its
// code), FFN only. Knows no model: it gets losses and gives levels.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pop {

// Of each layer how many steps more (or fewer) of its channels go than at the centre. Their sum is 0, always.
using Levels = std::vector<int>;
struct LevelRange {
  int lowest = 0, highest = 0;  // 0 lies within
};

struct LevelSearch {
  int offspring = 16, generations = 8;
  std::vector<int> survivors = {4, 2, 1};  // of each stage, fewest last; the last stage judges the parent too
  uint64_t seed = 1;

  // The loss of each candidate in a stage, on texts that the stage draws once for all of them: lower is better.
  std::function<std::vector<double>(int stage, std::span<const Levels> candidates)> loss{};
  // After each generation: its best, the next one's parent.
  std::function<void(int generation, double loss, const Levels& best)> on_generation{};

  // From all 0. A generation has `offspring` different children of the parent, or as many as are found; each is made by up to 4
  // exchanges: one layer a level down, another a level up.
  Levels run(std::span<const LevelRange> ranges) const;
};

}  // namespace pop
