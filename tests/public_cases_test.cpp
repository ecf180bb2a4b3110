// Faults that other engines had (docs/public-cases.md), tried on the whole engine and on the program as people use it: damaged and
// foreign files, prompts longer than the context, conversations that share a session, numbers beyond a type's range.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "apps/program_test.h"
#include "engine/pop.h"
#include "tests/isas.h"
#include "tests/toy_model.h"

namespace pop::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kToy = "tests/goldens/tiny-tied.gguf";  // float32, two layers; a token is a byte

// One line on standard error that has `part` in it, nothing on standard output, this exit code.
void expect_line(const Outcome& done, int code, const std::string& part, const std::string& what) {
  EXPECT_EQ(done.code, code) << what << ": " << done.err;
  EXPECT_EQ(done.out, "") << what;
  EXPECT_TRUE(done.err.starts_with("pop: ")) << what << ": " << done.err;
  EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << what << ": " << done.err;
  EXPECT_NE(done.err.find(part), std::string::npos) << what << ": expected " << part << ", found " << done.err;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The toy model with a chat template.
std::string talkative(const Folder& folder, const std::string& chat_template) {
  test::Rewrite change;
  change.add = [&](GgufWriter& w) { w.set_string("tokenizer.chat_template", chat_template); };
  return test::rewritten(kToy, change, folder.path("chat.gguf"));
}

// Every way of using a model; `text`: a file with some.
std::vector<Words> uses(const std::string& model, const std::string& text, const std::string& out) {
  return {{"run", "-m", model, "-p", "abc", "-n", "2"},
          {"score", "-m", model, "-p", "abc"},
          {"chat", "-m", model},
          {"info", "-m", model},
          {"convert", model, "-o", out},
          {"calibrate", "-m", model, "-f", text, "-o", out},
          {"bench", "decode", "-m", model, "-p", "4", "-n", "2"},
          {"eval", "ppl", "-m", model, "-f", text, "--context", "16"},
          {"eval", "kl", "-m", model, "-f", text, "--context", "16", "--decode", "8", "--prune", "pop"}};
}

TEST(Files, CutOnesAreRefusedByEveryCommand) {
  const Folder folder;
  const std::string whole = read_bytes(kToy), text = folder.write("text", std::string(400, 'a'));
  for (const size_t size : {whole.size() * 6 / 10, whole.size() * 99 / 100, whole.size() - 1}) {
    const std::string model = folder.write("cut.gguf", whole.substr(0, size));
    for (const Words& words : uses(model, text, folder.path("out.gguf"))) {
      const Outcome done = pop(words, "Hello\n");
      expect_line(done, 1, "the file is cut or damaged", words[0]);
      EXPECT_NE(done.err.find("cut.gguf: tensor '"), std::string::npos) << done.err;
    }
    EXPECT_FALSE(fs::exists(folder.path("out.gguf")));
  }
  const std::string weights = read_bytes("tests/goldens/hf/tiny-qwen2/model.safetensors");
  fs::copy("tests/goldens/hf/tiny-qwen2", folder.path("hf"));
  std::ofstream(folder.path("hf/model.safetensors"), std::ios::binary) << weights.substr(0, weights.size() - 1);
  expect_line(pop({"run", "-m", folder.path("hf"), "--ids", "1,2"}), 1, "the file is cut or damaged", "folder");
}

// What is missing or not known is named, and a file that is whole is not called damaged.
TEST(Files, WholeOnesThatAreNotRunAreNamedForWhatTheyAre) {
  const Folder folder;
  const auto error = [&](const test::Rewrite& change) {
    const Outcome done = pop({"run", "-m", test::rewritten(kToy, change, folder.path("m.gguf")), "-p", "abc"});
    EXPECT_EQ(done.code, 1);
    EXPECT_EQ(done.err.find("damaged"), std::string::npos) << done.err;
    return done.err;
  };
  const auto expect = [](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  const auto architecture = [&](const char* name) {
    return test::Rewrite{.without = {"general.architecture"},
                         .add = [name](GgufWriter& w) { w.set_string("general.architecture", name); }};
  };
  expect(error(architecture("foo")), "general.architecture: expected one of");
  expect(error(architecture("foo")), "found \"foo\"");
  expect(error(architecture("qwen2")), "'qwen2.block_count' is missing");
  expect(error({.without = {"llama.block_count"}}), "'llama.block_count' is missing");
  const auto tensors = [&](const std::function<bool(std::string&)>& keep) {
    test::Rewrite change;
    change.tensor = [&keep](std::string& name, std::vector<int64_t>&, std::vector<float>&) { return keep(name); };
    return change;
  };
  expect(error(tensors([](std::string& name) { return name != "blk.1.ffn_up.weight"; })),
         "tensor 'blk.1.ffn_up.weight' is missing");
  expect(error(tensors([](std::string& name) {
           if (name == "blk.0.ffn_up.weight") name = "model.layers.0.mlp.up_proj.weight";
           return true;
         })),
         "tensor 'blk.0.ffn_up.weight' is missing");
  expect(error(tensors([](std::string& name) {
           if (name == "blk.0.ffn_down.weight") name = "blk.0.ffn_down_t.weight";
           return true;
         })),
         "tensor 'blk.0.ffn_down.weight' is missing");
  test::Rewrite widths{.without = {"llama.feed_forward_length"}};
  widths.add = [](GgufWriter& w) { w.set_i32s("llama.feed_forward_length", std::vector<int32_t>{100, 48}); };
  expect(error(widths), "'llama.feed_forward_length': expected an integer from");
  GgufWriter bare;
  bare.set_string("general.architecture", "llama");
  bare.write(folder.path("bare.gguf"));
  expect_line(pop({"run", "-m", folder.path("bare.gguf"), "-p", "abc"}), 1, "'llama.block_count' is missing", "bare");
}

TEST(Files, WhatIsMissingIsSaid) {
  const Folder folder;
  fs::create_directory(folder.path("empty"));
  expect_line(pop({"run", "-m", folder.path("empty"), "-p", "x"}), 1, "config.json", "empty folder");
  expect_line(pop({"run", "-m", "tests/goldens/hf/tiny-qwen2", "-p", "x"}), 1,
              "expected a tokenizer, found none (token ids can still be used)", "no tokenizer");
  expect_line(pop({"run", "-m", kToy, "-p", "x", "--max-token", "3"}), 2, "the nearest is --max-tokens", "a typo");
  // Without -m, where no default model was fetched: neither here nor around the program, which looks there too.
  fs::copy_file(POP_PROGRAM, folder.path("empty/alone"));
  const std::string there = "cd '" + folder.path("empty") + "' && HOME=/nonexistent ./alone run -p x 2>err";
  EXPECT_EQ(WEXITSTATUS(std::system(there.c_str())), 1);
  const std::string said = read_bytes(folder.path("empty/err"));
  EXPECT_NE(said.find("scripts/quickstart"), std::string::npos) << said;
}

// The values of one tensor become something else: beyond what a number is, or only other bytes.
TEST(Files, DamagedWeightsAreSeen) {
  const Folder folder;
  const std::string text = folder.write("text", std::string(400, 'a'));
  const auto with_value = [&](const std::string& tensor, float value) {
    test::Rewrite change;
    change.tensor = [&, value](const std::string& name, const std::vector<int64_t>&, std::vector<float>& values) {
      if (name == tensor) values[values.size() / 2] = value;
      return true;
    };
    return test::rewritten(kToy, change, folder.path("bad.gguf"));
  };
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::string model = with_value("blk.0.ffn_down.weight", value);
    for (const Words& words : uses(model, text, folder.path("out"))) {
      if (words[0] != "run" && words[0] != "score" && words[0] != "eval" && words[0] != "calibrate") continue;
      const Outcome done = pop(with(words, {"-q"}));
      EXPECT_EQ(done.code, 1) << words[0] << words[1] << done.out;
      EXPECT_NE(done.err.find("not finite"), std::string::npos) << words[0] << " " << words[1] << ": " << done.err;
    }
    expect_line(pop({"run", "-m", with_value("blk.1.attn_norm.weight", value), "-p", "abc"}), 1,
                "tensor blk.1.attn_norm.weight: expected finite numbers", "a norm");
  }
  // Bytes that are numbers all the same are seen by whoever asks for the hash of all of them.
  const auto hash = [&](const Words& more) {
    return run_json(with({"info", "-m", folder.path("bad.gguf")}, more))["model_sha256"];
  };
  with_value("blk.1.ffn_down.weight", 0.25f);
  const Json before = hash({"--full-hash"});
  with_value("blk.1.ffn_down.weight", 0.5f);
  EXPECT_NE(hash({"--full-hash"}), before);
}

// Never cut, by no command; both numbers are said.
TEST(Context, ALongPromptIsRefusedByEveryCommand) {
  const Folder folder;
  const std::string model = talkative(folder, "{{ messages[-1].content }}"), prompt(100, 'a');
  const std::string expected = "at most 64 tokens (--ctx), found 100";
  const std::string lines = folder.write("lines", "{\"text\":\"abc\"}\n{\"text\":\"" + prompt + "\"}\n");
  const std::vector<Words> cases = {{"run", "-p", prompt},
                                    {"run", "--chat", "-p", prompt},
                                    {"score", "-p", prompt},
                                    {"score", "--lines", lines, "--batch", "4"}};
  for (const Words& words : cases) {
    const Outcome done = pop(with(words, {"-m", model, "-c", "64", "-q"}));
    EXPECT_EQ(done.code, 1) << words[0] << words[1];
    EXPECT_NE(done.err.find(expected), std::string::npos) << words[0] << " " << words[1] << ": " << done.err;
  }
  // A conversation outlives it.
  const Outcome chat = pop({"chat", "-m", model, "-c", "64", "-q", "-n", "3"}, prompt + "\nabc\n");
  EXPECT_EQ(chat.code, 0);
  EXPECT_NE(chat.err.find(expected), std::string::npos) << chat.err;
  EXPECT_FALSE(chat.out.empty());
}

TEST(Context, ItsEndEndsAnAnswer) {
  const Json run = run_json({"run", "-m", kToy, "-p", std::string(60, 'a'), "-n", "50", "-c", "64", "--ignore-eos"});
  EXPECT_EQ(run["finish_reason"], "length");
  EXPECT_EQ(run["ids"].size(), 5u);  // four fit behind the prompt; a fifth was predicted by the last
}

TEST(Chat, WhatATemplateRefusesIsSaidAndTheConversationGoesOn) {
  const Folder folder;
  const std::string model =
      talkative(folder, "{% if 'no' in messages[-1].content %}{{ raise_exception('Only yes, please') }}{% endif %}abc");
  expect_line(pop({"run", "-m", model, "--chat", "-p", "no"}), 1, "chat template line 1: Only yes, please", "run");
  const Outcome chat = pop({"chat", "-m", model, "-q", "-n", "3"}, "no\nyes\n");
  EXPECT_EQ(chat.code, 0);
  EXPECT_NE(chat.err.find("Only yes, please"), std::string::npos) << chat.err;
  EXPECT_EQ(std::count(chat.err.begin(), chat.err.end(), '\n'), 1) << chat.err;
  EXPECT_FALSE(chat.out.empty());
}

// Two conversations that begin alike, by turns on one session and on two: each answer is that of a session of its own.
TEST(Session, AConversationLeavesNothingInTheNext) {
  Engine engine({.model = kToy, .threads = 1, .context = 128});
  const auto prompt = [](int seed, int count) {
    std::vector<int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(i < 10 ? 65 + i : (i * 31 + seed * 57) % 256);
    return ids;
  };
  const std::vector<std::vector<int32_t>> prompts = {prompt(1, 30), prompt(2, 24)};
  const GenerateOptions options{.max_tokens = 8, .ignore_eos = true};
  for (const char* method : {"dense", "pop", "pop+"}) {
    const PruneSettings prune{.method = method};
    std::vector<std::string> cold;
    for (const auto& ids : prompts) cold.push_back(engine.session(prune)->generate(ids, options).logits_hash);
    const std::vector<std::unique_ptr<pop::Session>> sessions = [&] {
      std::vector<std::unique_ptr<pop::Session>> made;
      for (int i = 0; i < 2; ++i) made.push_back(engine.session(prune));
      return made;
    }();
    for (int turn = 0; turn < 20; ++turn)
      for (size_t i = 0; i < prompts.size(); ++i) {
        const GenerateResult one = sessions[0]->generate(prompts[i], options);
        EXPECT_EQ(one.logits_hash, cold[i]) << method << " " << turn;
        EXPECT_EQ(one.cached_tokens, 0);
        EXPECT_EQ(sessions[i]->generate(prompts[i], options).logits_hash, cold[i]) << method << " " << turn;
      }
  }
}

// Whichever key of a file says that a token ends a generation, it ends there, and the token is not shown.
TEST(Session, EndsAtAnyOfTheEnds) {
  const Folder folder;
  const std::vector<int32_t> prompt = {72, 101, 108, 108, 111};
  const auto run = [&](const std::string& model, bool ignore) {
    Engine engine({.model = model, .threads = 1});
    return engine.session()->generate(prompt,
                                      {.max_tokens = 12, .sampling = {.temp = 9, .seed = 7}, .ignore_eos = ignore});
  };
  const std::vector<int32_t> free = run(kToy, true).ids;
  size_t at = 3;  // an id that was not written before
  while (at + 1 < free.size() && std::count(free.begin(), free.begin() + std::ptrdiff_t(at), free[at]) > 0) ++at;
  ASSERT_EQ(std::count(free.begin(), free.begin() + std::ptrdiff_t(at), free[at]), 0);
  for (const std::string key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    test::Rewrite change;
    if (key == "eos_token_id") change.without = {"tokenizer.ggml.eos_token_id"};
    change.add = [&](GgufWriter& w) { w.set_u32("tokenizer.ggml." + key, uint32_t(free[at])); };
    const std::string model = test::rewritten(kToy, change, folder.path("ends.gguf"));
    const GenerateResult ended = run(model, false);
    EXPECT_EQ(ended.finish_reason, "stop") << key;
    EXPECT_EQ(ended.ids, std::vector<int32_t>(free.begin(), free.begin() + std::ptrdiff_t(at))) << key;
    EXPECT_EQ(run(model, true).ids, free) << key;
  }
}

std::vector<std::vector<float>> logits_of(const EngineOptions& options, int count) {
  Engine engine(options);
  ScoreRequest request;
  for (int i = 0; i < count; ++i) request.ids.push_back((i * i * 7 + i * 31) % 256);
  std::vector<std::vector<float>> rows;
  RunHooks hooks;
  hooks.on_logits = [&](int, int, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
  engine.session()->score({&request, 1}, 1, hooks);
  return rows;
}

// Activations of 1e5 and more, which a half float does not hold: sums are float32, whatever the weights are.
TEST(Numbers, ActivationsBeyondHalfFloats) {
  const Folder folder;
  for (const DType type : {DType::F16, DType::BF16}) {
    const auto scaled = [&](const std::string& tensor, float by, const char* name) {
      test::Rewrite change;
      change.tensor = [&](const std::string& is, const std::vector<int64_t>&, std::vector<float>& values) {
        if (is.ends_with(tensor))
          for (float& v : values) v *= by;
        return true;
      };
      return test::rewritten(kToy, change, folder.path(name));
    };
    const std::string large = test::requantised(scaled("ffn_up.weight", 1 << 17, "large.gguf"), type, folder.path(""));
    const auto expected = logits_of({.model = test::requantised(large, DType::F32, folder.path("")),
                                     .threads = 1,
                                     .isa = "scalar",
                                     .activations = "f32",
                                     .kv = "f32"},
                                    40);
    for (const std::string& isa : test::isas()) {
      const auto found = logits_of({.model = large, .threads = 1, .isa = isa}, 40);
      ASSERT_EQ(found.size(), expected.size());
      size_t compared = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        const auto best = std::max_element(expected[i].begin(), expected[i].end());
        const auto id = size_t(best - expected[i].begin());
        std::vector<float> others = expected[i];
        others[id] = -1e30f;
        if (*best - *std::max_element(others.begin(), others.end()) < 0.3f) continue;  // rounding may decide
        ++compared;
        EXPECT_EQ(std::max_element(found[i].begin(), found[i].end()) - found[i].begin(), std::ptrdiff_t(id))
            << isa << " " << traits(type).name << " " << i;
      }
      EXPECT_GT(compared, 10u) << isa << " " << traits(type).name;
    }
    // What only the cache cannot hold is said, with the option that holds it.
    const std::string values = scaled("attn_v.weight", 1 << 20, "values.gguf");
    const Outcome half = pop({"score", "-m", values, "-p", "abcdef"});
    EXPECT_EQ(half.code, 1);
    EXPECT_NE(half.err.find("beyond the range of --kv"), std::string::npos) << half.err;
    EXPECT_EQ(pop({"score", "-m", values, "-p", "abcdef", "--kv", "bf16"}).code, 0);
  }
}

// A llama of `heads` and `kv_heads` of 8 dimensions. `repeated`: the same with a key head for every query head, so that no head
// has to be found for another.
std::string grouped(int heads, int kv_heads, bool repeated, const Folder& folder) {
  const auto row = [](const std::string& name, int64_t row, int64_t cols) {
    std::vector<float> values;
    uint32_t random = uint32_t(std::hash<std::string>()(name)) + uint32_t(row) * 2654435761u;
    for (int64_t i = 0; i < cols; ++i) {
      random = random * 1664525u + 1013904223u;
      values.push_back((float(random >> 8) / float(1 << 24) - 0.5f) * 0.6f);
    }
    return values;
  };
  test::Rewrite change{.without = {"llama.attention.head_count", "llama.attention.head_count_kv",
                                   "llama.rope.dimension_count", "llama.attention.key_length",
                                   "llama.attention.value_length"}};
  change.add = [&](GgufWriter& w) {
    w.set_u32("llama.attention.head_count", uint32_t(heads));
    w.set_u32("llama.attention.head_count_kv", uint32_t(repeated ? heads : kv_heads));
    for (const char* key : {"rope.dimension_count", "attention.key_length", "attention.value_length"})
      w.set_u32(std::string("llama.") + key, 8);
  };
  change.tensor = [&](const std::string& name, std::vector<int64_t>& shape, std::vector<float>& values) {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("attn_output.")) shape = {64, 8 * heads};
    if (is("attn_q.")) shape = {8 * heads, 64};
    const bool shared = is("attn_k.") || is("attn_v.");
    if (shared) shape = {8 * (repeated ? heads : kv_heads), 64};
    if (!is("attn_") || is("norm")) return true;
    values.clear();
    for (int64_t r = 0; r < shape[0]; ++r) {
      const int64_t from = shared && repeated ? r / 8 / (heads / kv_heads) * 8 + r % 8 : r;
      const std::vector<float> one = row(name, from, shape[1]);
      values.insert(values.end(), one.begin(), one.end());
    }
    return true;
  };
  return test::rewritten(kToy, change, folder.path(repeated ? "repeated.gguf" : "grouped.gguf"));
}

TEST(Numbers, EveryQueryHeadHasTheKeysOfItsGroup) {
  const Folder folder;
  for (const std::pair<int, int>& counts : {std::pair{14, 2}, {28, 4}, {6, 3}, {5, 1}, {4, 4}})
    for (const std::string& isa : test::isas()) {
      const auto run = [&](bool repeated) {
        return logits_of({.model = grouped(counts.first, counts.second, repeated, folder),
                          .threads = 1,
                          .isa = isa,
                          .activations = "f32",
                          .kv = "f32",
                          .prefill_chunk = 7},
                         40);
      };
      const auto found = run(false), expected = run(true);
      float worst = 0;
      for (size_t i = 0; i < found.size(); ++i)
        for (size_t j = 0; j < found[i].size(); ++j) worst = std::max(worst, std::abs(found[i][j] - expected[i][j]));
      EXPECT_LE(worst, 1e-4f) << isa << " " << counts.first << "/" << counts.second;
    }
  const auto error = [&](int heads, int kv_heads) {
    try {
      Engine({.model = grouped(heads, kv_heads, false, folder), .threads = 1});
      return std::string();
    } catch (const Exception& e) {
      return std::string(e.what());
    }
  };
  EXPECT_NE(error(3, 2).find("llama.attention.head_count_kv: expected a divisor of head_count 3"), std::string::npos)
      << error(3, 2);
}

}  // namespace
}  // namespace pop::app
