#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.h"
#include "model/families/family.h"
#include "model/stored_type.h"
#include "model/weight_cache.h"
#include "tensor/layout.h"

namespace pop {
namespace {

// Of a name without a place for the expert, or for the layer, it is the same for all of them.
std::string tensor_name(const char* pattern, int layer, int expert = 0) {
  return fmt::format(fmt::runtime(pattern), layer, expert);
}

class Loader {
 public:
  Loader(Model& model, const TensorNames& names, const LoadOptions& options)
      : model_(model), names_(names), options_(options) {}

  // Looks at every tensor, so that whatever is wrong with the file is said before it is read.
  void check() {
    plan();
    refuse_other_head();
    refuse_left_over();
  }

  void load(ThreadPool& pool) {
    check();
    fetch_weights(pool);
    model_.weights.guard_gaps();
    for (const auto& [target, index] : targets_) *target = model_.weights[index];
  }

 private:
  void fetch_weights(ThreadPool& pool) {
    if (options_.cache.empty()) return model_.weights.fill(model_.file(), pool, options_.progress);
    const WeightCache cache(options_.cache, model_.file(), model_.weights);
    if (auto found = cache.open(pool, options_.progress)) {
      model_.weights.use(std::move(found->file), found->offset);
      model_.from_cache = true;
      return;
    }
    model_.weights.fill(model_.file(), pool, options_.progress);
    try {
      cache.write(model_.weights.block(), pool);
    } catch (const Error& error) {
      model_.warnings.push_back(fmt::format("--cache: {}; going on without", error.what()));
    }
  }

  void plan() {
    const ModelSpec& s = model_.spec;
    const bool all = options_.layout == LayoutChoice::Columns;
    const Layout other = all || options_.layout == LayoutChoice::Mixed ? Layout::Columns : Layout::Rows;
    const Layout down = options_.layout == LayoutChoice::Rows ? Layout::Rows : Layout::Columns;
    model_.embedding = tensor(names_.embedding, s.vocab, s.d);
    model_.output_norm = norm(names_.output_norm, s.d);
    add(model_.head, {s.tied_head ? model_.embedding : matrix(names_.output, s.vocab, s.d)},
        {.type = wanted(WeightUse::Head, s.d)});
    if (!s.tied_head && options_.type) add(model_.embedding_rows, {model_.embedding}, wish(Layout::Rows, s.d));
    model_.layers.resize(size_t(s.layers));
    for (layer_ = 0; layer_ < s.layers; ++layer_) {
      model_.vectors.push_back(vectors());
      LayerWeights& w = model_.layers[size_t(layer_)];
      const std::vector<RawTensor> qkv =
          parts({names_.q, names_.k, names_.v}, names_.qkv, {s.q_dim(), s.kv_dim(), s.kv_dim()});
      const int paired = s.rope.interleaved && model_.folder() != nullptr ? s.head_dim : 0;
      add(w.q, {qkv[0]}, wish(other, s.d, paired));
      add(w.k, {qkv[1]}, wish(other, s.d, paired));
      add(w.v, {qkv[2]}, wish(other, s.d));
      add(w.o, {matrix(names_.o, s.d, s.q_dim())}, wish(other, s.q_dim()));
      add_ffns(w, all ? Layout::Columns : Layout::Rows, down);
    }
    model_.ffns = ffns_of(model_.layers);
    for (size_t i = 0; i < model_.ffns.size(); ++i)
      if (i == 0 || model_.ffns[i]->layer != model_.ffns[i - 1]->layer) model_.first_ffn.push_back(int(i));
  }

  LayerVectors vectors() {
    const ModelSpec& s = model_.spec;
    LayerVectors v{.attention_norm = norm(names_.attention_norm, s.d),
                   .ffn_norm = norm(s.post_norms ? names_.pre_ffn_norm : names_.ffn_norm, s.d)};
    if (s.post_norms)
      v.post_attention_norm = norm(names_.post_attention_norm, s.d), v.post_ffn_norm = norm(names_.post_ffn_norm, s.d);
    if (s.qkv_bias)
      for (const auto& [name, size] :
           {std::pair{names_.q_bias, s.q_dim()}, {names_.k_bias, s.kv_dim()}, {names_.v_bias, s.kv_dim()}}) {
        const std::vector<float> bias = vector(name, size);
        v.qkv_bias.insert(v.qkv_bias.end(), bias.begin(), bias.end());
      }
    if (s.has_experts(layer_) && s.moe.shared_f > 0)
      v.shared_gate = values(model_.file().tensor(
          name_of(names_.shared_gate), names_.by_expert ? std::vector<int64_t>{1, s.d} : std::vector<int64_t>{s.d}));
    const bool whole = s.qk_norm == QkNorm::Whole;
    if (s.qk_norm != QkNorm::None)
      v.q_norm = norm(names_.q_norm, whole ? s.q_dim() : s.head_dim),
      v.k_norm = norm(names_.k_norm, whole ? s.kv_dim() : s.head_dim);
    return v;
  }

  // The FFN of the layer at hand, or its router and experts.
  void add_ffns(LayerWeights& w, Layout gate_up, Layout down) {
    const ModelSpec& s = model_.spec;
    // Gate, up and down in braces: looked for in this order by every compiler, so that the first one wrong is named.
    const auto add_one = [&](FfnWeights& ffn, std::array<RawTensor, 3> parts) {
      ffn.layer = layer_;
      const int64_t d = parts[0].shape[1], f = parts[2].shape[1];
      add(ffn.gate_up, {std::move(parts[0]), std::move(parts[1])}, wish(gate_up, d));
      add(ffn.down, {std::move(parts[2])}, wish(down, f));
    };
    if (!s.has_experts(layer_)) {
      w.ffns.resize(1);
      const std::vector<RawTensor> gate_up = parts({names_.gate, names_.up}, names_.fused_gate_up, {s.f, s.f});
      return add_one(w.ffns[0], {gate_up[0], gate_up[1], matrix(names_.down, s.d, s.f)});
    }
    const MoeSpec& m = s.moe;
    add(w.router, {tensor(names_.router, m.experts, s.d)}, {.type = wanted(WeightUse::Kept, s.d)});
    w.ffns.resize(size_t(m.experts) + (m.shared_f > 0 ? 1 : 0));
    const std::vector<RawTensor> gates = experts(names_.expert_gate, m.f, s.d),
                                 ups = experts(names_.expert_up, m.f, s.d),
                                 downs = experts(names_.expert_down, s.d, m.f);
    for (int e = 0; e < m.experts; ++e) {
      FfnWeights& ffn = w.ffns[size_t(e)];
      ffn.expert = e;
      ffn.use = double(m.used) / m.experts;
      add_one(ffn, {gates[size_t(e)], ups[size_t(e)], downs[size_t(e)]});
    }
    if (m.shared_f == 0) return;
    w.shared_gate = {.type = DType::F32, .rows = 1, .cols = s.d};
    w.shared_gate.data = reinterpret_cast<const uint8_t*>(model_.vectors[size_t(layer_)].shared_gate.data());
    add_one(w.ffns.back(), {matrix(names_.shared_gate_proj, m.shared_f, s.d), matrix(names_.shared_up, m.shared_f, s.d),
                            matrix(names_.shared_down, s.d, m.shared_f)});
  }

  // Matrices of these rows over d columns, by their names, or one after another in one tensor.
  std::vector<RawTensor> parts(const std::vector<const char*>& patterns, const char* fused,
                               const std::vector<int>& rows) {
    const int d = model_.spec.d;
    std::vector<RawTensor> cut;
    if (!model_.spec.fused) {
      for (size_t i = 0; i < rows.size(); ++i) cut.push_back(matrix(patterns[i], rows[i], d));
      return cut;
    }
    const RawTensor all = tensor(fused, std::accumulate(rows.begin(), rows.end(), 0), d);
    size_t at = 0;
    for (const int count : rows) {
      const size_t bytes = size_t(count) * row_bytes(all.type, d);
      cut.push_back({all.name, all.type, {count, d}, all.data.subspan(at, bytes)});
      at += bytes;
    }
    return cut;
  }

  // A tensor for each, or one, [experts, rows, cols], cut.
  std::vector<RawTensor> experts(const char* pattern, int rows, int cols) {
    const int count = model_.spec.moe.experts;
    std::vector<RawTensor> cut;
    if (names_.by_expert) {
      for (int e = 0; e < count; ++e) cut.push_back(model_.file().matrix(name_of(pattern, e), {rows, cols}));
      return cut;
    }
    const RawTensor all = model_.file().tensor(name_of(pattern), {count, rows, cols});
    const size_t bytes = all.data.size() / size_t(count);
    for (int e = 0; e < count; ++e)
      cut.push_back({all.name, all.type, {rows, cols}, all.data.subspan(size_t(e) * bytes, bytes)});
    return cut;
  }

  void add(Matrix& target, std::vector<RawTensor> parts, const MatrixWish& wanted) {
    targets_.emplace_back(&target, model_.weights.add(std::move(parts), wanted));
  }
  std::optional<DType> wanted(WeightUse use, int64_t cols) const {
    return options_.type ? std::optional(stored_type(*options_.type, use, cols)) : std::nullopt;
  }
  MatrixWish wish(Layout layout, int64_t cols, int pair_halves_of = 0) const {
    return {layout, wanted(WeightUse::Matrix, cols), pair_halves_of};
  }

  // Of the layer at hand, where the name has a place for it.
  std::string name_of(const char* pattern, int expert = 0) {
    return *known_.insert(tensor_name(pattern, layer_, expert)).first;
  }

  RawTensor tensor(const char* pattern, int rows, int cols) {
    return model_.file().tensor(name_of(pattern), {rows, cols});
  }

  // One that becomes a matrix of Weights, which may be F8_E4M3.
  RawTensor matrix(const char* pattern, int rows, int cols) {
    return model_.file().matrix(name_of(pattern), {rows, cols});
  }

  std::vector<float> vector(const char* pattern, int size) {
    return values(model_.file().tensor(name_of(pattern), {size}));
  }

  std::vector<float> values(const RawTensor& raw) {
    std::vector<float> out(size_t(raw.shape.back()));
    dequantize(raw.type, raw.data.data(), out.data(), raw.shape.back());
    for (const float v : out)
      if (!std::isfinite(v))
        fail("{}: tensor {}: expected finite numbers, found {}", model_.file().path(), raw.name, v);
    return out;
  }

  std::vector<float> norm(const char* pattern, int size) {
    std::vector<float> weights = vector(pattern, size);
    for (float& w : weights) w += model_.spec.norm_offset;
    return weights;
  }

  // Beside a tied head a folder may have a copy of the embedding, of whoever saved both.
  void refuse_other_head() {
    if (!model_.spec.tied_head || model_.file().find(names_.output) == nullptr) return;
    const RawTensor copy = tensor(names_.output, model_.spec.vocab, model_.spec.d);
    const std::span<const uint8_t> a = copy.data, b = model_.embedding.data;
    bool same = copy.type == model_.embedding.type;
    constexpr size_t kStep = size_t(16) << 20;  // pages are given back as they are compared
    for (size_t at = 0; same && at < a.size(); at += kStep) {
      const size_t bytes = std::min(kStep, a.size() - at);
      same = std::memcmp(a.data() + at, b.data() + at, bytes) == 0;
      for (const MappedFile& file : model_.file().files())
        file.release(a.subspan(at, bytes)), file.release(b.subspan(at, bytes));
    }
    if (!same)
      fail("{}: tensor {}: expected a copy of {}, as tie_word_embeddings is true, found another matrix",
           model_.file().path(), names_.output, names_.embedding);
  }

  // A tensor nobody asked for (a bias, an expert, a second norm) means that this is not the model we would run.
  void refuse_left_over() {
    for (const char* pattern : names_.ignored)
      for (int l = 0; l < model_.spec.layers; ++l) known_.insert(tensor_name(pattern, l));
    for (const TensorInfo& info : model_.file().tensors())
      if (known_.find(info.name) == known_.end())
        fail("{}: tensor {}: not part of a {} model this engine runs", model_.file().path(), printable(info.name),
             model_.spec.architecture);
  }

  Model& model_;
  const TensorNames& names_;
  const LoadOptions& options_;
  int layer_ = 0;
  std::set<std::string, std::less<>> known_;      // tensors that the plan asked for
  std::vector<std::pair<Matrix*, int>> targets_;  // where the planned matrices go
};

// The rows of the embedding; a file that says their number must say the same.
int vocabulary(const GgufFile& file, const ModelSpec& spec) {
  const TensorInfo* embedding = file.find(kGgufNames.embedding);
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] > (1 << 24))
    fail("{}: tensor {}: expected a matrix of at most {} token rows, found {}", file.path(), kGgufNames.embedding,
         1 << 24, embedding == nullptr ? "none" : "another shape");
  const std::string key = spec.architecture + ".vocab_size";
  if (const auto said = file.find_u64(key); said && *said != uint64_t(embedding->shape[0]))
    fail("{}: key {}: expected {}, the rows of tensor {}, found {}", file.path(), key, embedding->shape[0],
         kGgufNames.embedding, *said);
  return int(embedding->shape[0]);
}

}  // namespace

Model::Model(const std::string& path)
    : opened(is_folder(path) ? decltype(opened)(HfFolder(path)) : decltype(opened)(GgufFile(path))) {}

std::unique_ptr<Model> Model::open(const std::string& path) {
  auto model = std::make_unique<Model>(path);
  ModelSpec& spec = model->spec;
  if (const HfFolder* folder = model->folder()) {
    spec = read_spec(folder->config(), find_family(folder->config()));
    spec.name = std::filesystem::path(folder->path()).filename().string();
    spec.rope.interleaved = gguf_family(spec, path).interleaved_in_gguf;  // rows are brought into GGUF's order
  } else {
    const GgufFile* file = model->gguf();
    spec = read_spec(*file, find_family(*file));
    spec.vocab = vocabulary(*file, spec);
    spec.tied_head = file->find(kGgufNames.output) == nullptr;
  }
  model->set_context(0);
  return model;
}

const TensorNames& Model::names() const {
  return gguf() != nullptr ? kGgufNames : *find_family(folder()->config()).hf_names;
}

std::unique_ptr<Model> Model::check(const std::string& path) {
  std::unique_ptr<Model> model = open(path);
  Loader(*model, model->names(), {}).check();
  return model;
}

std::unique_ptr<Model> Model::load(const std::string& path, const LoadOptions& options, ThreadPool& pool) {
  std::unique_ptr<Model> model = open(path);
  Loader(*model, model->names(), options).load(pool);
  return model;
}

void Model::embed(int32_t token, float* out) const {
  if (spec.tied_head) {
    read_row(head, token, out);
  } else if (embedding_rows.data != nullptr) {
    read_row(embedding_rows, token, out);
  } else {
    const size_t stride = row_bytes(embedding.type, spec.d);
    dequantize(embedding.type, embedding.data.data() + size_t(token) * stride, out, spec.d);
  }
  if (spec.embedding_scale != 1.f)
    for (int i = 0; i < spec.d; ++i) out[i] *= spec.embedding_scale;
}

void Model::release_embedding() const {
  if (spec.tied_head) return;
  for (const MappedFile& part : file().files()) part.release(embedding.data);
}

}  // namespace pop
