// A prompt's logits are tokens x vocabulary floats if held at once (at 512 tokens of Llama 3: 263 MB). They never are, and the
// head computes those of the rows that want them and of no other.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/pop.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "kernels/select.h"
#include "model/activations.h"
#include "model/forward.h"
#include "tests/toy_model.h"

namespace pop {
namespace {

constexpr const char* kTiny = "tests/goldens/tiny-tied.gguf";

// The tiny model with `vocab` tokens: those it has, then made-up ones.
std::string with_vocabulary(int vocab, const std::string& folder) {
  const GgufFile file(kTiny);
  GgufWriter writer;
  std::vector<std::string> tokens;
  for (const GgufKey& key : file.keys())
    if (key.name != "tokenizer.ggml.tokens" && key.name != "tokenizer.ggml.token_type" &&
        key.name != "llama.vocab_size")
      writer.set_payload(key.name, key.value.type(), key.value.bytes());
  for (int i = 0; i < vocab; ++i) tokens.push_back("token-" + std::to_string(i));
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  for (const TensorInfo& info : file.tensors()) {
    const RawTensor raw = file.tensor(info.name);
    const bool embedding = info.name == "token_embd.weight";
    std::vector<int64_t> shape = raw.shape;
    if (embedding) shape[0] = vocab;
    int64_t elements = 1;
    for (const int64_t n : shape) elements *= n;
    std::vector<float> values(static_cast<size_t>(elements), 0.25f);
    if (!embedding) dequantize(raw.type, raw.data.data(), values.data(), elements);
    writer.add_tensor_f32(info.name, DType::F32, shape, values);
  }
  const std::string path = folder + "/vocabulary.gguf";
  writer.write(path);
  return path;
}

// The most memory this process has had, in bytes.
size_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

TEST(LogitsMemory, OfAPromptIsThatOfAFewRows) {
  constexpr int kVocab = 60000, kTokens = 448;
  constexpr size_t kAll = size_t(kTokens) * kVocab * sizeof(float);  // 107 MB
  const test::TemporaryFolder folder;
  Engine engine({.model = with_vocabulary(kVocab, folder.path()), .threads = 1, .context = kTokens});
  std::vector<int32_t> ids;
  for (int i = 0; i < kTokens; ++i) ids.push_back(i * 131 % kVocab);
  std::set<const float*> places;
  RunHooks hooks;
  hooks.on_logits = [&](int, int, std::span<const float> logits) { places.insert(logits.data()); };
  const size_t before = peak_memory();
  const auto scores = engine.session()->score(std::vector<ScoreRequest>{{.ids = ids}}, 1, hooks);
  EXPECT_EQ(scores[0].scored, kTokens - 1);
  EXPECT_LE(places.size(), 64u);
  EXPECT_LT(peak_memory() - before, kAll / 2);
}

// The products of a table, and how many outputs the head has computed.
struct Counting {
  const Matrix* head;
  const KernelTable* kernels;
  int64_t outputs;
};
Counting counting;

void count_head(const Matrix& w, const Acts& x, IndexList list, int begin, int end, float* y, size_t ldy) {
  if (&w == counting.head) counting.outputs += int64_t(end - begin) * x.n;
  counting.kernels->gemm_units(w, x, list, begin, end, y, ldy);
}

TEST(LogitsMemory, TheHeadRunsForTheRowsThatWantLogits) {
  ThreadPool pool(1);
  const std::unique_ptr<Model> model = Model::load(kTiny, {}, pool);
  const int vocab = model->spec.vocab;
  for (const std::vector<int>& wanted : {std::vector<int>{}, {99}, {0, 50, 51}}) {
    counting = {&model->head, &select_kernels("auto"), 0};
    KernelTable kernels = *counting.kernels;
    kernels.gemm_units = count_head;
    RunContext run;
    run.kernels = &kernels;
    run.pool = &pool;
    Activations scratch(model->spec, kernels, 100, 128, 1);
    Sequence sequence;
    sequence.kv = KvCache(model->spec, KvType::F16, 128);
    std::vector<ForwardRow> rows(100, {&sequence, 65, false});
    for (const int row : wanted) rows[size_t(row)].wants_logits = true;
    std::vector<int> got;
    forward(*model, run, scratch, Phase::Prefill, rows, [&](int row, std::span<const float> logits) {
      got.push_back(row);
      EXPECT_EQ(int(logits.size()), vocab);
    });
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(counting.outputs, int64_t(wanted.size()) * vocab);
  }
}

}  // namespace
}  // namespace pop
