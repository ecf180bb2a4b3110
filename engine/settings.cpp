// Options in words -> options in enums, each checked by name.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/impl.h"
#include "model/stored_type.h"
#include "prune/registry.h"
#include "tensor/layout.h"

namespace pop {
namespace {

template <class T>
struct Choice {
  const char* word;
  T value;
};

template <class T, size_t N>
T choose(const char* option, const std::string& word, const std::array<Choice<T>, N>& choices) {
  std::string words;
  for (const Choice<T>& choice : choices) {
    if (word == choice.word) return choice.value;
    words += (words.empty() ? "" : ", ") + std::string(choice.word);
  }
  fail("{}: expected one of {}, found \"{}\"", option, words, printable(word));
}

std::optional<Metric> metric(const char* option, const std::string& word) {
  if (word.empty()) return std::nullopt;
  return choose<Metric, 2>(option, word, {{{"down", Metric::Down}, {"gate-up", Metric::GateUp}}});
}

}  // namespace

PruneOptions prune_options(const PruneSettings& s, uint64_t total_weights) {
  PruneOptions o;
  o.method = s.method;
  o.ratio = s.ratio;
  o.ffn_sparsity = s.ffn_sparsity;
  if (!s.ratio_of.empty())
    o.ratio_of =
        choose<RatioOf, 3>("ratio-of", s.ratio_of,
                           {{{"blocks", RatioOf::Blocks}, {"active", RatioOf::Active}, {"total", RatioOf::Total}}});
  o.total_weights = total_weights;
  o.gamma = s.gamma;
  o.metric = metric("metric", s.metric);
  o.decode_metric = metric("decode-metric", s.decode_metric);
  if (!s.norm.empty())
    o.norm = choose<Norm, 3>("norm", s.norm, {{{"1", Norm::One}, {"2", Norm::Two}, {"max", Norm::Max}}});
  if (!s.prefill.empty())
    o.prefill_pruned = choose<bool, 2>("prefill", s.prefill, {{{"dense", false}, {"pruned", true}}});
  o.match = s.match;
  if (!s.plus_rule.empty())
    o.plus_rule =
        choose<PlusRule, 2>("plus-rule", s.plus_rule, {{{"sites", PlusRule::Sites}, {"prompt", PlusRule::Prompt}}});
  if (!s.repaired.empty())
    o.repaired =
        choose<RepairedAs, 2>("repaired", s.repaired, {{{"model", RepairedAs::Model}, {"bf16", RepairedAs::BF16}}});
  o.min_tokens = s.min_tokens;
  if (!s.few_tokens.empty())
    o.few_tokens =
        choose<FewTokens, 2>("few-tokens", s.few_tokens, {{{"layer", FewTokens::Layer}, {"dense", FewTokens::Dense}}});
  o.refresh = s.refresh.has_value();
  o.refresh_last = s.refresh_last.has_value();
  if (s.seed) o.seed = *s.seed;
  if (!s.random_every.empty())
    o.random_every = choose<RandomEvery, 2>("random-every", s.random_every,
                                            {{{"sequence", RandomEvery::Sequence}, {"token", RandomEvery::Token}}});
  return o;
}

namespace {

std::optional<ActType> activations_of(const std::string& word) {
  if (word == "auto") return std::nullopt;
  return choose<ActType, 4>(
      "activations", word,
      {{{"f32", ActType::F32}, {"bf16", ActType::BF16}, {"i16", ActType::I16}, {"i8", ActType::I8}}});
}

KvType kv_of(const std::string& word) {
  return choose<KvType, 4>(
      "kv", word, {{{"f32", KvType::F32}, {"f16", KvType::F16}, {"bf16", KvType::BF16}, {"q8_0", KvType::Q8_0}}});
}

LayoutChoice layout_of(const EngineOptions& o) {
  const auto choice = choose<LayoutChoice, 3>(
      "layout", o.layout,
      {{{"auto", LayoutChoice::Auto}, {"rows", LayoutChoice::Rows}, {"columns", LayoutChoice::Columns}}});
  if (choice != LayoutChoice::Auto) return choice;
  const auto selects = [&](std::string_view what) {
    return std::any_of(o.methods.begin(), o.methods.end(), [&](const std::string& name) {
      return std::any_of(methods().begin(), methods().end(),
                         [&](const MethodInfo& m) { return m.name == name && m.selects == what; });
    });
  };
  if (!selects("columns")) return LayoutChoice::Auto;
  return selects("rows") ? LayoutChoice::Mixed : LayoutChoice::Columns;
}

const char* layout_name(LayoutChoice choice, const Model& model) {
  if (choice == LayoutChoice::Rows) return "rows";
  if (choice == LayoutChoice::Columns) return "columns";
  if (choice == LayoutChoice::Mixed) return "columns, gate_proj and up_proj in rows";
  return model.layers[0].ffns[0].down.layout == Layout::Columns ? "rows, down_proj in columns" : "rows";
}

const char* act_name(ActType type) {
  constexpr const char* kNames[] = {"f32", "bf16", "i16", "i8"};
  return kNames[size_t(type)];
}

int threads_of(int asked) {
  if (asked == 0) return usable_cpus();
  if (asked < 0 || asked > 1024)
    fail("threads: expected 1 to 1024 (0: as many as this process may use), found {}", asked);
  return asked;
}

// Of every file: the first MiB (all metadata of a small vocabulary, else a good part) and the size in eight bytes, little-endian;
std::optional<DType> load_type_of(const EngineOptions& o) {
  return o.load_as.empty() ? std::nullopt : std::optional(stored_type_named(o.load_as, "load-as"));
}

// `full`: all bytes. A folder's config.json, which says what its weights mean, comes last; then the type that all were made.
std::string model_hash(const Model& model, bool full, const std::string& load_as) {
  Sha256 hash;
  const auto add = [&](const MappedFile& file) {
    const auto bytes = file.bytes();
    const size_t end = full ? bytes.size() : std::min<size_t>(bytes.size(), 1 << 20);
    constexpr size_t kStep = size_t(16) << 20;
    for (size_t at = 0; at < end; at += kStep) {
      const auto part = bytes.subspan(at, std::min(kStep, end - at));
      hash.update(part);
      if (full) file.release(part);
    }
    uint8_t size[8];
    for (int i = 0; i < 8; ++i) size[i] = uint8_t(uint64_t(bytes.size()) >> (8 * i));
    if (!full) hash.update(size);
  };
  for (const MappedFile& file : model.file().files()) add(file);
  if (const HfFolder* folder = model.folder()) add(MappedFile(folder->path() + "/config.json"));
  hash.update({reinterpret_cast<const uint8_t*>(load_as.data()), load_as.size()});
  return hash.hex();
}

}  // namespace

Engine::Impl::Impl(const EngineOptions& o)
    : options(o),
      kernels(select_kernels(o.isa)),
      activations(activations_of(o.activations)),
      kv(kv_of(o.kv)),
      pool(std::in_place, o.text_only ? 1 : threads_of(o.threads)) {
  if (o.prefill_chunk < 1 || o.prefill_chunk > 65536)
    fail("prefill-chunk: expected 1 to 65536 tokens, found {}", o.prefill_chunk);
  if (o.context < 0 || o.context > (1 << 24))
    fail("ctx: expected 1 to {} tokens (0: the model's, at most 8192), found {}", 1 << 24, o.context);
  const auto start = std::chrono::steady_clock::now();
  model = o.text_only
              ? Model::open(o.model)
              : Model::load(o.model,
                            {.layout = layout_of(o), .type = load_type_of(o), .cache = o.cache, .progress = o.on_load},
                            *pool);
  options.on_load = nullptr;  // the caller's, for the load only
  if (kv == KvType::Q8_0 && model->spec.head_dim % 32 != 0)
    fail("kv: q8_0 stores 32 elements together: expected heads of a multiple of 32, found {} in {}",
         model->spec.head_dim, model->file().path());
  text = model->gguf() != nullptr ? std::make_unique<TextModel>(*model->gguf(), o.bos, model->spec.vocab)
                                  : std::make_unique<TextModel>(model->folder()->path(), o.bos, model->spec.vocab,
                                                                model->folder()->end_ids());
  fill_info();
  info.load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Engine::Impl::expect_weights() const {
  if (options.text_only) fail("{}: opened for its text side only: there are no weights", options.model);
}

void Engine::Impl::fill_info() {
  const ModelSpec& s = model->spec;
  const TensorSource& file = model->file();
  info.path = options.model;
  info.architecture = s.architecture;
  info.name = s.name;
  info.file_bytes = file.file_bytes();
  info.layers = s.layers, info.d = s.d, info.f = s.f, info.heads = s.heads, info.kv_heads = s.kv_heads;
  info.experts = s.moe.experts, info.experts_used = s.moe.used, info.expert_f = s.moe.f, info.shared_f = s.moe.shared_f;
  info.head_dim = s.head_dim, info.vocab = s.vocab, info.context_trained = s.context_trained,
  info.tied_head = s.tied_head;
  const bool lengthens = s.rope.scaling == RopeSpec::Scaling::Long;
  const int most = lengthens ? std::min(s.context_trained, s.rope.original_context) : s.context_trained;
  info.context = options.context > 0 ? options.context : std::min(most, 8192);
  model->set_context(info.context);
  info.warnings = model->warnings;
  if (lengthens && info.context > s.rope.original_context)
    info.warnings.push_back(
        fmt::format("--ctx: beyond {} tokens this model's positions are those of long texts (LongRoPE), "
                    "in short ones too",
                    s.rope.original_context));
  if (s.context_limit > 0 && info.context > s.context_limit)
    fail(
        "ctx: expected at most {} tokens, found {}: {} scales positions beyond by the length of the text (dynamic), "
        "which "
        "is not run",
        s.context_limit, info.context, file.path());
  if (info.context > s.context_trained)
    info.warnings.push_back(
        fmt::format("--ctx: {} tokens, but the model was trained on {}: what it says beyond is "
                    "worth little",
                    info.context, s.context_trained));
  constexpr const char* kScaling[] = {"none", "linear", "yarn", "dynamic", "longrope"};
  info.rope_scaling = lengthens || s.rope.frequency_divisors.empty() ? kScaling[size_t(s.rope.scaling)] : "llama3";
  info.tokenizer_model = text->model_name(), info.tokenizer_pre = text->pre_name();
  info.chat_template = text->template_source();
  fill_tensor_types();
  info.kv_bytes_per_token = 2 * uint64_t(s.layers) * uint64_t(s.kv_heads) * kv_position_bytes(kv, s.head_dim);
  if (const auto type = load_type_of(options)) info.load_as = traits(*type).name;
  model_id = model_hash(*model, false, info.load_as);
  info.model_sha256 = options.full_hash ? model_hash(*model, true, info.load_as) : model_id;
  info.isa = kernels.name;
  info.kv = options.kv, info.bos = text->bos_description(), info.threads = pool->threads();
  if (const GgufFile* gguf = model->gguf()) {
    for (const GgufKey& key : gguf->keys()) info.metadata.emplace_back(printable(key.name), key.value.text());
  } else {
    for (const auto& [key, value] : model->folder()->config().all().items())
      info.metadata.emplace_back(printable(key), printable(value.dump(-1, ' ', true), 80));
  }
  if (!options.text_only) fill_arithmetic();
}

void Engine::Impl::fill_tensor_types() {
  std::vector<std::pair<std::string, int>>& types = info.tensor_types;
  for (const TensorInfo& tensor : model->file().tensors()) {
    uint64_t elements = 1;
    for (const int64_t n : tensor.shape) elements *= uint64_t(n);
    info.parameters += elements;
    auto it = std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == tensor.type_text; });
    if (it == types.end()) it = types.insert(types.end(), {tensor.type_text, 0});
    ++it->second;
  }
}

namespace {

uint64_t all_bytes(const Matrix& w) {
  return uint64_t(bytes_read(w, {nullptr, w.layout == Layout::Rows ? w.rows / w.unit : w.cols}));
}

}  // namespace

void Engine::Impl::fill_ffns() {
  std::array<FfnInfo, kFfnKinds> kinds;
  std::array<double, kFfnKinds> bytes = {}, uses = {};  // of a token: k of E experts
  for (const LayerWeights& layer : model->layers)
    for (const FfnWeights& ffn : layer.ffns) {
      const auto kind = size_t(kind_of(layer, ffn));
      const uint64_t whole = all_bytes(ffn.gate_up) + all_bytes(ffn.down);
      ++kinds[kind].count;
      kinds[kind].f = ffn.f();
      kinds[kind].weights += uint64_t(elements(ffn.gate_up) + elements(ffn.down));
      kinds[kind].weight_bytes += whole;
      bytes[kind] += double(whole) * ffn.use;
      uses[kind] += ffn.use;
    }
  for (size_t kind = 0; kind < kFfnKinds; ++kind) {
    if (kinds[kind].count == 0) continue;
    kinds[kind].kind = ffn_kind_name(FfnKind(kind));
    kinds[kind].per_token = int(std::lround(uses[kind]));
    kinds[kind].weight_bytes_per_token = uint64_t(std::llround(bytes[kind]));
    info.ffns.push_back(kinds[kind]);
  }
}

// What depends on the weights as they were laid out.
void Engine::Impl::fill_arithmetic() {
  uint64_t attention = 0, router = 0, ffns = 0;
  double elements = 0;  // in shares of a token: k of E experts
  for (const LayerWeights& w : model->layers) {
    attention += all_bytes(w.q) + all_bytes(w.k) + all_bytes(w.v) + all_bytes(w.o);
    for (const Matrix* m : {&w.router, &w.shared_gate})
      if (m->rows > 0) router += all_bytes(*m);
    for_each_matrix(w, [&](const Matrix& m, double use) { elements += double(m.rows) * double(m.cols) * use; });
  }
  fill_ffns();
  info.bytes_per_token = {{"attention", attention}};
  for (const FfnInfo& ffn : info.ffns) {
    ffns += ffn.weight_bytes_per_token;
    const std::string part = info.experts == 0 ? "ffn" : ffn.kind == "routed" ? "experts" : ffn.kind + " ffn";
    info.bytes_per_token.push_back({part, ffn.weight_bytes_per_token});
  }
  if (router > 0) info.bytes_per_token.push_back({"router", router});
  dense_block_bytes = attention + ffns + router;
  block_elements = uint64_t(std::llround(elements));
  block_weights = count_weights(model->layers);
  dense_head_bytes = all_bytes(model->head);
  info.bytes_per_token.push_back({"head", dense_head_bytes});
  info.weight_bytes = model->weights.matrix_bytes();
  info.from_cache = model->from_cache;
  const LayerWeights& first = model->layers[0];
  const RunContext run = run_context();
  info.file_type = traits(first.ffns[0].gate_up.type).name;
  info.activations_decode = act_name(run.act_type(first.ffns[0].gate_up, Phase::Decode));
  info.activations_prefill = act_name(run.act_type(first.ffns[0].gate_up, Phase::Prefill));
  info.layout = layout_name(layout_of(options), *model);
}

}  // namespace pop
