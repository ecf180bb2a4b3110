// Files that show what a run did: partitions and choices as JSON Lines, logits as .npy.
#pragma once
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "apps/pop/args.h"
#include "engine/pop.h"

namespace pop::app {

// A file being written. Throws Error if it cannot be opened or not all of it was written.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  std::FILE* get() const { return file_; }
  void write(std::string_view bytes);
  void close();

 private:
  [[noreturn]] void broken() const;
  std::string path_;
  std::FILE* file_;
};

class PartitionDump : public SelectionObserver {
 public:
  PartitionDump(const std::string& path, const PrunePlanInfo& plan) : file_(path), plan_(plan) {}
  // Sequences of the next call are numbered from here.
  void set_first_sequence(int first) { first_ = first; }
  void on_partition(int sequence, int layer, int expert, std::span<const int32_t> retained,
                    std::span<const int32_t> candidate, std::span<const int32_t> pruned,
                    std::span<const float> scores) override;
  void on_threshold(int sequence, int layer, const char* site, double level, float tau, uint64_t counted) override;
  void on_chosen(int sequence, int token, int layer, int expert, const char* site, bool columns,
                 std::span<const int32_t> chosen) override;
  void close() { file_.close(); }

 private:
  OutputFile file_;
  PrunePlanInfo plan_;
  int first_ = 0;
};

// NumPy's format, version 1.0: the count of rows is known at the end only, so the header is written again then.
class LogitsDump {
 public:
  explicit LogitsDump(const std::string& path) : file_(path) {}
  void add(std::span<const float> logits);
  void close();

 private:
  void write_header();
  OutputFile file_;
  size_t rows_ = 0, width_ = 0;
};

// What each thread did when, in the format of Chrome's tracing: complete events ("ph": "X"), microseconds.
class TraceDump {
 public:
  explicit TraceDump(const std::string& path) : file_(path) {}
  void add(int thread, const char* part, double begin_s, double seconds, int pieces);
  void close();

 private:
  OutputFile file_;
  bool empty_ = true;
};

// All of them, as the options ask; add_to() gives the hooks they need, close() writes the rest.
class Dumps {
 public:
  Dumps(const DumpArgs& args, const PrunePlanInfo& plan);
  void add_to(RunHooks& hooks);
  PartitionDump* partition() { return partition_ ? &*partition_ : nullptr; }
  void close();

 private:
  std::optional<PartitionDump> partition_;
  std::optional<LogitsDump> logits_;
  std::optional<TraceDump> trace_;
};

}  // namespace pop::app
