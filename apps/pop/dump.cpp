#include "apps/pop/dump.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "apps/pop/results.h"
#include "base/error.h"

namespace pop::app {

OutputFile::OutputFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
  if (!file_) fail("{}: cannot be written: {}", printable(path_, 400), std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
}

void OutputFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) broken();
}

void OutputFile::close() {
  std::FILE* file = file_;
  file_ = nullptr;
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed) broken();
}

void OutputFile::broken() const { fail("{}: could not be written: {}", printable(path_, 400), std::strerror(errno)); }

void PartitionDump::on_partition(int sequence, int layer, int expert, std::span<const int32_t> retained,
                                 std::span<const int32_t> candidate, std::span<const int32_t> pruned,
                                 std::span<const float> scores) {
  Json json = {{"seq", first_ + sequence}, {"layer", layer},       {"expert", expert},
               {"p", plan_.ffn_sparsity},  {"gamma", plan_.gamma}, {"R", retained},
               {"C", candidate},           {"P", pruned},          {"scores", scores}};
  file_.write(to_text(json) + "\n");
}

void PartitionDump::on_threshold(int sequence, int layer, const char* site, double level, float tau, uint64_t counted) {
  Json json = {{"seq", first_ + sequence}, {"layer", layer}, {"site", site}, {"v", level}, {"tau", tau},
               {"counted", counted}};
  file_.write(to_text(json) + "\n");
}

void PartitionDump::on_chosen(int sequence, int token, int layer, int expert, const char* site, bool columns,
                              std::span<const int32_t> chosen) {
  Json json = {{"seq", first_ + sequence}, {"token", token}, {"layer", layer}, {"expert", expert}};
  if (columns)
    json["site"] = site;
  else if (std::string_view(site) != "down")
    return;  // of channels, the final choice; what gate and up computed is R and C
  json["chosen"] = chosen;
  file_.write(to_text(json) + "\n");
}

void LogitsDump::add(std::span<const float> logits) {
  static_assert(std::endian::native == std::endian::little, "the header says little-endian");
  if (rows_ == 0) {
    width_ = logits.size();
    write_header();
  }
  if (logits.size() != width_) fail("--dump-logits: expected {} logits, found {}", width_, logits.size());
  file_.write({reinterpret_cast<const char*>(logits.data()), logits.size_bytes()});
  ++rows_;
}

void LogitsDump::close() {
  std::rewind(file_.get());
  write_header();
  file_.close();
}

void LogitsDump::write_header() {
  constexpr size_t kBytes = 128;  // fixed, so that it can be written over; a multiple of 64 as the format asks
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows_, width_);
  text.resize(kBytes - 10, ' ');
  text.back() = '\n';
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const std::string length = {static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  file_.write(magic + length + text);
}

void TraceDump::add(int thread, const char* part, double begin_s, double seconds, int pieces) {
  std::string event = fmt::format(R"({{"name":"{}","ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f})", part, thread,
                                  begin_s * 1e6, seconds * 1e6);
  if (pieces > 0) event += fmt::format(R"(,"args":{{"pieces":{}}})", pieces);
  file_.write((empty_ ? "{\"traceEvents\":[\n" : ",\n") + event + "}");
  empty_ = false;
}

void TraceDump::close() {
  file_.write(empty_ ? "{\"traceEvents\":[]}\n" : "\n]}\n");
  file_.close();
}

Dumps::Dumps(const DumpArgs& args, const PrunePlanInfo& plan) {
  if (args.partition) partition_.emplace(*args.partition, plan);
  if (args.logits) logits_.emplace(*args.logits);
  if (args.trace) trace_.emplace(*args.trace);
}

void Dumps::add_to(RunHooks& hooks) {
  if (partition_) hooks.observer = &*partition_;
  if (logits_) hooks.on_logits = [this](int, int, std::span<const float> row) { logits_->add(row); };
  if (trace_)
    hooks.on_trace = [this](int thread, const char* part, double begin_s, double seconds, int pieces) {
      trace_->add(thread, part, begin_s, seconds, pieces);
    };
}

void Dumps::close() {
  if (partition_) partition_->close();
  if (logits_) logits_->close();
  if (trace_) trace_->close();
}

}  // namespace pop::app
