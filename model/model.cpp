#include "model/model.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "model/families/family.h"
#include "tensor/layout.h"

namespace pop {
namespace {

std::string layer_name(const char* pattern, int layer) { return fmt::format(fmt::runtime(pattern), layer); }

class Loader {
 public:
  Loader(Model& model, const Family& family, LayoutChoice layout, ThreadPool& pool)
      : model_(model), names_(family.names), layout_(layout), pool_(pool) {}

  void load() {
    const ModelSpec& s = model_.spec;
    refuse_left_over();
    model_.embedding = model_.file.tensor(names_.embedding, {s.vocab, s.d});
    model_.output_norm = vector(names_.output_norm, s.d);
    model_.head = matrix({model_.spec.tied_head ? model_.embedding : model_.file.tensor(names_.output, {s.vocab, s.d})},
                         Layout::Rows);
    for (int l = 0; l < s.layers; ++l) {
      model_.norms.push_back(
          {vector(layer_name(names_.attention_norm, l), s.d), vector(layer_name(names_.ffn_norm, l), s.d)});
      const bool all = layout_ == LayoutChoice::Columns;
      const Layout other = all || layout_ == LayoutChoice::Mixed ? Layout::Columns : Layout::Rows;
      LayerWeights w;
      w.q = matrix({tensor(names_.q, l, s.q_dim(), s.d)}, other);
      w.k = matrix({tensor(names_.k, l, s.kv_dim(), s.d)}, other);
      w.v = matrix({tensor(names_.v, l, s.kv_dim(), s.d)}, other);
      w.o = matrix({tensor(names_.o, l, s.d, s.q_dim())}, other);
      w.gate_up = matrix({tensor(names_.gate, l, s.f, s.d), tensor(names_.up, l, s.f, s.d)},
                         all ? Layout::Columns : Layout::Rows);
      w.down =
          matrix({tensor(names_.down, l, s.d, s.f)}, layout_ == LayoutChoice::Rows ? Layout::Rows : Layout::Columns);
      model_.layers.push_back(w);
    }
  }

 private:
  RawTensor tensor(const char* pattern, int layer, int rows, int cols) {
    return model_.file.tensor(layer_name(pattern, layer), {rows, cols});
  }

  std::vector<float> vector(const std::string& name, int size) {
    const RawTensor raw = model_.file.tensor(name, {size});
    std::vector<float> out(static_cast<size_t>(size));
    dequantize(raw.type, raw.data.data(), out.data(), size);
    for (const float v : out)
      if (!std::isfinite(v)) fail("{}: tensor {}: expected finite numbers, found {}", model_.file.path(), name, v);
    return out;
  }

  // One matrix of the given tensors' rows, interleaved (unit = how many). Values are kept exactly; tensors of different types
  // that must share a unit are widened to float32, the one type that holds them all.
  Matrix matrix(const std::vector<RawTensor>& parts, Layout wanted) {
    Matrix m;
    m.type = parts[0].type;
    for (const RawTensor& part : parts)
      if (part.type != m.type) m.type = DType::F32;
    m.layout = has_columns_layout(m.type) ? wanted : Layout::Rows;
    m.unit = int(parts.size());
    m.rows = int(parts[0].shape[0]) * m.unit;
    m.cols = int(parts[0].shape[1]);
    AlignedBuffer& buffer = model_.memory.emplace_back(matrix_bytes(m));
    m.data = buffer.data();
    // Rows of one unit or of one group of 64 may share bytes in Columns: a piece is 64 file rows of every part.
    const int file_rows = m.rows / m.unit, pieces = (file_rows + 63) / 64;
    pool_.run(pieces, [&](int piece, int) {
      std::vector<float> wide;
      for (int r = piece * 64; r < std::min(file_rows, piece * 64 + 64); ++r)
        for (int u = 0; u < m.unit; ++u) {
          const RawTensor& part = parts[size_t(u)];
          const size_t stride = row_bytes(part.type, m.cols);
          const uint8_t* row = part.data.data() + size_t(r) * stride;
          if (part.type != m.type) {
            wide.resize(size_t(m.cols));
            dequantize(part.type, row, wide.data(), m.cols);
            row = reinterpret_cast<const uint8_t*>(wide.data());
          }
          write_row(m, r * m.unit + u, row, buffer.data());
        }
    });
    return m;
  }

  // A tensor nobody asked for (a bias, an expert, a second norm) means that this is not the model we would run.
  void refuse_left_over() {
    std::set<std::string, std::less<>> known{names_.embedding, names_.output_norm, names_.output};
    for (int l = 0; l < model_.spec.layers; ++l)
      for (const char* pattern : {names_.attention_norm, names_.q, names_.k, names_.v, names_.o, names_.ffn_norm,
                                  names_.gate, names_.up, names_.down})
        known.insert(layer_name(pattern, l));
    for (const char* pattern : names_.ignored)
      for (int l = 0; l < model_.spec.layers; ++l) known.insert(layer_name(pattern, l));
    for (const GgufTensorInfo& info : model_.file.tensors())
      if (known.find(info.name) == known.end())
        fail("{}: tensor {}: not part of a {} model this engine runs", model_.file.path(), printable(info.name),
             model_.spec.architecture);
  }

  Model& model_;
  const TensorNames& names_;
  LayoutChoice layout_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<Model> Model::load(const std::string& path, LayoutChoice layout, ThreadPool& pool) {
  auto model = std::make_unique<Model>(path);
  const Family& family = find_family(model->file);
  model->spec = family.spec(model->file);
  const GgufTensorInfo* embedding = model->file.find(family.names.embedding);
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] > (1 << 24))
    fail("{}: tensor {}: expected a matrix of at most {} token rows, found {}", path, family.names.embedding, 1 << 24,
         embedding == nullptr ? "none" : "another shape");
  model->spec.vocab = int(embedding->shape[0]);
  model->spec.tied_head = model->file.find(family.names.output) == nullptr;
  model->rope = RopeTable(model->spec.rope);
  model->attention_scale = 1.f / std::sqrt(float(model->spec.head_dim));
  Loader(*model, family, layout, pool).load();
  return model;
}

void Model::embed(int32_t token, float* out) const {
  const size_t stride = row_bytes(embedding.type, spec.d);
  dequantize(embedding.type, embedding.data.data() + size_t(token) * stride, out, spec.d);
}

uint64_t Model::weight_bytes() const {
  uint64_t total = 0;
  for (const AlignedBuffer& buffer : memory) total += buffer.size();
  return total;
}

}  // namespace pop
