// The tensors of a model under the names, shapes and row order of another file format.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/fill.h"
#include "model/model.h"
#include "model/stored_type.h"

namespace pop::app {

// One tensor to write: the rows of `parts`, one part after another, all of one type.
struct TensorPlan {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
  std::vector<RawTensor> parts;
  WeightUse use = WeightUse::Matrix;
  // Not 0: rows of each run of so many (a head) change places. pair: row 2i comes from row i, row 2i + 1 from row i + half. Else back.
  int head_rows = 0;
  bool pair = false;
  float offset = 0;  // is added to every value

  // All of them, in order.
  std::vector<float> values() const;

  int64_t cols() const { return shape.back(); }
  DType stored() const { return parts[0].type; }
};

// All tensors of the model by the names of `to`, for a file whose rotated pairs lie as `interleaved` says and whose norms are meant to be
// read with `norm_offset` added. Throws Error for experts of different types.
std::vector<TensorPlan> plan_tensors(const Model& model, const TensorNames& to, bool interleaved, float norm_offset);
// Those of a GGUF file under their own names, in their own order.
std::vector<TensorPlan> plan_same(const Model& model);

// Ctrl-C.
class Interrupted : public std::exception {};

// Makes the data of planned tensors while a file is written, on all threads. Pages of the source are given back as they are used up.
class TensorMaker {
 public:
  // progress: bytes of the source done. interrupted: asked for now and then; a Fill then throws Interrupted.
  TensorMaker(const TensorSource& source, ThreadPool& pool, std::function<void(uint64_t done)> progress,
              std::function<bool()> interrupted);

  // The plan must outlive the Fill. It throws Error naming the tensor for a value that `type` cannot hold.
  Fill fill(const TensorPlan& plan, DType type);

 private:
  void make(const TensorPlan& plan, DType type, uint64_t offset, std::span<uint8_t> out);
  void make_vector(const TensorPlan& plan, DType type, uint64_t offset, std::span<uint8_t> out);
  [[noreturn]] void refuse(const TensorPlan& plan, DType type, float value) const;

  const TensorSource& source_;
  ThreadPool& pool_;
  std::function<void(uint64_t)> progress_;
  std::function<bool()> interrupted_;
  std::vector<std::vector<float>> scratch_;  // [threads]
  uint64_t done_ = 0;
};

}  // namespace pop::app
