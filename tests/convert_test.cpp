// pop convert and --load-as: what comes out is the same model. That other programs read it as such is python/check_convert.py's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/program_test.h"
#include "formats/hf_folder.h"
#include "formats/safetensors_writer.h"
#include "tests/toy_model.h"

namespace pop::app {
namespace {

namespace fs = std::filesystem;

const char* const kFolders[] = {"tiny-llama3",   "tiny-mistral",   "tiny-mixtral",  "tiny-qwen2",     "tiny-qwen2-yarn",
                                "tiny-qwen2moe", "tiny-qwen3",     "tiny-qwen3moe", "tiny-gemma2",    "tiny-gemma3",
                                "tiny-phi3",     "tiny-phi3-long", "tiny-olmoe",    "tiny-olmoe-clip"};

std::string golden_folder(const std::string& name) { return "tests/goldens/hf/" + name; }

void convert(const std::string& from, const std::string& to, const Words& more = {}) {
  Words words = {"convert", from, "-o", to};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome done = pop(words);
  ASSERT_EQ(done.code, 0) << from << ": " << done.err;
}

// Of eight tokens, half of them decoded, in float32.
std::string hash_of(const std::string& model, const Words& more = {}) {
  Words words = {"score", "-m", model, "--ids", "5,77,1,130,9,200,31,4", "--split", "4", "--activations", "f32"};
  words.insert(words.end(), more.begin(), more.end());
  return run_json(words)["logits_hash"];
}

std::map<std::string, std::string> tensors_of(const TensorSource& source) {
  std::map<std::string, std::string> out;
  for (const TensorInfo& info : source.tensors())
    out[info.name] =
        info.type_text + shape_text(info.shape) + std::string(reinterpret_cast<const char*>(info.data), info.bytes);
  return out;
}

// A copy of a golden wide enough that blocks of every type divide its rows; with a head of its own or without.
std::string wide(bool tied, const std::string& folder) {
  const std::string path = test::widened("tests/goldens/tiny-tied.gguf", DType::BF16, 256, 512, folder);
  if (tied) return path;
  const GgufFile file(path);
  GgufWriter out;
  for (const GgufKey& key : file.keys()) out.set_payload(key.name, key.value.type(), key.value.bytes());
  for (const TensorInfo& info : file.tensors()) {
    const RawTensor raw = file.tensor(info.name);
    out.add_tensor_view(info.name, raw.type, raw.shape, raw.data);
    if (info.name == "token_embd.weight") out.add_tensor_view("output.weight", raw.type, raw.shape, raw.data);
  }
  out.write(folder + "/untied.gguf");
  return folder + "/untied.gguf";
}

TEST(Convert, AFolderAndItsGgufFileGiveTheSameBits) {
  for (const char* name : kFolders) {
    const Folder folder;
    convert(golden_folder(name), folder.path("m.gguf"));
    EXPECT_EQ(hash_of(folder.path("m.gguf")), hash_of(golden_folder(name))) << name;
  }
}

TEST(Convert, ThereAndBackEveryTensorIsTheSame) {
  for (const char* name : kFolders) {
    const Folder folder;
    convert(golden_folder(name), folder.path("m.gguf"));
    convert(folder.path("m.gguf"), folder.path("back"));
    const auto before = tensors_of(HfFolder(golden_folder(name))), after = tensors_of(HfFolder(folder.path("back")));
    EXPECT_TRUE(before == after) << name;
    EXPECT_EQ(hash_of(folder.path("back")), hash_of(golden_folder(name))) << name;
  }
}

TEST(Convert, HalvesOfFoldersStayThemselves) {
  for (const char* type : {"bf16", "f16"}) {
    const Folder folder;
    convert("tests/goldens/tiny-llama3.gguf", folder.path("hf"), {"--type", type});
    convert(folder.path("hf"), folder.path("m.gguf"));
    convert(folder.path("m.gguf"), folder.path("back"));
    EXPECT_TRUE(tensors_of(HfFolder(folder.path("hf"))) == tensors_of(HfFolder(folder.path("back")))) << type;
    EXPECT_EQ(hash_of(folder.path("hf")), hash_of(folder.path("m.gguf"))) << type;
  }
}

// What the values of matrices of F8_E4M3 are, tests/f8_test.cpp compares with PyTorch.
TEST(Convert, FoldersOfF8GiveTheFileOfTheirValues) {
  for (const std::string name : {"blocks", "matrices", "rows"}) {
    const Folder folder;
    for (const Words& type : {Words{}, Words{"--type", "q8_0"}}) {
      convert("tests/goldens/f8/" + name, folder.path("f8.gguf"), type);
      convert("tests/goldens/f8/" + name + "-bf16", folder.path("bf16.gguf"), type);
      EXPECT_TRUE(tensors_of(GgufFile(folder.path("f8.gguf"))) == tensors_of(GgufFile(folder.path("bf16.gguf"))))
          << name;
      fs::remove(folder.path("f8.gguf"));
      fs::remove(folder.path("bf16.gguf"));
    }
  }
}

TEST(Convert, GgufToGgufKeepsWhatIsNoWeight) {
  const Folder folder;
  convert("tests/goldens/tiny-q4_1.gguf", folder.path("same.gguf"));
  EXPECT_TRUE(read_bytes("tests/goldens/tiny-q4_1.gguf") == read_bytes(folder.path("same.gguf")));
  convert("tests/goldens/tiny-q4_1.gguf", folder.path("f32.gguf"), {"--type", "f32"});
  EXPECT_EQ(hash_of(folder.path("f32.gguf")), hash_of("tests/goldens/tiny-q4_1.gguf"));
}

// The rule of docs/formats.md, on a model with a head of its own and on one whose head is its embedding.
TEST(Convert, TypesAreThoseOfTheRule) {
  const Folder folder;
  for (const bool tied : {false, true}) {
    convert(wide(tied, folder.path("")), folder.path("m.gguf"), {"--type", "q4_K", "--force"});
    const GgufFile file(folder.path("m.gguf"));
    for (const TensorInfo& info : file.tensors()) {
      const bool head = info.name == (tied ? "token_embd.weight" : "output.weight");
      EXPECT_EQ(info.type_text, info.shape.size() == 1 ? "F32" : head ? "Q6_K" : "Q4_K") << info.name;
    }
    EXPECT_EQ(file.get_u64("general.file_type"), 14u);
  }
  // Rows of 64, 96 and 40: no blocks of 256, and of 32 only for the first two.
  convert(golden_folder("tiny-qwen2moe"), folder.path("moe.gguf"), {"--type", "q6_k"});
  const GgufFile moe(folder.path("moe.gguf"));
  EXPECT_EQ(moe.find("blk.0.ffn_gate_exps.weight")->type_text, "Q8_0");
  EXPECT_EQ(moe.find("blk.0.ffn_gate_inp.weight")->type_text, "F32");
  EXPECT_EQ(moe.find("blk.0.ffn_gate_inp_shexp.weight")->type_text, "F32");
  convert(golden_folder("tiny-qwen3"), folder.path("odd.gguf"), {"--type", "q8_0"});
  EXPECT_EQ(GgufFile(folder.path("odd.gguf")).find("blk.0.ffn_down.weight")->type_text, "F16");  // rows of 75
}

TEST(LoadAs, GivesTheBitsOfTheConvertedFile) {
  const Folder folder;
  const Words models = {wide(false, folder.path("")), golden_folder("tiny-llama3"), golden_folder("tiny-qwen2moe")};
  for (const std::string& model : models)
    for (const std::string type : {"f32", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q4_k", "q6_k"}) {
      convert(model, folder.path("m.gguf"), {"--type", type, "--force"});
      EXPECT_EQ(hash_of(model, {"--load-as", type}), hash_of(folder.path("m.gguf"))) << model << " " << type;
    }
  const Json run = run_json({"score", "-m", models[0], "--ids", "1,2,3", "--load-as", "q4_0"});
  EXPECT_EQ(run["load_as"], "Q4_0");
  EXPECT_NE(run["model_sha256"], run_json({"score", "-m", models[0], "--ids", "1,2,3"})["model_sha256"]);
}

TEST(LoadAs, HasACacheOfItsOwn) {
  const Folder folder;
  const std::string model = golden_folder("tiny-llama3");
  const Words cached = {"--load-as", "q8_0", "--cache", folder.path("cache")};
  const std::string plain = hash_of(model), quantised = hash_of(model, {"--load-as", "q8_0"});
  EXPECT_NE(plain, quantised);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(hash_of(model, cached), quantised);
  EXPECT_EQ(hash_of(model, {"--cache", folder.path("cache")}), plain);
}

TEST(Convert, VocabulariesComeBackTheSame) {
  const Folder folder;
  convert("tests/goldens/tiny-tied.gguf", folder.path("hf"));
  convert(folder.path("hf"), folder.path("m.gguf"));
  const GgufFile before("tests/goldens/tiny-tied.gguf"), after(folder.path("m.gguf"));
  for (const GgufKey& key : before.keys()) {
    // Byte-level vocabularies have no use for an unknown token, and tokenizer.json would give it one.
    if (!key.name.starts_with("tokenizer.") || key.name.ends_with("unknown_token_id")) continue;
    const GgufValue* found = after.find_key(key.name);
    ASSERT_NE(found, nullptr) << key.name;
    EXPECT_TRUE(std::ranges::equal(found->bytes(), key.value.bytes())) << key.name << ": " << found->text();
  }
  for (const std::string& model : {folder.path("hf"), folder.path("m.gguf")})
    EXPECT_EQ(run_json({"tokenize", "-m", model, "-p", "a <s> b\n"})["ids"],
              run_json({"tokenize", "-m", "tests/goldens/tiny-tied.gguf", "-p", "a <s> b\n"})["ids"]);
}

// A folder with tokenizer.json runs with that, also in whether BOS comes first, though the vocabulary of a GGUF file is that of the
// tokenizer.model beside it.
TEST(Convert, BosIsTheRuleThatTheFolderRunsWith) {
  const Folder folder;
  const std::string hf = folder.path("hf"), goldens = "tests/tokenizer/goldens/";
  fs::create_directory(hf);
  std::ofstream(hf + "/config.json")
      << R"({"architectures":["LlamaForCausalLM"],"num_hidden_layers":1,"hidden_size":32,"intermediate_size":32,)"
         R"("vocab_size":1600,"num_attention_heads":2,"max_position_embeddings":64,"rms_norm_eps":1e-5,)"
         R"("tie_word_embeddings":true})";
  SafetensorsWriter weights;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    weights.add("model." + name + ".weight", DType::F32, shape,
                [](uint64_t, std::span<uint8_t> bytes) { std::fill(bytes.begin(), bytes.end(), uint8_t(0)); });
  };
  add("embed_tokens", {1600, 32});
  add("norm", {32});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(std::string("layers.0.") + norm, {32});
  for (const char* matrix : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    add(std::string("layers.0.") + matrix, {32, 32});
  weights.write(hf + "/model.safetensors");
  fs::copy_file(goldens + "sentencepiece/llama.model", hf + "/tokenizer.model");
  Json tokenizer = Json::parse(read_bytes(goldens + "json/char_bpe.json"));
  const auto bos = [](const std::string& model) { return run_json({"score", "-m", model, "--ids", "5,6"})["bos"]; };
  const auto expect = [&](const char* expected, const char* what) {
    std::ofstream(hf + "/tokenizer.json") << tokenizer;
    convert(hf, folder.path("m.gguf"), {"--force"});
    EXPECT_EQ(bos(hf), expected) << what;
    EXPECT_EQ(bos(folder.path("m.gguf")), expected) << what;
    EXPECT_EQ(GgufFile(folder.path("m.gguf")).get_string("tokenizer.ggml.model"), "llama");
  };
  expect("added", "by the post-processor");
  tokenizer["post_processor"] = nullptr;
  expect("not added", "without one");
  std::ofstream(hf + "/tokenizer_config.json") << R"({"bos_token":"<s>","add_bos_token":true})";
  expect("added", "by the configuration");
}

TEST(Convert, WhatIsThereIsNotLost) {
  const Folder folder;
  const std::string there = folder.write("m.gguf", "precious");
  const std::string folder_of_files = folder.path("files");
  fs::create_directory(folder_of_files);
  std::ofstream(folder_of_files + "/x") << "precious";
  const auto expect = [](const Words& words, int code, const std::string& part) {
    const Outcome done = pop(words);
    EXPECT_EQ(done.code, code) << done.err;
    EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
  };
  const std::string source = golden_folder("tiny-qwen2"), gguf = "tests/goldens/tiny-tied.gguf";
  expect({"convert", source, "-o", there}, 1, "m.gguf: there already; --force replaces it");
  expect({"convert", gguf, "-o", folder_of_files, "--force"}, 1, "found one with files in it");
  expect({"convert", source, "-o", folder.path("hf")}, 2, "a folder is converted to GGUF only");
  expect({"convert", gguf, "-o", folder.path("hf"), "--type", "q8_0"}, 2, "--type: expected f32, f16 or bf16");
  expect({"convert", gguf, "-o", folder.path("x.gguf"), "--type", "q4k"}, 2, "the nearest is q4_k");
  expect({"convert", gguf, "-o", folder.path("none/x.gguf")}, 1, "none/x.gguf: cannot be written");
  expect({"convert", source, "-o", folder.path("x-00001-of-00002.gguf")}, 1, "not of a part of several files");
  expect({"convert", gguf}, 2, "expected where to write, -o OUT");
  expect({"convert", "-o", there}, 2, "expected a model");
  EXPECT_EQ(read_bytes(there), "precious");
  convert(source, there, {"--force"});
  EXPECT_EQ(GgufFile(there).get_string("general.architecture"), "qwen2");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("")), {}), 2);  // nothing else was left
}

// Told to end in any of the ways programs are told, in the middle of writing either form: nothing is left.
TEST(Convert, ASignalLeavesNothing) {
  const Folder folder;
  const std::string source = test::widened("tests/goldens/tiny-tied.gguf", DType::BF16, 1024, 8192, folder.path(""));
  fs::create_directory(folder.path("to"));
  const auto begun = [&](const std::string&) {
    return fs::directory_iterator(folder.path("to")) != fs::directory_iterator();
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    for (const char* to : {"to/hf", "to/m.gguf"}) {
      const Outcome done =
          pop_signalled({"convert", source, "-o", folder.path(to), "--type", "f32"}, "", signal, begun);
      EXPECT_EQ(done.code, 128 + signal) << to << done.err;
      EXPECT_EQ(done.err, "interrupted; nothing was written\n");
      EXPECT_FALSE(begun("")) << to << " " << signal;
    }
}

// The folder's permissions are those of any new folder; matrices of blocks are said to be rounded, others are what they were.
TEST(Convert, AFolderWithoutAType) {
  const Folder folder;
  fs::create_directory(folder.path("usual"));
  const auto converted = [&](const std::string& model, const std::string& to) {
    return run_json({"convert", "tests/goldens/" + model + ".gguf", "-o", folder.path(to)});
  };
  EXPECT_EQ(converted("tiny-tied", "plain")["notes"].size(), 0u);
  EXPECT_EQ(fs::status(folder.path("plain")).permissions(), fs::status(folder.path("usual")).permissions());
  const Json blocks = converted("tiny-q4_1", "blocks");
  EXPECT_NE(blocks["notes"].dump().find("rounded to F16"), std::string::npos) << blocks;
}

// 1e38 is no half float, and NaN no number: named, and nothing is written.
TEST(Convert, ValuesThatATypeCannotHoldAreNamed) {
  const Folder folder;
  for (const float value : {1e38f, std::nanf("")}) {
    const std::string source = test::edited(
        "tests/goldens/tiny-qwen2.gguf", {},
        [&](const std::string& name, const std::vector<int64_t>&, std::vector<float>& values) {
          if (name == "blk.1.ffn_up.weight") values[100] = value;
        },
        folder.path("bad.gguf"));
    for (const char* type : {"f16", "bf16"}) {
      if (std::isfinite(value) && std::string(type) == "bf16") continue;  // which holds it
      const std::string expected = fmt::format("tensor blk.1.ffn_up.weight: expected values that {} can hold, found",
                                               type[0] == 'f' ? "F16" : "BF16");
      const Outcome done = pop({"convert", source, "-o", folder.path("x.gguf"), "--type", type});
      EXPECT_EQ(done.code, 1);
      EXPECT_NE(done.err.find(expected), std::string::npos) << done.err;
      const Outcome loaded = pop({"score", "-m", source, "--ids", "1,2", "--load-as", type});
      EXPECT_EQ(loaded.code, 1);
      EXPECT_NE(loaded.err.find(expected), std::string::npos) << loaded.err;
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("")), {}), 1);
  }
}

}  // namespace
}  // namespace pop::app
