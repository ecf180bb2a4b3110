#include "apps/convert/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/whole_file.h"
#include "engine/text_model.h"
#include "text/hf_folder.h"
#include "text/normalize.h"
#include "text/tokenizer_writer.h"

namespace pop::app {
namespace {

using nlohmann::ordered_json;

// A vocabulary by scores goes into GGUF as tokenizer.model has it; tokenizer.json keeps merges in place of the scores. Whether BOS
// comes first is the rule of the file that the folder runs with, which is tokenizer.json.
FolderText read_text(const Model& model) {
  const std::string& folder = model.folder()->path();
  FolderText text = read_folder_text(folder, model.spec.vocab);
  if (text.tokenizer && text.tokenizer->model != "gpt2") {
    const Tokenizer runs(*text.tokenizer);
    text = read_folder_text(folder, model.spec.vocab, true);
    text.tokenizer->add_bos = runs.add_bos();
    if (runs.add_bos()) text.tokenizer->bos = runs.bos();
  }
  if (text.tokenizer && text.tokenizer->model != "gpt2" && text.tokenizer->model != "llama")
    fail("{}/{}: expected a byte-level BPE, or a SentencePiece BPE in tokenizer.model, found {}", folder,
         text.tokenizer_file, text.tokenizer->model == "unigram" ? "a unigram model" : "a BPE of characters");
  return text;
}

std::string pre_name(const TokenizerData& data, const std::string& file) {
  if (const auto name = PreTokenizer::name_of(data.steps.value())) return std::string(*name);
  fail("{}: pre_tokenizer: expected one that has a name in GGUF files ({}), found another", file,
       fmt::join(PreTokenizer::names(), ", "));
}

void refuse_other_spaces(const TokenizerData& data, const std::string& file) {
  for (const NormalStep& step : data.steps.value().normal)
    if (step.kind == NormalStep::Kind::kCharsmap || step.kind == NormalStep::Kind::kSingleSpaces)
      fail("{}: normalizer_spec: expected one that GGUF can describe (identity, spaces kept), found {}", file,
           step.kind == NormalStep::Kind::kCharsmap ? "a precompiled_charsmap" : "remove_extra_whitespaces");
}

// GGUF files have a text for every row of the embedding.
std::vector<std::string> texts_of(const TokenizerData& data) {
  std::vector<std::string> texts = data.tokens;
  for (size_t id = 0; id < texts.size(); ++id) {
    if (data.token_types[id] == int32_t(TokenType::kUnused)) texts[id] = fmt::format("[PAD{}]", id);
    if (data.model == "llama" && data.token_types[id] == int32_t(TokenType::kUserDefined))
      texts[id] = replace_all(texts[id], kSpaceMark, " ");  // as converters write them
  }
  return texts;
}

// Beside eos: the first other end of a generation is eot, the second eom.
std::vector<int32_t> other_ends(const TokenizerData& data) {
  std::vector<int32_t> ends;
  for (const int32_t id : data.ends)
    if (id != data.eos && id < int32_t(data.tokens.size()) && std::find(ends.begin(), ends.end(), id) == ends.end())
      ends.push_back(id);
  return ends;
}

void write_ids(const TokenizerData& data, GgufWriter& out, Notes& notes) {
  const auto id = [&](const char* key, int32_t value) {
    if (value >= 0) out.set_u32(std::string("tokenizer.ggml.") + key, uint32_t(value));
  };
  const std::vector<int32_t> ends = other_ends(data);
  id("bos_token_id", data.bos);
  id("eos_token_id", data.eos);
  id("unknown_token_id", data.unk);
  id("padding_token_id", data.pad);
  if (!ends.empty()) id("eot_token_id", ends[0]);
  if (ends.size() > 1) id("eom_token_id", ends[1]);
  if (ends.size() > 2)
    notes.push_back(fmt::format("of {} tokens that end a generation, GGUF has keys for 3", ends.size() + 1));
  if (data.add_bos) out.set_bool("tokenizer.ggml.add_bos_token", *data.add_bos && data.bos >= 0);
  if (data.add_eos) out.set_bool("tokenizer.ggml.add_eos_token", *data.add_eos && data.eos >= 0);
}

void note_lost_flags(const TokenizerData& data, Notes& notes) {
  const auto lost = [](const AddedToken& t) { return t.single_word || t.lstrip || t.rstrip || t.normalized; };
  const auto count = std::count_if(data.added.begin(), data.added.end(), lost);
  if (count > 0)
    notes.push_back(
        fmt::format("lstrip, rstrip, single_word or normalized of {} added tokens: GGUF does not keep them", count));
}

void write_file(const std::string& path, const std::string& bytes) {
  WholeFile file(path);
  file.write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  file.become_whole();
}

ordered_json tokenizer_config(const TokenizerData& data, const Tokenizer& tokenizer, int context) {
  ordered_json config;
  const bool pieces = data.model == "llama";
  config["tokenizer_class"] = pieces ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
  for (const auto& [key, id] :
       {std::pair{"bos_token", data.bos}, {"eos_token", data.eos}, {"unk_token", data.unk}, {"pad_token", data.pad}})
    if (id >= 0 && size_t(id) < data.tokens.size()) config[key] = data.tokens[size_t(id)];
  if (pieces) {
    config["add_bos_token"] = tokenizer.add_bos();
    config["add_eos_token"] = false;
    config["legacy"] = true;  // what follows a special token gets a space, as GGUF readers have it
  }
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = context;
  return config;
}

}  // namespace

void write_vocabulary(const Model& model, GgufWriter& out, Notes& notes) {
  const FolderText text = read_text(model);
  if (!text.chat_template.empty()) out.set_string("tokenizer.chat_template", text.chat_template);
  if (!text.tokenizer) {
    out.set_string("tokenizer.ggml.model", "none");
    notes.emplace_back("the folder has no tokenizer: the file runs with --ids only");
    return;
  }
  const TokenizerData& data = *text.tokenizer;
  const std::string file = model.folder()->path() + '/' + text.tokenizer_file;
  out.set_string("tokenizer.ggml.model", data.model);
  if (data.model == "gpt2") {
    out.set_string("tokenizer.ggml.pre", pre_name(data, file));
  } else {
    refuse_other_spaces(data, file);
    out.set_string("tokenizer.ggml.pre", "default");
  }
  out.set_strings("tokenizer.ggml.tokens", texts_of(data));
  if (data.model == "llama") {
    const std::vector<float> scores(data.scores.begin(), data.scores.end());
    out.set_f32s("tokenizer.ggml.scores", scores);
  }
  out.set_i32s("tokenizer.ggml.token_type", data.token_types);
  if (data.model == "gpt2") out.set_strings("tokenizer.ggml.merges", data.merges);
  write_ids(data, out, notes);
  if (data.model == "llama") out.set_bool("tokenizer.ggml.add_space_prefix", data.add_space_prefix.value_or(true));
  note_lost_flags(data, notes);
}

ordered_json write_vocabulary(const GgufFile& file, const ModelSpec& spec, const std::string& folder, Notes& notes) {
  ordered_json ids = ordered_json::object();
  const std::string chat = file.get_string("tokenizer.chat_template", "");
  if (!chat.empty()) write_file(folder + "/chat_template.jinja", chat);
  if (!has_tokenizer(file)) {
    notes.emplace_back("the file has no tokenizer: the folder has none");
    return ids;
  }
  const TokenizerData data = read_tokenizer(file);
  const Tokenizer tokenizer(data);
  if (data.model == "llama")
    write_file(folder + "/tokenizer.model", write_sentencepiece_model(data));
  else
    write_file(folder + "/tokenizer.json", write_tokenizer_json(data, tokenizer.add_bos()));
  write_file(folder + "/tokenizer_config.json", tokenizer_config(data, tokenizer, spec.context_trained).dump(2) + '\n');
  if (data.add_eos.value_or(false)) notes.emplace_back("add_eos_token is not kept: this engine does not apply it");
  if (data.bos >= 0) ids["bos_token_id"] = data.bos;
  if (!tokenizer.end_of_generation().empty()) ids["eos_token_id"] = tokenizer.end_of_generation();
  if (data.pad >= 0) ids["pad_token_id"] = data.pad;
  write_file(folder + "/generation_config.json", ids.dump(2) + '\n');
  return ids;
}

}  // namespace pop::app
