#include "formats/scaled_f8.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/float16.h"
#include "formats/named.h"
#include "tensor/float8.h"

namespace pop {
namespace {

constexpr int64_t kMostBlock = 1 << 20;

constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (size_t b = 0; b < 256; ++b) values[b] = f8_e4m3_to_f32(uint8_t(b));
  return values;
}();

void expect_text(const JsonObject& fields, const char* key, std::initializer_list<std::string_view> known) {
  const auto found = fields.find_string(key);
  if (!found || std::find(known.begin(), known.end(), *found) != known.end()) return;
  fields.refuse(key, fmt::format("{}", fmt::join(known, " or ")));
}

// transformers' "fp8": blocks, or one scale per matrix.
F8Rule read_fp8(const JsonObject& fields) {
  expect_text(fields, "fmt", {"e4m3"});
  expect_text(fields, "activation_scheme", {"dynamic"});
  const std::vector<int64_t> block = fields.integers("weight_block_size", 1, kMostBlock);
  if (block.empty()) return {};
  if (block.size() != 2) fields.refuse("weight_block_size", "two integers, rows and columns of a block");
  return {block[0], block[1]};
}

// "compressed-tensors": groups of layers, all of one kind here. What they leave alone is of another type, which its tensors say.
F8Rule read_compressed(const JsonObject& fields) {
  expect_text(fields, "format", {"float-quantized", "naive-quantized"});
  const auto groups = fields.find_object("config_groups");
  if (!groups || groups->all().empty()) fields.refuse("config_groups", "an object of groups");
  for (const auto& item : groups->all().items()) {
    const auto group = groups->find_object(item.key());
    const auto weights = group ? group->find_object("weights") : std::nullopt;
    if (!weights) groups->refuse(item.key(), "an object with weights");
    if (!weights->find_string("type")) weights->refuse("type", "float");
    expect_text(*weights, "type", {"float"});
    if (weights->find_int("num_bits", 1, 64) != 8) weights->refuse("num_bits", "8");
    if (!weights->find_string("strategy")) weights->refuse("strategy", "tensor or channel");
    expect_text(*weights, "strategy", {"tensor", "channel"});
    if (!weights->flag("symmetric", true)) weights->refuse("symmetric", "true");
  }
  return {};
}

int64_t blocks(int64_t elements, int64_t size) { return elements / size + (elements % size != 0 ? 1 : 0); }

F8Scales read_scales(const TensorInfo& matrix, const TensorInfo& scale, const F8Rule& rule, const std::string& path) {
  const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
  F8Scales scales{.block_rows = rule.block_rows, .block_cols = rule.block_cols, .across = 1, .values = {}};
  std::vector<std::vector<int64_t>> expected;
  if (rule.block_rows > 0) {
    scales.across = blocks(cols, rule.block_cols);
    expected = {{blocks(rows, rule.block_rows), scales.across}};
  } else {
    const bool by_row = scale.shape.size() == 2;
    scales.block_rows = by_row ? 1 : std::max<int64_t>(1, rows), scales.block_cols = std::max<int64_t>(1, cols);
    expected = {{}, {1}, {rows, 1}};
  }
  if (std::find(expected.begin(), expected.end(), scale.shape) == expected.end()) {
    std::string shapes;
    for (const auto& shape : expected) shapes += (shapes.empty() ? "" : " or ") + shape_text(shape);
    fail("{}: tensor '{}': expected {}, scales for {}, found {}", path, printable(scale.name), shapes,
         shape_text(matrix.shape), shape_text(scale.shape));
  }
  if (!scale.type)
    fail("{}: tensor '{}': expected scales in F32, F16 or BF16, found {}", path, printable(scale.name),
         scale.type_text);
  const auto count = int64_t(scale.bytes) / traits(*scale.type).block_bytes;
  scales.values.resize(size_t(count));
  dequantize(*scale.type, scale.data, scales.values.data(), count);
  for (const float v : scales.values)
    if (!std::isfinite(v) || v < 0)
      fail("{}: tensor '{}': expected finite scales >= 0, found {}", path, printable(scale.name), v);
  return scales;
}

}  // namespace

std::optional<F8Rule> read_f8_rule(const JsonObject& config) {
  if (config.find_object("compression_config")) config.refuse("compression_config", "quantization_config in its place");
  const auto fields = config.find_object("quantization_config");
  if (!fields) return std::nullopt;
  const std::string method = fields->find_string("quant_method").value_or("");
  if (method == "fp8") return read_fp8(*fields);
  if (method == "compressed-tensors") return read_compressed(*fields);
  fields->refuse("quant_method", "fp8 or compressed-tensors (weights in F8_E4M3), or no quantization_config");
}

void attach_scales(std::vector<TensorInfo>& tensors, const F8Rule& rule, const std::string& path) {
  const std::vector<size_t> order = name_order(tensors, "tensor", path);
  std::vector<bool> taken(tensors.size());
  for (TensorInfo& info : tensors) {
    if (info.type_text != "F8_E4M3" || info.shape.size() != 2) continue;  // refused where it is asked for
    const TensorInfo* const inverse = find_named(tensors, order, info.name + "_scale_inv");
    const TensorInfo* const plain = find_named(tensors, order, info.name + "_scale");
    if ((inverse == nullptr) == (plain == nullptr))
      fail("{}: tensor '{}': expected its scales as a tensor of that name and _scale_inv or _scale, found {}", path,
           printable(info.name), plain == nullptr ? "none" : "both");
    const TensorInfo& scale = inverse != nullptr ? *inverse : *plain;
    info.scales = std::make_shared<const F8Scales>(read_scales(info, scale, rule, path));
    taken[size_t(&scale - tensors.data())] = true;
  }
  std::vector<TensorInfo> left;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!taken[i]) left.push_back(std::move(tensors[i]));
  tensors = std::move(left);
}

std::optional<float> f8_row_to_bf16(const RawTensor& matrix, int64_t row, uint8_t* out) {
  const F8Scales& scales = *matrix.scales;
  const int64_t cols = matrix.shape[1];
  const uint8_t* const in = matrix.data.data() + size_t(row * cols);
  const float* const scale = scales.values.data() + row / scales.block_rows * scales.across;
  std::optional<float> refused;
  for (int64_t from = 0, block = 0; from < cols; from += scales.block_cols, ++block)
    for (int64_t c = from; c < std::min(cols, from + scales.block_cols); ++c) {
      const uint16_t value = f32_to_bf16(kValues[in[c]] * scale[block]);
      if ((value & 0x7f80u) == 0x7f80u) refused = bf16_to_f32(value);
      out[2 * c] = uint8_t(value), out[2 * c + 1] = uint8_t(value >> 8);
    }
  return refused;
}

}  // namespace pop
