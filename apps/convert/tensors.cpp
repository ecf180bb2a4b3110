#include "apps/convert/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "formats/scaled_f8.h"
#include "model/families/family.h"
#include "tensor/convert_rows.h"

namespace pop::app {
namespace {

using NamePointer = const char* TensorNames::*;

std::string name_of(const char* pattern, int layer, int expert = 0) {
  return fmt::format(fmt::runtime(pattern), layer, expert);
}

class Planner {
 public:
  Planner(const Model& model, const TensorNames& to, bool interleaved, float norm_offset)
      : model_(model),
        from_(model.names()),
        to_(to),
        interleaved_(interleaved),
        more_(model.spec.norm_offset - norm_offset) {}

  std::vector<TensorPlan> plan() {
    using N = TensorNames;
    const ModelSpec& s = model_.spec;
    const bool tied = s.tied_head;
    // Names that formats use for one thing or another, by what the model has.
    const std::vector<NamePointer> norms =
        s.post_norms ? std::vector{&N::attention_norm, &N::post_attention_norm, &N::pre_ffn_norm, &N::post_ffn_norm}
                     : std::vector{&N::attention_norm, &N::ffn_norm};
    const std::vector<NamePointer> matrices = s.fused
                                                  ? std::vector{&N::qkv, &N::o, &N::fused_gate_up, &N::down}
                                                  : std::vector{&N::q, &N::k, &N::v, &N::o, &N::gate, &N::up, &N::down};
    same(&N::embedding, 0, tied ? WeightUse::Head : WeightUse::Matrix);
    for (int layer = 0; layer < s.layers; ++layer) {
      for (const NamePointer name : norms) norm(name, layer);
      for (const NamePointer name : {&N::q_norm, &N::k_norm}) norm(name, layer);
      for (const NamePointer vector : {&N::q_bias, &N::k_bias, &N::v_bias, &N::router})
        same(vector, layer, WeightUse::Kept);
      for (const NamePointer matrix : matrices) same(matrix, layer, WeightUse::Matrix);
      for (const NamePointer matrix : {&N::shared_gate_proj, &N::shared_up, &N::shared_down})
        same(matrix, layer, WeightUse::Matrix);
      shared_gate(layer);
      for (const NamePointer expert : {&N::expert_gate, &N::expert_up, &N::expert_down}) experts(expert, layer);
    }
    norm(&N::output_norm, 0);
    if (!tied) same(&N::output, 0, WeightUse::Head);
    refuse_left_over();
    return std::move(plans_);
  }

 private:
  // Of a family that has more than the lists above.
  void refuse_left_over() const {
    std::set<std::string, std::less<>> known;
    for (const TensorPlan& plan : plans_)
      for (const RawTensor& part : plan.parts) known.insert(part.name);
    for (int l = 0; l < model_.spec.layers; ++l)
      for (const char* pattern : from_.ignored) known.insert(name_of(pattern, l));
    if (model_.spec.tied_head) known.insert(from_.output);  // a copy of the embedding
    for (const TensorInfo& info : model_.file().tensors())
      if (!known.contains(info.name))
        fail("{}: tensor {}: expected one that the other format has a name for, found none", model_.file().path(),
             printable(info.name));
  }

  const TensorInfo* find(NamePointer name, int layer, int expert = 0) const {
    return from_.*name == nullptr ? nullptr : model_.file().find(name_of(from_.*name, layer, expert));
  }

  TensorPlan* same(NamePointer name, int layer, WeightUse use) {
    if (find(name, layer) == nullptr) return nullptr;
    if (to_.*name == nullptr) return nullptr;  // refuse_left_over() says it
    RawTensor raw = model_.file().matrix(name_of(from_.*name, layer));
    plans_.push_back({name_of(to_.*name, layer), raw.shape, {raw}, use});
    TensorPlan& plan = plans_.back();
    // Only the rows of q and k depend on how rotated pairs lie.
    if ((name == &TensorNames::q || name == &TensorNames::k) && interleaved_ != in_file_interleaved()) {
      plan.head_rows = model_.spec.head_dim;
      plan.pair = interleaved_;
    }
    return &plan;
  }

  void norm(NamePointer name, int layer) {
    if (TensorPlan* plan = same(name, layer, WeightUse::Kept)) plan->offset = more_;
  }

  // Folders keep halves; spec.rope.interleaved is how they are read, not how they lie.
  bool in_file_interleaved() const { return model_.folder() == nullptr && model_.spec.rope.interleaved; }

  void shared_gate(int layer) {
    TensorPlan* plan = same(&TensorNames::shared_gate, layer, WeightUse::Kept);
    if (plan == nullptr) return;
    const int64_t d = plan->shape.back();
    plan->shape = to_.by_expert ? std::vector<int64_t>{1, d} : std::vector<int64_t>{d};
  }

  void experts(NamePointer name, int layer) {
    if (find(name, layer) == nullptr) return;
    std::vector<RawTensor> cut;
    const int count = model_.spec.moe.experts;
    if (from_.by_expert) {
      for (int e = 0; e < count; ++e) cut.push_back(model_.file().matrix(name_of(from_.*name, layer, e)));
    } else {
      const RawTensor all = model_.file().tensor(name_of(from_.*name, layer));
      const size_t bytes = all.data.size() / size_t(count);
      for (int e = 0; e < count; ++e)
        cut.push_back({all.name, all.type, {all.shape[1], all.shape[2]}, all.data.subspan(size_t(e) * bytes, bytes)});
    }
    for (const RawTensor& part : cut)
      if (part.type != cut[0].type || !part.scales != !cut[0].scales)
        fail("{}: tensor {}: expected {} as the layer's other experts have, found {}", model_.file().path(), part.name,
             traits(cut[0].type).name, traits(part.type).name);
    if (to_.by_expert) {
      for (int e = 0; e < count; ++e)
        plans_.push_back({name_of(to_.*name, layer, e), cut[size_t(e)].shape, {cut[size_t(e)]}});
    } else {
      const std::vector<int64_t> shape = {count, cut[0].shape[0], cut[0].shape[1]};
      plans_.push_back({name_of(to_.*name, layer), shape, std::move(cut)});
    }
  }

  const Model& model_;
  const TensorNames &from_, &to_;
  bool interleaved_;
  float more_;  // is added to the weights of norms
  std::vector<TensorPlan> plans_;
};

// The row of the source that becomes row `row` of the plan.
int64_t source_row(const TensorPlan& plan, int64_t row) {
  if (plan.head_rows == 0) return row;
  const int64_t n = plan.head_rows, at = row % n, half = n / 2;
  return row - at + (plan.pair ? at / 2 + at % 2 * half : at % half * 2 + at / half);
}

}  // namespace

std::vector<float> TensorPlan::values() const {
  std::vector<float> out;
  for (const RawTensor& part : parts) {
    const auto count = int64_t(part.data.size() / row_bytes(part.type, cols())) * cols();
    out.resize(out.size() + size_t(count));
    dequantize(part.type, part.data.data(), out.data() + out.size() - count, count);
  }
  for (float& v : out) v += offset;
  return out;
}

std::vector<TensorPlan> plan_tensors(const Model& model, const TensorNames& to, bool interleaved, float norm_offset) {
  return Planner(model, to, interleaved, norm_offset).plan();
}

std::vector<TensorPlan> plan_same(const Model& model) {
  const std::string head = model.spec.tied_head ? kGgufNames.embedding : kGgufNames.output;
  std::vector<std::string> routers;
  for (int l = 0; l < model.spec.layers; ++l) routers.push_back(name_of(kGgufNames.router, l));
  std::vector<TensorPlan> plans;
  for (const TensorInfo& info : model.file().tensors()) {
    RawTensor raw = model.file().tensor(info.name);
    const bool kept = raw.shape.size() < 2 || std::find(routers.begin(), routers.end(), raw.name) != routers.end();
    const WeightUse use = kept ? WeightUse::Kept : raw.name == head ? WeightUse::Head : WeightUse::Matrix;
    plans.push_back({raw.name, raw.shape, {raw}, use});
  }
  return plans;
}

TensorMaker::TensorMaker(const TensorSource& source, ThreadPool& pool, std::function<void(uint64_t)> progress,
                         std::function<bool()> interrupted)
    : source_(source),
      pool_(pool),
      progress_(std::move(progress)),
      interrupted_(std::move(interrupted)),
      scratch_(size_t(pool.threads())) {}

Fill TensorMaker::fill(const TensorPlan& plan, DType type) {
  return [this, &plan, type](uint64_t offset, std::span<uint8_t> out) { make(plan, type, offset, out); };
}

// Of a norm, which is one row.
void TensorMaker::make_vector(const TensorPlan& plan, DType type, uint64_t offset, std::span<uint8_t> out) {
  const std::vector<float> values = plan.values();
  std::vector<uint8_t> made(row_bytes(type, plan.cols()));
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  if (const auto value = convert_rows(DType::F32, type, plan.cols(), 1, bytes, made.data(), scratch_[0]))
    refuse(plan, type, *value);
  std::copy_n(made.begin() + int64_t(offset), out.size(), out.begin());
}

void TensorMaker::refuse(const TensorPlan& plan, DType type, float value) const {
  fail("{}: tensor {}: expected values that {} can hold, found {}", source_.path(), printable(plan.parts[0].name),
       traits(type).name, value);
}

void TensorMaker::make(const TensorPlan& plan, DType type, uint64_t offset, std::span<uint8_t> out) {
  if (interrupted_()) throw Interrupted();
  if (plan.offset != 0) return make_vector(plan, type, offset, out);
  const DType from = plan.stored();
  const size_t in_bytes = plan.parts[0].stride(), out_bytes = row_bytes(type, plan.cols());
  const auto first = int64_t(offset / out_bytes), count = int64_t(out.size() / out_bytes);
  const int64_t part_rows = plan.parts[0].data.size() / in_bytes;  // all parts have as many
  constexpr int64_t kRows = 16;                                    // of one piece of work
  const int pieces = int((count + kRows - 1) / kRows);
  std::vector<std::optional<float>> refused(
      static_cast<size_t>(pieces));  // the first is named, whichever thread found it
  pool_.run(pieces, [&](int piece, int thread) {
    const auto refuse_value = [&](std::optional<float> value) {
      if (value) refused[size_t(piece)] = refused[size_t(piece)].value_or(*value);
    };
    std::vector<uint8_t> wide(plan.parts[0].scales ? row_bytes(from, plan.cols()) : 0);
    for (int64_t r = piece * kRows; r < std::min(count, (piece + 1) * kRows); ++r) {
      const int64_t row = source_row(plan, first + r);
      const RawTensor& part = plan.parts[size_t(row / part_rows)];
      const uint8_t* in = part.data.data() + size_t(row % part_rows) * in_bytes;
      if (part.scales) {
        refuse_value(f8_row_to_bf16(part, row % part_rows, wide.data()));
        in = wide.data();
      }
      refuse_value(
          convert_rows(from, type, plan.cols(), 1, in, out.data() + size_t(r) * out_bytes, scratch_[size_t(thread)]));
    }
  });
  const auto found = std::find_if(refused.begin(), refused.end(), [](const auto& value) { return value.has_value(); });
  if (found != refused.end()) refuse(plan, type, **found);
  for (const MappedFile& file : source_.files()) file.release(file.bytes());
  done_ += uint64_t(count) * in_bytes;
  progress_(done_);
}

}  // namespace pop::app
