// The form of a calibration file:
//   "POPCALIB", version u32, bytes of the whole file u64
//   model: sha256 (64 characters), layers, d, q_dim, number of FFNs u32; per FFN layer, f, routed u32
//   source: length u32 and characters; sequences, tokens u64; positions u32
//   per FFN: sequences, tokens u64; squares, mean, fluctuation f64 [f]; history f64 [positions][f]
//   per layer of a model without experts: histograms u64 [4 sites and the gates][1024]; allocation: steps u32, site of
//   each u8
//   repaired: 1 or 0 u32; if 1: ffn_sparsity f64, search: length u32 and characters; per FFN kept u32, their numbers u32, and if
//   not all are kept down bf16 [d][kept]
//   XXH64 of everything before, u64
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "base/hash.h"
#include "prune/calibration.h"

namespace pop {
namespace {

constexpr char kMagic[8] = {'P', 'O', 'P', 'C', 'A', 'L', 'I', 'B'};
constexpr uint32_t kVersion = 3;
constexpr size_t kSizeAt = sizeof kMagic + sizeof kVersion;  // where the file's size stands
constexpr uint32_t kMaxSteps = 1024;
constexpr size_t kStart = kSizeAt + 8, kChecksum = 8, kHash = 64, kMaxSource = 4096;

class Writer {
 public:
  void put(const void* data, size_t bytes) {
    const size_t at = out_.size();
    out_.resize(at + bytes);
    if (bytes > 0) std::memcpy(out_.data() + at, data, bytes);
  }
  template <class T>
  void number(T value) {
    put(&value, sizeof value);
  }
  void numbers(const std::vector<double>& values) { put(values.data(), values.size() * sizeof(double)); }
  void histogram(const ScoreHistogram& counts) {
    for (int b = 0; b < ScoreHistogram::kBins; ++b) number(counts.count(b));
  }
  std::vector<uint8_t> close() {
    const uint64_t size = out_.size() + kChecksum;
    std::memcpy(out_.data() + kSizeAt, &size, sizeof size);
    number(checksum(out_));
    return std::move(out_);
  }

 private:
  std::vector<uint8_t> out_;
};

class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}
  void get(void* out, size_t bytes) {
    if (bytes > bytes_.size() - at_) fail("{}: the calibration file ends too early", name_);
    if (bytes > 0) std::memcpy(out, bytes_.data() + at_, bytes);
    at_ += bytes;
  }
  template <class T>
  T number() {
    T value;
    get(&value, sizeof value);
    return value;
  }
  std::string text(size_t bytes) {
    std::string value(bytes, '\0');
    get(value.data(), bytes);
    return value;
  }
  // `what` of `place`; squares are not below 0.
  std::vector<double> numbers(size_t count, bool squares, const char* what, const std::string& place) {
    if (count > (bytes_.size() - at_) / sizeof(double)) fail("{}: the calibration file ends too early", name_);
    std::vector<double> values(count);
    get(values.data(), count * sizeof(double));
    for (const double v : values) {
      if (!std::isfinite(v) || (squares && v < 0))
        fail("{}: {}, {}: expected finite numbers{}, found {}", name_, place, what, squares ? " from 0 on" : "", v);
    }
    return values;
  }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const uint8_t> bytes_;
  const std::string& name_;
  size_t at_ = 0;
};

// What must hold before anything is believed.
void check_whole(std::span<const uint8_t> bytes, const std::string& name) {
  if (bytes.size() < kStart + kChecksum || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    fail("{}: expected a calibration file (pop calibrate), found something else", name);
  Reader reader(bytes, name);
  reader.text(sizeof kMagic);
  const auto version = reader.number<uint32_t>();
  if (version != kVersion) fail("{}: expected a calibration file of version {}, found {}", name, kVersion, version);
  const auto size = reader.number<uint64_t>();
  if (size != bytes.size()) fail("{}: expected {} bytes, found {}", name, size, bytes.size());
  uint64_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - kChecksum, kChecksum);
  if (checksum(bytes.first(bytes.size() - kChecksum)) != stored)
    fail("{}: the calibration file is damaged, its checksum does not match", name);
}

int size_of(Reader& reader) { return static_cast<int>(std::min<uint32_t>(reader.number<uint32_t>(), INT32_MAX)); }

CalibrationModel read_model(Reader& reader, const std::string& name, const CalibrationModel& expected) {
  CalibrationModel model;
  model.sha256 = reader.text(kHash);
  if (model.sha256 != expected.sha256)
    fail("{}: calibrated on another model: expected sha256 {}, found {}; make it anew with pop calibrate", name,
         expected.sha256, printable(model.sha256));
  for (int* size : {&model.layers, &model.d, &model.q_dim}) *size = size_of(reader);
  const int ffns = size_of(reader);
  if (model.layers != expected.layers || model.d != expected.d || model.q_dim != expected.q_dim ||
      static_cast<size_t>(ffns) != expected.ffns.size())
    fail("{}: expected {} layers, d {}, q_dim {}, {} FFNs, found {}, {}, {}, {}", name, expected.layers, expected.d,
         expected.q_dim, expected.ffns.size(), model.layers, model.d, model.q_dim, ffns);
  for (const FfnShape& shape : expected.ffns) {
    FfnShape& found = model.ffns.emplace_back();
    found.layer = size_of(reader), found.f = size_of(reader), found.routed = reader.number<uint32_t>() != 0;
    if (found != shape)
      fail("{}: FFN {}: expected f {} of layer {}, found f {} of layer {}", name, model.ffns.size() - 1, shape.f,
           shape.layer, found.f, found.layer);
  }
  return model;
}

void read_ffn(Reader& reader, const Calibration& of, size_t index, CalibrationFfn& ffn, const std::string& name) {
  const FfnShape& shape = of.model.ffns[index];
  const std::string place = fmt::format("FFN {} of layer {}", index, shape.layer);
  ffn.sequences = reader.number<uint64_t>();
  ffn.tokens = reader.number<uint64_t>();
  const bool all = ffn.sequences == of.sequences && ffn.tokens == of.tokens;
  const bool some = ffn.sequences <= of.sequences && ffn.tokens <= of.tokens && ffn.sequences <= ffn.tokens &&
                    (ffn.sequences > 0) == (ffn.tokens > 0);
  if (!(shape.routed ? some : all))
    fail("{}: {}: expected {} {} sequences of {} tokens, found {} of {}", name, place, shape.routed ? "at most" : "all",
         of.sequences, of.tokens, ffn.sequences, ffn.tokens);
  const auto f = static_cast<size_t>(shape.f);
  ffn.squares = reader.numbers(f, true, "squares", place);
  ffn.mean = reader.numbers(f, false, "mean", place);
  ffn.fluctuation = reader.numbers(f, true, "fluctuation", place);
  ffn.history = reader.numbers(static_cast<size_t>(of.positions) * f, true, "history", place);
}

// How often each size occurred, `all` times together.
void read_histogram(Reader& reader, uint64_t all, const std::string& name, const std::string& what,
                    ScoreHistogram& histogram) {
  uint64_t left = all;
  for (int b = 0; b < ScoreHistogram::kBins; ++b) {
    const auto count = reader.number<uint64_t>();
    if (count > left || (b == ScoreHistogram::kBins - 1 && count != left))
      fail("{}: {}: expected {} inputs, found {}", name, what, all, count > left ? "more" : "fewer");
    left -= count;
    histogram.set(b, count);
  }
}

void read_layer(Reader& reader, const Calibration& of, size_t index, CalibrationLayer& layer, const std::string& name) {
  const int f = of.model.ffns[index].f, widths[kSites] = {of.model.d, of.model.q_dim, of.model.d, f};
  for (int site = 0; site < kSites; ++site) {
    read_histogram(reader, of.tokens * static_cast<uint64_t>(widths[site]), name,
                   fmt::format("layer {}, histogram of {}", index, site_name(Site(site))), layer.inputs[site]);
  }
  read_histogram(reader, of.tokens * static_cast<uint64_t>(f), name, fmt::format("layer {}, histogram of gates", index),
                 layer.gates);
  const auto steps = reader.number<uint32_t>();
  if (steps > kMaxSteps)
    fail("{}: layer {}: expected at most {} steps of allocation, found {}", name, index, kMaxSteps, steps);
  layer.allocation.resize(steps);
  reader.get(layer.allocation.data(), steps);
  for (const uint8_t site : layer.allocation) {
    if (site >= kSites)
      fail("{}: layer {}, allocation: expected sites from 0 to {}, found {}", name, index, kSites - 1, site);
  }
}

std::string read_text(Reader& reader, const std::string& name, const char* what) {
  const auto length = reader.number<uint32_t>();
  if (length > kMaxSource) fail("{}: {}: expected at most {} characters, found {}", name, what, kMaxSource, length);
  return reader.text(length);
}

RepairedFfn read_repaired_ffn(Reader& reader, const CalibrationModel& model, size_t index, const std::string& name) {
  const int f = model.ffns[index].f;
  const auto count = reader.number<uint32_t>();
  if (count > static_cast<uint32_t>(f))
    fail("{}: repaired, FFN {}: expected at most {} kept channels, found {}", name, index, f, count);
  RepairedFfn ffn;
  for (uint32_t i = 0; i < count; ++i) {
    const auto channel = reader.number<uint32_t>();
    if (channel >= static_cast<uint32_t>(f) || (i > 0 && channel <= static_cast<uint32_t>(ffn.kept.back())))
      fail("{}: repaired, FFN {}: expected ascending channels below {}, found {}", name, index, f, channel);
    ffn.kept.push_back(static_cast<int32_t>(channel));
  }
  if (count == static_cast<uint32_t>(f)) return ffn;
  const size_t values = static_cast<size_t>(model.d) * count;
  if (values > reader.left() / sizeof(uint16_t)) fail("{}: the calibration file ends too early", name);
  ffn.down.resize(values);
  reader.get(ffn.down.data(), values * sizeof(uint16_t));
  for (const uint16_t v : ffn.down) {
    if ((v & 0x7f80u) == 0x7f80u)
      fail("{}: repaired, FFN {}: expected finite weights, found {}", name, index, bf16_to_f32(v));
  }
  return ffn;
}

std::optional<RepairedModel> read_repaired(Reader& reader, const CalibrationModel& model, const std::string& name) {
  const auto present = reader.number<uint32_t>();
  if (present > 1) fail("{}: repaired: expected 0 or 1, found {}", name, present);
  if (present == 0) return std::nullopt;
  RepairedModel repaired;
  repaired.ffn_sparsity = reader.number<double>();
  if (!(repaired.ffn_sparsity >= 0 && repaired.ffn_sparsity <= 1))
    fail("{}: repaired: expected an FFN sparsity from 0 to 1, found {}", name, repaired.ffn_sparsity);
  repaired.search = printable(read_text(reader, name, "repaired, search"), kMaxSource);
  for (size_t i = 0; i < model.ffns.size(); ++i) repaired.ffns.push_back(read_repaired_ffn(reader, model, i, name));
  size_t kept = 0, all = 0;
  for (size_t i = 0; i < model.ffns.size(); ++i)
    kept += repaired.ffns[i].kept.size(), all += static_cast<size_t>(model.ffns[i].f);
  const double gone = 1 - static_cast<double>(kept) / static_cast<double>(all);
  if (std::fabs(gone - repaired.ffn_sparsity) > 1e-9)
    fail("{}: repaired: expected an FFN sparsity of {:.6g}, that of its lists, found {:.6g}", name, gone,
         repaired.ffn_sparsity);
  return repaired;
}

void write_repaired(Writer& out, const std::optional<RepairedModel>& repaired) {
  out.number(static_cast<uint32_t>(repaired.has_value()));
  if (!repaired) return;
  out.number(repaired->ffn_sparsity);
  const std::string search = repaired->search.substr(0, kMaxSource);
  out.number(static_cast<uint32_t>(search.size()));
  out.put(search.data(), search.size());
  for (const RepairedFfn& ffn : repaired->ffns) {
    out.number(static_cast<uint32_t>(ffn.kept.size()));
    out.put(ffn.kept.data(), ffn.kept.size() * sizeof(int32_t));
    out.put(ffn.down.data(), ffn.down.size() * sizeof(uint16_t));
  }
}

}  // namespace

std::vector<uint8_t> calibration_bytes(const Calibration& calibration) {
  Writer out;
  out.put(kMagic, sizeof kMagic);
  out.number(kVersion);
  out.number(uint64_t{0});
  const CalibrationModel& model = calibration.model;
  std::string sha256 = model.sha256;
  sha256.resize(kHash);
  out.put(sha256.data(), kHash);
  for (const int size : {model.layers, model.d, model.q_dim, static_cast<int>(model.ffns.size())})
    out.number(static_cast<uint32_t>(size));
  for (const FfnShape& ffn : model.ffns)
    for (const int value : {ffn.layer, ffn.f, static_cast<int>(ffn.routed)}) out.number(static_cast<uint32_t>(value));
  const std::string source = calibration.source.substr(0, kMaxSource);
  out.number(static_cast<uint32_t>(source.size()));
  out.put(source.data(), source.size());
  out.number(calibration.sequences);
  out.number(calibration.tokens);
  out.number(static_cast<uint32_t>(calibration.positions));
  for (const CalibrationFfn& ffn : calibration.ffns) {
    out.number(ffn.sequences);
    out.number(ffn.tokens);
    for (const auto* values : {&ffn.squares, &ffn.mean, &ffn.fluctuation, &ffn.history}) out.numbers(*values);
  }
  for (const CalibrationLayer& layer : calibration.layers) {
    if (model.has_experts()) break;
    for (const ScoreHistogram& histogram : layer.inputs) out.histogram(histogram);
    out.histogram(layer.gates);
    out.number(static_cast<uint32_t>(layer.allocation.size()));
    out.put(layer.allocation.data(), layer.allocation.size());
  }
  write_repaired(out, calibration.repaired);
  return out.close();
}

Calibration parse_calibration(std::span<const uint8_t> bytes, const std::string& name,
                              const CalibrationModel& expected) {
  check_whole(bytes, name);
  Reader reader(bytes.first(bytes.size() - kChecksum), name);
  reader.text(kStart);
  Calibration calibration;
  calibration.model = read_model(reader, name, expected);
  calibration.source = printable(read_text(reader, name, "source"), kMaxSource);
  calibration.sequences = reader.number<uint64_t>();
  calibration.tokens = reader.number<uint64_t>();
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (calibration.sequences == 0 || calibration.tokens < calibration.sequences || calibration.tokens > kMost)
    fail("{}: expected at least one sequence of at least one token, found {} of {}", name, calibration.sequences,
         calibration.tokens);
  const auto positions = reader.number<uint32_t>();
  size_t channels = 0;
  for (const FfnShape& ffn : expected.ffns) channels += static_cast<size_t>(ffn.f);
  // Compared before it is multiplied: no product overflows, nothing is allocated that the file does not have.
  if (positions > reader.left() / sizeof(double) / channels)
    fail("{}: a history of {} positions does not fit into the file", name, positions);
  calibration.positions = static_cast<int>(positions);
  calibration.layers.resize(static_cast<size_t>(expected.layers));
  calibration.ffns.resize(expected.ffns.size());
  for (size_t i = 0; i < calibration.ffns.size(); ++i) {
    read_ffn(reader, calibration, i, calibration.ffns[i], name);
  }
  for (size_t i = 0; i < calibration.layers.size() && !expected.has_experts(); ++i) {
    read_layer(reader, calibration, i, calibration.layers[i], name);
  }
  calibration.repaired = read_repaired(reader, expected, name);
  if (reader.left() != 0) fail("{}: expected nothing after the last part, found {} bytes", name, reader.left());
  return calibration;
}

}  // namespace pop
