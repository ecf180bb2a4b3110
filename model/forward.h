// One pass of tokens through the network.
#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/profile.h"
#include "model/sequence.h"

namespace pop {

// One token of one sequence, at the position after its cache or after the row before. Rows of a sequence stand together. In
// decode a policy whose choice at Down rests on the input of GateUp (gate-up as decode metric) gets one row per pass.
struct ForwardRow {
  Sequence* sequence = nullptr;
  int32_t token = 0;
  bool wants_logits = false;
};

// Called for every row that wants logits, rows ascending: logits [vocab], valid during the call.
using LogitsSink = std::function<void(int row, std::span<const float> logits)>;

// Told of every selection in decode, in order (the engine's --dump-partition).
struct SelectionListener {
  virtual ~SelectionListener() = default;
  virtual void chosen(const Sequence& sequence, int token, int place, Site site, const Selection& selection) = 0;
};

// Thrown out of forward() when RunContext::interrupted said so. The lengths of the sequences are those from before; what their
// policies have observed is not.
class PassInterrupted : public std::exception {};

// How the arithmetic is done: fixed for an engine's life.
struct RunContext {
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;
  std::optional<ActType> activations;  // empty: the committed default per weight type and phase
  SelectionListener* listener = nullptr;
  Stopwatch watch{};
  const std::function<bool()>* interrupted = nullptr;  // asked several times a layer; may be empty
  // Weights read by passes of decode: what several rows want, once. It takes time to find out, so only of every eighth pass:
  // the mean is forward_bytes / counted_passes.
  uint64_t forward_bytes = 0, counted_passes = 0;
  uint64_t decode_passes = 0;
  bool counts_forward = false;  // the pass under way is counted

  ActType act_type(const Matrix& w, Phase phase) const;
};

class Activations;  // scratch of a pass, allocated once: activations.h

// Computes `rows`, appends their keys and values to their sequences, hands out logits. At most activations.max_rows() rows.
// Of a row of decode the result never depends on the other rows; of prefill never on where the prompt was cut.
void forward(const Model& model, RunContext& run, Activations& scratch, Phase phase, std::span<const ForwardRow> rows,
             const LogitsSink& sink);

// One layer alone, for searches over a block: x, out : [rows, d], its input and output. Writes the keys and values of that layer;
// lengths stay, so that the same rows can go through it again.
void forward_block(const Model& model, RunContext& run, Activations& scratch, Phase phase,
                   std::span<const ForwardRow> rows, int layer, std::span<const float> x, std::span<float> out);

}  // namespace pop
