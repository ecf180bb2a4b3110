#include "apps/bench/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "apps/bench/random_blocks.h"
#include "apps/pop/command.h"
#include "base/error.h"
#include "formats/gguf_writer.h"
#include "tensor/convert_rows.h"

namespace pop::app {
namespace {

constexpr int kRun = 64;          // channels of one importance in a clustered model
constexpr double kOctaves = 6.0;  // between its most and its least important run
constexpr DType kTypes[] = {DType::F32,  DType::F16,  DType::BF16, DType::Q8_0, DType::Q4_0,
                            DType::Q4_1, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

// How important a channel is, beside the others: 1, or in runs of kRun a value spread evenly over the octaves.
double importance(const SyntheticModel& model, int layer, int channel) {
  if (model.selection == SelectionPattern::Random) return 1;
  const uint64_t bits = mix(model.seed * 1000003 + uint64_t(layer) * 8191 + uint64_t(channel / kRun));
  return std::exp2(-kOctaves * double(bits >> 11) * 0x1p-53);
}

// A character as GPT-2's byte alphabet writes one byte: printable ones stand for themselves, the rest from U+0100 on.
std::string byte_text(int byte, int& next) {
  const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  const int code = itself ? byte : 0x100 + next++;
  if (code < 0x80) return {char(code)};
  return {char(0xc0 | code >> 6), char(0x80 | (code & 0x3f))};
}

// A tokenizer that every engine accepts: the 256 bytes, one merge, names for the rest, two control tokens at the end.
void write_tokenizer(GgufWriter& out, int vocab) {
  std::vector<std::string> tokens;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_text(byte, next));
  tokens.emplace_back("th");
  while (int(tokens.size()) < vocab - 2) tokens.push_back(fmt::format("_{}", tokens.size()));
  tokens.emplace_back("<|begin|>");
  tokens.emplace_back("<|end|>");
  std::vector<int32_t> types(size_t(vocab), 1);
  types[size_t(vocab) - 2] = types[size_t(vocab) - 1] = 3;
  out.set_string("tokenizer.ggml.model", "gpt2");
  out.set_string("tokenizer.ggml.pre", "gpt-2");
  out.set_strings("tokenizer.ggml.tokens", tokens);
  out.set_i32s("tokenizer.ggml.token_type", types);
  out.set_strings("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
  out.set_u32("tokenizer.ggml.bos_token_id", uint32_t(vocab - 2));
  out.set_u32("tokenizer.ggml.eos_token_id", uint32_t(vocab - 1));
  out.set_bool("tokenizer.ggml.add_bos_token", false);
}

void write_experts(GgufWriter& out, const Shape& s) {
  const auto key = [&](const char* name) { return fmt::format("{}.{}", s.architecture, name); };
  out.set_u32(key("attention.key_length"), uint32_t(s.head_dim));
  out.set_u32(key("attention.value_length"), uint32_t(s.head_dim));
  out.set_u32(key("expert_count"), uint32_t(s.experts.count));
  out.set_u32(key("expert_used_count"), uint32_t(s.experts.used));
  out.set_u32(key("expert_feed_forward_length"), uint32_t(s.experts.f));
  if (s.experts.shared_f > 0) out.set_u32(key("expert_shared_feed_forward_length"), uint32_t(s.experts.shared_f));
}

void write_metadata(GgufWriter& out, const SyntheticModel& model) {
  const Shape& s = model.shape;
  const auto key = [&](const char* name) { return fmt::format("{}.{}", s.architecture, name); };
  out.set_string("general.architecture", s.architecture);
  out.set_string("general.name", describe(model));
  out.set_u32("general.file_type", gguf_file_type(model.type));
  out.set_u32("general.quantization_version", 2);
  out.set_u32(key("block_count"), uint32_t(model.layers));
  out.set_u32(key("context_length"), uint32_t(s.context));
  out.set_u32(key("embedding_length"), uint32_t(s.d));
  out.set_u32(key("feed_forward_length"), uint32_t(s.f));
  out.set_u32(key("attention.head_count"), uint32_t(s.heads));
  out.set_u32(key("attention.head_count_kv"), uint32_t(s.kv_heads));
  out.set_u32(key("rope.dimension_count"), uint32_t(s.head_dim));
  out.set_u32(key("vocab_size"), uint32_t(s.vocab));
  out.set_f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  out.set_f32(key("rope.freq_base"), float(s.rope_theta));
  if (s.experts.count > 0) write_experts(out, s);
  write_tokenizer(out, s.vocab);
}

class Weights {
 public:
  Weights(GgufWriter& out, const SyntheticModel& model) : out_(out), model_(model) {}

  // factor(row) scales a row's weights.
  void matrix(const std::string& name, int rows, int cols, std::function<double(int)> factor = nullptr) {
    tensor(name, model_.type, {rows, cols}, factor);
  }
  // One behind another; factor(row of its expert).
  void experts(const std::string& name, int rows, int cols, std::function<double(int)> factor = nullptr) {
    tensor(name, model_.type, {model_.shape.experts.count, rows, cols}, factor);
  }
  void floats(const std::string& name, std::vector<int64_t> shape) {
    tensor(name, DType::F32, std::move(shape), nullptr);
  }
  // `layer`: whose importance the entries follow; -1: all 1.
  void norm(const std::string& name, int layer) {
    std::vector<float> values(size_t(model_.shape.d), 1.f);
    for (size_t i = 0; layer >= 0 && i < values.size(); ++i) values[i] = float(importance(model_, layer, int(i)));
    // Of a clustered model the mean square is brought back to 1, as behind any norm.
    double squares = 0;
    for (const float v : values) squares += double(v) * v;
    for (float& v : values) v = float(v / std::sqrt(squares / double(values.size())));
    out_.add_tensor_f32(name, DType::F32, {model_.shape.d}, values);
  }
  void ones(const std::string& name, int count) {
    out_.add_tensor_f32(name, DType::F32, {count}, std::vector<float>(size_t(count), 1.f));
  }

 private:
  // shape: [rows, cols], [experts, rows, cols] or [cols].
  void tensor(const std::string& name, DType wanted, std::vector<int64_t> shape, std::function<double(int)> factor) {
    const auto cols = int(shape.back()), rows = shape.size() > 1 ? int(shape[shape.size() - 2]) : 1;
    const DType type = fitting_type(wanted, cols);
    const uint64_t seed = mix(model_.seed + ++tensors_ * 0x10001), bytes = row_bytes(type, cols);
    const double deviation = 1 / std::sqrt(double(cols));
    out_.add_tensor_filled(name, type, shape, [=](uint64_t offset, std::span<uint8_t> part) {
      for (uint64_t at = 0; at < part.size(); at += bytes) {
        const uint64_t row = (offset + at) / bytes;
        const double scaled = deviation * (factor ? factor(int(row % uint64_t(rows))) : 1);
        random_row(type, cols, scaled, mix(seed + row), part.subspan(at, bytes));
      }
    });
  }

  GgufWriter& out_;
  const SyntheticModel& model_;
  uint64_t tensors_ = 0;
};

using Channel = std::function<double(int)>;

void write_attention(Weights& weights, const Shape& s, int layer, const Channel& channel) {
  const int q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const auto name = [&](const char* part) { return fmt::format("blk.{}.{}", layer, part); };
  weights.norm(name("attn_norm.weight"), layer);
  weights.matrix(name("attn_q.weight"), q, s.d);
  weights.matrix(name("attn_k.weight"), kv, s.d);
  weights.matrix(name("attn_v.weight"), kv, s.d, channel);
  weights.matrix(name("attn_output.weight"), s.d, q);
  if (s.qk_norm)
    for (const char* part : {"attn_q_norm.weight", "attn_k_norm.weight"}) weights.ones(name(part), s.head_dim);
  if (s.qkv_bias)
    for (const auto& [part, rows] : {std::pair{"attn_q.bias", q}, {"attn_k.bias", kv}, {"attn_v.bias", kv}})
      weights.floats(name(part), {rows});
}

// gate, up and down of one FFN; with experts: of all of them.
void write_ffn(Weights& weights, const Shape& s, int layer, const Channel& channel) {
  const auto name = [&](const char* part) { return fmt::format("blk.{}.ffn_{}.weight", layer, part); };
  weights.norm(name("norm"), layer);
  const ExpertShape& e = s.experts;
  if (e.count == 0) {
    weights.matrix(name("gate"), s.f, s.d);
    weights.matrix(name("up"), s.f, s.d, channel);
    weights.matrix(name("down"), s.d, s.f);
    return;
  }
  weights.floats(name("gate_inp"), {e.count, s.d});
  weights.experts(name("gate_exps"), e.f, s.d);
  weights.experts(name("up_exps"), e.f, s.d, channel);
  weights.experts(name("down_exps"), s.d, e.f);
  if (e.shared_f == 0) return;
  weights.floats(name("gate_inp_shexp"), {s.d});
  weights.matrix(name("gate_shexp"), e.shared_f, s.d);
  weights.matrix(name("up_shexp"), e.shared_f, s.d, channel);
  weights.matrix(name("down_shexp"), s.d, e.shared_f);
}

void write_layer(Weights& weights, const SyntheticModel& model, int layer) {
  const Channel channel = [&model, layer](int row) { return importance(model, layer, row); };
  write_attention(weights, model.shape, layer, channel);
  write_ffn(weights, model.shape, layer, channel);
}

}  // namespace

std::vector<DType> synthetic_types() { return {std::begin(kTypes), std::end(kTypes)}; }

DType synthetic_type(const std::string& name) {
  std::vector<std::string> names;
  for (const DType type : kTypes) {
    names.push_back(lower(traits(type).name));
    if (names.back() == lower(name)) return type;
  }
  throw UsageError(fmt::format("--type: expected one of {}; found '{}'", fmt::join(names, ", "), printable(name)));
}

std::string describe(const SyntheticModel& model) {
  return fmt::format("synthetic {} {}, {} layers, seed {}{}", model.shape.name, lower(traits(model.type).name),
                     model.layers, model.seed, model.selection == SelectionPattern::Clustered ? ", clustered" : "");
}

void write_synthetic(const SyntheticModel& asked, const std::string& path) {
  SyntheticModel model = asked;
  if (model.layers == 0) model.layers = model.shape.layers;
  const Shape& s = model.shape;
  GgufWriter out;
  write_metadata(out, model);
  Weights weights(out, model);
  // With experts, embeddings as large as what the blocks add to them: a token's own share decides where the router sends it.
  const double scale = s.experts.count > 0 ? std::sqrt(double(s.d)) : 1;
  weights.matrix("token_embd.weight", s.vocab, s.d, [scale](int) { return scale; });
  weights.norm("output_norm.weight", -1);
  if (!s.tied_head) weights.matrix("output.weight", s.vocab, s.d);
  for (int layer = 0; layer < model.layers; ++layer) write_layer(weights, model, layer);
  out.write(path);
}

}  // namespace pop::app
