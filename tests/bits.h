// What tests of bits share: a small model, token ids, and runs told apart by the hashes of their logits.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/pop.h"

namespace pop {
namespace {

constexpr const char* kSource = "tests/goldens/tiny-q4_1.gguf";

[[maybe_unused]] std::vector<int32_t> ids_of(int seed, int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * i * 7 + i * 31 + seed * 97) % 256);
  return ids;
}

[[maybe_unused]] std::string hash_of(Engine& engine, const PruneSettings& prune, std::span<const ScoreRequest> requests,
                                     int batch = 1) {
  std::string joined;
  for (const ScoreResult& r : engine.session(prune)->score(requests, batch)) joined += r.logits_hash + " ";
  return joined;
}

}  // namespace
}  // namespace pop
