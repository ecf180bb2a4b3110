// The matrices of a model in memory: planned first, then given room in one block and filled from the file, or from a cache file
// of an earlier load.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "formats/tensor_source.h"
#include "tensor/matrix.h"

namespace pop {

// One matrix of the rows of several tensors, interleaved: row u of unit i is row i of part u.
struct PlannedMatrix {
  Matrix matrix;  // data is null until the weights are there
  std::vector<RawTensor> parts;
  size_t offset = 0, bytes = 0;  // in the block
  // Not 0: of so many rows (a head), the halves are interleaved: row 2i is the file's row i, row 2i + 1 its row i + half.
  int pair_halves_of = 0;
};

// How a matrix is to be made of its parts. type: empty, that of the parts.
struct MatrixWish {
  Layout layout = Layout::Rows;
  std::optional<DType> type{};
  int pair_halves_of = 0;
};

// Called now and then, by the thread that loads: bytes of the file done, and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

class Weights {
 public:
  Weights() = default;
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Plans a matrix of type, shape and layout as `parts` and `wanted` make it; returns its index. Values are kept exactly where no
  // type is wanted; tensors of different types that must share a unit are widened to float32, the one type that holds them all.
  int add(std::vector<RawTensor> parts, const MatrixWish& wanted);

  // Re-lays every matrix, in the order of the file, on all threads, while the disk reads ahead; pages of the file are given
  // back as they are used up, so that the process never holds the weights twice. Throws Error if memory is short, and for a
  // value that the wanted type cannot hold.
  void fill(const TensorSource& file, ThreadPool& pool, const LoadProgress& progress);

  // In place of fill: from a file that holds the block from `offset` on, mapped and checked by the caller.
  void use(MappedFile cache, size_t offset);

  // AddressSanitizer builds: from here on reading between the matrices is an error.
  void guard_gaps() const;

  std::span<const PlannedMatrix> planned() const { return planned_; }
  const Matrix& operator[](int index) const { return planned_[size_t(index)].matrix; }
  size_t block_bytes() const { return bytes_; }
  std::span<const uint8_t> block() const { return {data_, bytes_}; }  // all matrices, with the gaps between them
  uint64_t matrix_bytes() const;                                      // without the gaps

 private:
  void place(const uint8_t* data);

  std::vector<PlannedMatrix> planned_;
  size_t bytes_ = 0;
  const uint8_t* data_ = nullptr;
  AlignedBuffer memory_;
  MappedFile cache_;
};

}  // namespace pop
