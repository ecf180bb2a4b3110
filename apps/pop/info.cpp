// pop info: what is in a model file, and what pruning would save on it.
#include <fmt/format.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "apps/pop/args.h"
#include "apps/pop/command.h"
#include "apps/pop/results.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct InfoArgs {
  EngineOptions engine;
  OutputArgs output;
  bool metadata = false;
};

struct Saving {
  const char* method;
  double ratio;
  Engine::Planned planned;
};

// Planned from the shapes and the layout; what a run really reads is in its own result.
std::vector<Saving> savings(const Engine& engine) {
  std::vector<Saving> out;
  for (const char* method : {"pop", "pop+"}) {
    for (const double ratio : {0.1, 0.2, 0.3, 0.4, 0.5}) {
      try {
        out.push_back({method, ratio, engine.planned({.method = method, .ratio = ratio})});
      } catch (const Exception&) {
        break;  // a ratio out of this model's reach: so are the larger ones
      }
    }
  }
  return out;
}

// Of this process so far, as the system counts it.
uint64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

Json ffns_json(const ModelInfo& info) {
  Json json = Json::object();
  for (const FfnInfo& ffn : info.ffns)
    json[ffn.kind] = {{"count", ffn.count},
                      {"per_token", ffn.per_token},
                      {"f", ffn.f},
                      {"weights", ffn.weights},
                      {"weight_bytes", ffn.weight_bytes},
                      {"weight_bytes_per_token", ffn.weight_bytes_per_token}};
  return json;
}

Json savings_json(const std::vector<Saving>& saved) {
  Json json = Json::array();
  for (const Saving& s : saved)
    json.push_back({{"method", s.method},
                    {"ratio", s.ratio},
                    {"ffn_sparsity", s.planned.ffn_sparsity},
                    {"weight_bytes_per_token", s.planned.weight_bytes_per_token},
                    {"weights_read_share", s.planned.weights_read_share},
                    {"selected_share", s.planned.selected_share},
                    {"realised_ratio", to_json(s.planned.realised)}});
  return json;
}

Json info_json(const ModelInfo& info, const std::vector<Saving>& saved) {
  Json json;
  json["path"] = info.path;
  json["architecture"] = info.architecture;
  json["name"] = info.name;
  json["file_type"] = info.file_type;
  json["file_bytes"] = info.file_bytes;
  json["parameters"] = info.parameters;
  json["layers"] = info.layers;
  json["d"] = info.d;
  json["f"] = info.f;
  json["experts"] = info.experts;
  json["experts_used"] = info.experts_used;
  json["expert_f"] = info.expert_f;
  json["shared_f"] = info.shared_f;
  json["heads"] = info.heads;
  json["kv_heads"] = info.kv_heads;
  json["head_dim"] = info.head_dim;
  json["vocab"] = info.vocab;
  json["tied_head"] = info.tied_head;
  json["context_trained"] = info.context_trained;
  json["context"] = info.context;
  json["rope_scaling"] = info.rope_scaling;
  json["tokenizer"] = {{"model", info.tokenizer_model}, {"pre", info.tokenizer_pre}};
  json["chat_template"] = info.chat_template;
  json["tensor_types"] = Json::object();
  for (const auto& [type, count] : info.tensor_types) json["tensor_types"][type] = count;
  json["bytes_per_token"] = Json::object();
  for (const ByteShare& part : info.bytes_per_token) json["bytes_per_token"][part.part] = part.bytes;
  json["ffns"] = ffns_json(info);
  json["weight_bytes"] = info.weight_bytes;
  json["kv_bytes_per_token"] = info.kv_bytes_per_token;
  json["savings"] = savings_json(saved);
  json["memory"] = {{"weights", info.weight_bytes},
                    {"kv_cache", info.kv_bytes_per_token * uint64_t(info.context)},
                    {"peak", peak_memory()}};
  json["load_s"] = info.load_s;
  json["from_cache"] = info.from_cache;
  json["warnings"] = info.warnings;
  json["isa"] = info.isa;
  json["threads"] = info.threads;
  json["activations"] = info.activations_decode;
  json["activations_prefill"] = info.activations_prefill;
  json["kv"] = info.kv;
  json["bos"] = info.bos;
  json["layout"] = info.layout;
  json["model_sha256"] = info.model_sha256;
  if (!info.load_as.empty()) json["load_as"] = info.load_as;
  json["version"] = build_info().version;
  json["metadata"] = Json::object();
  for (const auto& [key, value] : info.metadata) json["metadata"][key] = value;
  return json;
}

std::string megabytes(double bytes) {
  return bytes >= 1e9   ? fmt::format("{:.2f} GB", bytes / 1e9)
         : bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6)
                        : fmt::format("{:.1f} kB", bytes / 1e3);
}

void line(const char* name, const std::string& value) { fmt::print("{:<14}{}\n", name, value); }

void print_model(const ModelInfo& info) {
  line("model",
       fmt::format("{} ({}, {})", printable(info.name), printable(info.architecture), printable(info.file_type)));
  line("file", fmt::format("{}, {}", printable(info.path, 400), megabytes(double(info.file_bytes))));
  line("sizes", fmt::format("{:.1f} M weights; {} layers of width {}, FFN {}", double(info.parameters) / 1e6,
                            info.layers, info.d, info.f));
  if (info.experts > 0)
    line("experts", fmt::format("{} of width {}, {} for each token{}", info.experts, info.expert_f, info.experts_used,
                                info.shared_f > 0 ? fmt::format("; a shared one of {}", info.shared_f) : ""));
  line("attention", fmt::format("{} heads of {}, {} key-value heads; RoPE scaling: {}", info.heads, info.head_dim,
                                info.kv_heads, info.rope_scaling.empty() ? "none" : info.rope_scaling));
  line("context", fmt::format("{} tokens here, {} in training", info.context, info.context_trained));
  std::string types;
  for (const auto& [type, count] : info.tensor_types)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, type);
  line("tensors", types);
  line("tokenizer", fmt::format("{}, {} tokens; chat template: {}",
                                info.tokenizer_model.empty() ? "none"
                                                             : fmt::format("{} / {}", printable(info.tokenizer_model),
                                                                           printable(info.tokenizer_pre)),
                                info.vocab, info.chat_template.empty() ? "none" : "yes"));
  line("memory", fmt::format("{} of weights + {} of cache ({} per token, {})", megabytes(double(info.weight_bytes)),
                             megabytes(double(info.kv_bytes_per_token) * info.context),
                             megabytes(double(info.kv_bytes_per_token)), info.kv));
  line("runs with", fmt::format("{}, {} threads, activations {} (prompt {}), layout {}", info.isa, info.threads,
                                info.activations_decode, info.activations_prefill, info.layout));
}

void print_ffns(const ModelInfo& info) {
  fmt::print("\nIts FFNs\n");
  std::vector<std::vector<std::string>> rows = {
      {"  kind", "in the model", "width", "in memory", "for a token", "read by it"}};
  for (const FfnInfo& ffn : info.ffns)
    rows.push_back({"  " + ffn.kind, fmt::format("{}", ffn.count), fmt::format("{}", ffn.f),
                    megabytes(double(ffn.weight_bytes)), fmt::format("{}", ffn.per_token),
                    megabytes(double(ffn.weight_bytes_per_token))});
  fmt::print("{}", table(rows));
}

void print_bytes(const ModelInfo& info, const std::vector<Saving>& saved) {
  double total = 0;
  for (const ByteShare& part : info.bytes_per_token) total += double(part.bytes);
  fmt::print("\nWhere the bytes of one token go (dense)\n");
  std::vector<std::vector<std::string>> rows;
  for (const ByteShare& part : info.bytes_per_token)
    rows.push_back({"  " + part.part, megabytes(double(part.bytes)),
                    fmt::format("{:.1f}%", total > 0 ? 100 * double(part.bytes) / total : 0)});
  rows.push_back({"  total", megabytes(total), ""});
  fmt::print("{}", table(rows));
  if (info.experts > 0) print_ffns(info);
  if (saved.empty()) return;
  fmt::print("\nWhat pruning saves (planned)\n");
  rows = {{"  method", "ratio", "FFN pruned", "MB/token", "of dense", "blocks used"}};
  if (info.experts > 0) rows[0].insert(rows[0].end(), {"ratio of active", "of blocks"});
  for (const Saving& s : saved) {
    rows.push_back({fmt::format("  {}", s.method), fmt::format("{:.1f}", s.ratio),
                    s.planned.ffn_sparsity > 0 ? fmt::format("{:.1f}%", 100 * s.planned.ffn_sparsity) : "-",
                    fmt::format("{:.1f}", s.planned.weight_bytes_per_token / 1e6),
                    fmt::format("{:.1f}%", 100 * s.planned.weights_read_share),
                    fmt::format("{:.1f}%", 100 * s.planned.selected_share)});
    if (info.experts > 0)
      for (const double ratio : {s.planned.realised.active, s.planned.realised.blocks})
        rows.back().push_back(fmt::format("{:.3f}", ratio));
  }
  fmt::print("{}", table(rows));
}

int info(const InfoArgs& args) {
  Engine engine = make_engine(args.engine, args.output);
  const auto saved = savings(engine);
  if (args.output.json) {
    print_json(info_json(engine.info(), saved));
    return kDone;
  }
  print_model(engine.info());
  print_bytes(engine.info(), saved);
  if (args.metadata) {
    fmt::print("\nMetadata\n");
    for (const auto& [key, value] : engine.info().metadata)
      fmt::print("  {} = {}\n", printable(key, 200), printable(value, 200));
  }
  return kDone;
}

}  // namespace

void add_info(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<InfoArgs>();
  CLI::App* app = root.add_subcommand("info");
  app->description(
      "What is in a model file: architecture, sizes, weight types, tokenizer, memory, where the bytes of one token go, "
      "and what "
      "each ratio saves on it.");
  app->add_flag("--metadata", args->metadata, "List the file's metadata too");
  add_model_options(*app, args->engine);
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop info\n"
      "  pop info -m model.gguf --json\n");
  commands.push_back({app, [args] { return info(*args); }});
}

}  // namespace pop::app
