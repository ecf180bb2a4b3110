// A file that holds a model's weights as they lie in memory after a load, so that the next start maps it in place of re-laying.
// Anything may be wrong with it at any time (cut, damaged, of another program, being replaced): it is used only if every byte
// is as it was written, else the weights come from the model file and the cache is written anew.
#pragma once
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "model/weights.h"

namespace pop {

class WeightCache {
 public:
  // `weights` is planned, not filled. The file's name in `folder` says which model in which layout; the key inside also the
  // model file's times and a sample of each tensor, and what this program's re-laying does to a probe of each type.
  WeightCache(const std::string& folder, const TensorSource& file, const Weights& weights);

  const std::string& path() const { return path_; }

  struct Found {
    MappedFile file;
    size_t offset;  // of the block
  };
  // The file, mapped and every byte of it compared with its checksums; empty if there is none that may be used.
  std::optional<Found> open(ThreadPool& pool, const LoadProgress& progress) const;

  // Under another name first, renamed when it is whole and on the disk: a reader sees all of it or none, whoever else writes
  // and wherever this process is killed. What killed writers left is removed. Throws Error (no room, no permission).
  void write(std::span<const uint8_t> block, ThreadPool& pool) const;

 private:
  std::string folder_, path_, key_;  // key: 64 hex digits
  size_t block_bytes_;
};

}  // namespace pop
