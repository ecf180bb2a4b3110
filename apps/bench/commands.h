// The commands of `pop bench`, each in a file of its own.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "apps/pop/args.h"
#include "apps/pop/command.h"

namespace pop::app {

void add_bench_write(CLI::App& bench, Commands& commands);
void add_bench_kernels(CLI::App& bench, Commands& commands);

// --shape and what belongs to it: a model of random weights in place of a file.
struct ShapeArgs {
  std::string shape, type = "q4_0", selection = "random";
  std::optional<int> layers;
  uint64_t seed = 1;

  bool given() const { return !shape.empty(); }
  // Writes the model. Throws UsageError, Error.
  void write(const std::string& path) const;
  std::string description() const;
};

void add_shape_options(CLI::App& app, ShapeArgs& args);

// A file of random weights that is gone when the object is.
class TemporaryModel {
 public:
  explicit TemporaryModel(const ShapeArgs& args);
  ~TemporaryModel();
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pop::app
