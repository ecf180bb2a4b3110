// pop convert: a model in another file format, or with its weights as another type.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "apps/convert/tensors.h"
#include "apps/convert/vocabulary.h"
#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/whole_file.h"
#include "formats/safetensors_writer.h"
#include "model/families/family.h"
#include "tensor/convert_rows.h"

namespace pop::app {
namespace {

namespace fs = std::filesystem;

struct ConvertArgs {
  OutputArgs output;
  std::string from, to, type;
  bool force = false;
  int threads = 0;
};

struct Result {
  std::map<std::string, int> types;  // of tensors written, how many
  Notes notes;
};

bool is_gguf_name(const std::string& path) { return path.ends_with(".gguf"); }

class Conversion {
 public:
  Conversion(const ConvertArgs& args, const Model& model, TensorMaker& maker)
      : args_(args), model_(model), maker_(maker) {
    if (!args.type.empty()) type_ = stored_type_named(args.type, "--type");
  }

  Result folder_to_gguf() {
    GgufWriter out;
    const Family& family = gguf_family(model_.spec, model_.file().path());
    write_spec(model_.spec, family, model_.file().path(), out);  // first: it names what GGUF cannot say of the family
    plans_ = plan_tensors(model_, kGgufNames, family.interleaved_in_gguf, 0.f);
    out.set_string("general.type", "model");
    out.set_string("general.name", model_.spec.name);
    write_vocabulary(model_, out, result_.notes);
    return write_gguf(out);
  }

  Result gguf_to_gguf() {
    GgufWriter out;
    plans_ = plan_same(model_);
    for (const GgufKey& key : model_.gguf()->keys())
      if (!is_made_anew(key.name)) out.set_payload(key.name, key.value.type(), key.value.bytes());
    return write_gguf(out);
  }

  Result gguf_to_folder() {
    if (type_ && *type_ != DType::F32 && *type_ != DType::F16 && *type_ != DType::BF16)
      throw UsageError(fmt::format("--type: expected f32, f16 or bf16 for a folder, found '{}'", args_.type));
    const std::string name = model_.file().path();
    const Family& family = hf_family(model_.spec, name);
    plans_ = plan_same(model_);
    const DType type = type_.value_or(plain_type(type_of_most()));
    nlohmann::ordered_json config = config_of(model_.spec, family, name, type);
    plans_ = plan_tensors(model_, *family.hf_names, false, family.hf_norm_offset);
    const TemporaryFolder folder(args_.to);
    config.update(write_vocabulary(*model_.gguf(), model_.spec, folder.path(), result_.notes));
    const std::string text = config.dump(2) + '\n';
    WholeFile file(folder.path() + "/config.json");
    file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    file.become_whole();
    SafetensorsWriter out;
    int rounded = 0, norms = 0;
    for (const TensorPlan& plan : plans_) {
      const DType own = type_.value_or(plain_type(plan.stored()));
      const DType stored = plan.use == WeightUse::Kept && !fits(plan, type) ? DType::F32
                           : plan.use == WeightUse::Kept                    ? type
                                                                            : own;
      norms += plan.offset != 0 && !comes_back(plan);
      rounded += !type_ && plan.use != WeightUse::Kept && traits(plan.stored()).block_elems > 1;
      out.add(plan.name, counted(plan, stored), plan.shape, maker_.fill(plan, stored));
    }
    if (rounded != 0)
      result_.notes.push_back(
          fmt::format("{} matrices of blocks are rounded to F16; --type f32 keeps their values", rounded));
    if (norms != 0)
      result_.notes.push_back(fmt::format("weights of {} norms are rounded: a folder keeps them less one", norms));
    out.write(folder.path() + "/model.safetensors");
    folder.become(args_.to);
    return std::move(result_);
  }

 private:
  // Beside its target, and gone with the object unless it became it.
  class TemporaryFolder {
   public:
    explicit TemporaryFolder(const std::string& to) {
      std::random_device random;
      path_ = fmt::format("{}.tmp-{:08x}{:08x}", (fs::path(to).lexically_normal() / "").parent_path().string(),
                          random(), random());
      if (mkdir(path_.c_str(), 0777) != 0)  // less the umask, as any folder that a program makes
        fail("{}: cannot be written: {}", printable(path_, 400), std::strerror(errno));
    }
    ~TemporaryFolder() {
      std::error_code ignored;
      fs::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }
    void become(const std::string& to) const {
      std::error_code error;
      fs::rename(path_, to, error);
      if (error) fail("{}: cannot be written: {}", printable(to, 400), error.message());
    }

   private:
    std::string path_;
  };

  bool is_made_anew(std::string_view key) const {
    return key == "general.alignment" || key.starts_with("split.") ||
           (type_ && (key == "general.file_type" || key == "general.quantization_version"));
  }

  DType counted(const TensorPlan& plan, DType type) {
    if (type_ && plan.use == WeightUse::Matrix && *type_ != type) ++others_[traits(type).name];
    ++result_.types[traits(type).name];
    return type;
  }

  Result write_gguf(GgufWriter& out) {
    if (type_ || model_.folder() != nullptr) {
      out.set_u32("general.file_type", gguf_file_type(type_.value_or(type_of_most())));
      out.set_u32("general.quantization_version", 2);
    }
    for (const TensorPlan& plan : plans_) {
      const bool kept = plan.use == WeightUse::Kept;
      const DType stored =
          type_ || kept ? stored_type(type_.value_or(DType::F32), plan.use, plan.cols()) : plan.stored();
      out.add_tensor_filled(plan.name, counted(plan, stored), plan.shape, maker_.fill(plan, stored));
    }
    for (const auto& [name, count] : others_)
      result_.notes.push_back(
          fmt::format("{} matrices have rows that blocks of {} do not divide: they are {}", count, args_.type, name));
    const auto scaled =
        std::ranges::count_if(plans_, [](const TensorPlan& plan) { return bool(plan.parts[0].scales); });
    if (scaled != 0 && !type_)
      result_.notes.push_back(fmt::format("{} tensors of F8_E4M3 with scales are rounded to BF16", scaled));
    note_loss();
    out.write(args_.to);
    return std::move(result_);
  }

  // Rounding what was rounded before.
  void note_loss() {
    const DType from = type_of_most();
    if (type_ && *type_ != from && traits(from).block_elems > 1 && traits(*type_).block_elems > 1)
      result_.notes.push_back(fmt::format(
          "weights are {} in the source: what was lost there stays lost; from F16 or BF16 files {} is better",
          traits(from).name, traits(*type_).name));
  }

  DType type_of_most() const {
    std::map<DType, uint64_t> bytes;
    for (const TensorPlan& plan : plans_)
      if (plan.use == WeightUse::Matrix)
        for (const RawTensor& part : plan.parts) bytes[part.type] += part.data.size();
    const auto most =
        std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == bytes.end() ? DType::F32 : most->first;
  }

  // For a folder: the type itself, or F16 in place of blocks.
  static DType plain_type(DType type) { return traits(type).block_elems == 1 ? type : DType::F16; }

  // Whether its values are the same again when its offset is taken away.
  static bool comes_back(const TensorPlan& plan) {
    TensorPlan source = plan;
    source.offset = 0;
    return std::ranges::equal(source.values(), plan.values(), {}, {}, [&](float v) { return v - plan.offset; });
  }

  static bool fits(const TensorPlan& plan, DType type) { return holds_exactly(type, plan.values()); }

  const ConvertArgs& args_;
  const Model& model_;
  TensorMaker& maker_;
  std::optional<DType> type_;
  std::vector<TensorPlan> plans_;
  Result result_;
  std::map<std::string, int> others_;  // types that matrices got in place of the one asked for, how many
};

void check_target(const ConvertArgs& args) {
  std::error_code ignored;
  if (is_split_part_name(args.to))
    fail("{}: expected a name that is not of a part of several files: one whole file is written",
         printable(args.to, 400));
  if (!fs::exists(args.to, ignored)) return;
  const std::string name = printable(args.to, 400);
  if (fs::is_directory(args.to, ignored)) {
    if (is_gguf_name(args.to)) fail("{}: expected a file to write, found a folder", name);
    if (!fs::is_empty(args.to, ignored))
      fail("{}: expected no folder, or an empty one, found one with files in it (a folder is never replaced)", name);
  } else if (!is_gguf_name(args.to)) {
    fail("{}: expected a name that ends in .gguf, or of a folder, found a file", name);
  } else if (!args.force) {
    fail("{}: there already; --force replaces it", name);
  }
}

void print(const ConvertArgs& args, const Result& result, uint64_t bytes, double seconds) {
  if (!args.output.json) {
    std::vector<std::string> types;
    for (const auto& [name, count] : result.types) types.push_back(fmt::format("{} {}", count, name));
    fmt::print("{}: {:.1f} MB; tensors: {}\n", printable(args.to, 400), double(bytes) / 1e6, fmt::join(types, ", "));
    for (const std::string& line : result.notes) note(args.output, "pop: note: " + printable(line, 1000));
    return;
  }
  print_json({{"model", args.from},
              {"output", args.to},
              {"type", args.type.empty() ? Json(nullptr) : Json(args.type)},
              {"bytes", bytes},
              {"tensors", result.types},
              {"seconds", seconds},
              {"notes", result.notes}});
}

uint64_t bytes_of(const std::string& path) {
  if (!fs::is_directory(path)) return fs::file_size(path);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path)) bytes += entry.file_size();
  return bytes;
}

int convert(const ConvertArgs& args) {
  if (args.from.empty()) throw UsageError("convert: expected a model: pop convert MODEL -o OUT");
  if (args.to.empty()) throw UsageError("convert: expected where to write, -o OUT");
  check_target(args);
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<Model> model = Model::check(args.from);
  if (model->folder() != nullptr && !is_gguf_name(args.to))
    throw UsageError("-o: expected a name that ends in .gguf: a folder is converted to GGUF only");
  if (is_gguf_name(args.to)) WholeFile::remove_left_over(args.to);
  InterruptScope interrupts;
  Progress progress("convert", args.output);
  ThreadPool pool(args.threads > 0 ? args.threads : usable_cpus());
  const auto total = int64_t(model->file().tensor_bytes());
  TensorMaker maker(
      model->file(), pool, [&](uint64_t done) { progress.update(int64_t(done), total); }, InterruptScope::raised);
  Conversion conversion(args, *model, maker);
  try {
    const Result result = model->folder() != nullptr ? conversion.folder_to_gguf()
                          : is_gguf_name(args.to)    ? conversion.gguf_to_gguf()
                                                     : conversion.gguf_to_folder();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    print(args, result, bytes_of(args.to), seconds);
  } catch (const Interrupted&) {
    note(args.output, "interrupted; nothing was written");
    return kInterrupted;
  }
  return kDone;
}

}  // namespace

void add_convert(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<ConvertArgs>();
  CLI::App* app = root.add_subcommand("convert");
  app->description(
      "Writes a model in another form: a Hugging Face folder as a GGUF file, a GGUF file as a folder, or a GGUF file "
      "with its weights as another type. Norms, biases and the routers of experts stay F32; with a type of four or "
      "five "
      "bits the head (the matrix that makes logits) is Q6_K. Without --type values stay exactly what they are (in a "
      "folder blocks become F16). The "
      "output is there whole or not at all.");
  app->add_option("model", args->from, "GGUF file, first part of a split one, or Hugging Face folder")
      ->option_text("MODEL");
  app->add_option("-o,--output", args->to, "The file to write, NAME.gguf, or else the folder to make")
      ->option_text("OUT");
  app->add_option("--type", args->type,
                  "Type of the weights: f32, f16, bf16, q8_0, q6_k, q5_0, q5_1, q4_k, q4_0, q4_1; for a folder f32, "
                  "f16, bf16 [as they are; for a folder of blocks f16]")
      ->option_text("TYPE")
      ->transform(lower_case())
      ->check(one_of(stored_type_names()));
  app->add_flag("--force", args->force, "Replace the file if it is there");
  app->add_option("-t,--threads", args->threads, "Worker threads [the CPUs this process may use]")
      ->option_text("N")
      ->check(whole_in(1, 1024));
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop convert Llama-3.2-1B-Instruct/ -o llama.gguf --type q4_k\n"
      "  pop convert model.gguf -o smaller.gguf --type q4_0\n");
  commands.push_back({app, [args] { return convert(*args); }});
}

}  // namespace pop::app
