#include "text/sentencepiece_model.h"

#include <cstring>
#include <memory>

#include "base/error.h"
#include "text/charsmap.h"

namespace pop {
namespace {

// Reads a protobuf message field by field; every length is compared with the bytes that are left.
class Message {
 public:
  Message(std::string_view bytes, const char* name) : rest_(bytes), name_(name) {}

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field_ = key >> 3;
    type_ = static_cast<int>(key & 7);
    if (field_ == 0) fail("{}: expected a field number, found 0", name_);
    if (type_ == 0)
      number_ = varint();
    else if (type_ == 1)
      take(8);
    else if (type_ == 2)
      take(varint());
    else if (type_ == 5)
      take(4);
    else
      fail("{}: expected wire type 0, 1, 2 or 5 in field {}, found {}", name_, field_, type_);
    return true;
  }
  uint64_t field() const { return field_; }

  std::string_view text() const { return expect(2), value_; }
  uint64_t number() const { return expect(0), number_; }
  bool flag() const { return number() != 0; }
  float real() const {
    expect(5);
    float out = 0;
    std::memcpy(&out, value_.data(), sizeof out);
    return out;
  }

 private:
  void expect(int type) const {
    if (type_ != type) fail("{}: expected wire type {} in field {}, found {}", name_, type, field_, type_);
  }
  void take(uint64_t size) {
    if (size > rest_.size()) fail("{}: expected {} bytes in field {}, found {}", name_, size, field_, rest_.size());
    value_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return out;
    }
    fail("{}: expected a whole varint, found a cut or too long one", name_);
  }

  std::string_view rest_, value_;
  const char* name_;
  uint64_t field_ = 0, number_ = 0;
  int type_ = 0;
};

struct TrainerSpec {
  uint64_t model_type = 1;
  bool whitespace_suffix = false;
  std::string_view unk = "<unk>", bos = "<s>", eos = "</s>", pad = "<pad>";
};

struct NormalizerSpec {
  std::string_view name, charsmap;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

void add_piece(std::string_view bytes, TokenizerData& data) {
  std::string_view text;
  float score = 0;
  uint64_t type = 1;
  for (Message piece(bytes, "tokenizer.model: piece"); piece.next();) {
    if (piece.field() == 1) text = piece.text();
    if (piece.field() == 2) score = piece.real();
    if (piece.field() == 3) type = piece.number();
  }
  if (type < 1 || type > 6)
    fail("tokenizer.model: expected a type of 1 to 6 for piece {}, found {}", data.tokens.size(), type);
  data.tokens.emplace_back(text);
  data.scores.push_back(score);
  data.token_types.push_back(static_cast<int32_t>(type));
}

void read_trainer(std::string_view bytes, TrainerSpec& spec) {
  for (Message trainer(bytes, "tokenizer.model: trainer_spec"); trainer.next();) switch (trainer.field()) {
      case 3: spec.model_type = trainer.number(); break;
      case 24: spec.whitespace_suffix = trainer.flag(); break;
      case 45: spec.unk = trainer.text(); break;
      case 46: spec.bos = trainer.text(); break;
      case 47: spec.eos = trainer.text(); break;
      case 48: spec.pad = trainer.text(); break;
      default: break;
    }
}

void read_normalizer(std::string_view bytes, NormalizerSpec& spec) {
  for (Message normalizer(bytes, "tokenizer.model: normalizer_spec"); normalizer.next();) switch (normalizer.field()) {
      case 1: spec.name = normalizer.text(); break;
      case 2: spec.charsmap = normalizer.text(); break;
      case 3: spec.add_dummy_prefix = normalizer.flag(); break;
      case 4: spec.remove_extra_whitespaces = normalizer.flag(); break;
      case 5: spec.escape_whitespaces = normalizer.flag(); break;
      default: break;
    }
}

int32_t find_piece(const TokenizerData& data, std::string_view text, TokenType type) {
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (data.tokens[id] == text && data.token_types[id] == static_cast<int32_t>(type)) return static_cast<int32_t>(id);
  return -1;
}

TextSteps steps_of(const NormalizerSpec& spec, const TokenizerData& data) {
  TextSteps steps;
  if (!spec.charsmap.empty()) {
    std::vector<std::string> kept;
    for (size_t id = 0; id < data.tokens.size(); ++id)
      if (data.token_types[id] == static_cast<int32_t>(TokenType::kUserDefined)) kept.push_back(data.tokens[id]);
    NormalStep step{NormalStep::Kind::kCharsmap};
    step.charsmap = std::make_shared<const Charsmap>(spec.charsmap, kept);
    steps.normal.push_back(std::move(step));
  }
  if (spec.remove_extra_whitespaces) steps.normal.push_back({NormalStep::Kind::kSingleSpaces});
  if (spec.add_dummy_prefix) steps.normal.push_back({NormalStep::Kind::kPrepend, "", " "});
  steps.normal.push_back({NormalStep::Kind::kReplace, " ", kSpaceMark});
  return steps;
}

}  // namespace

TokenizerData read_sentencepiece_model(std::string_view bytes) {
  TokenizerData data;
  data.keys = "tokenizer.model: ";
  TrainerSpec trainer;
  NormalizerSpec normalizer;
  for (Message model(bytes, "tokenizer.model"); model.next();) {
    if (model.field() == 1) add_piece(model.text(), data);
    if (model.field() == 2) read_trainer(model.text(), trainer);
    if (model.field() == 3) read_normalizer(model.text(), normalizer);
    if (model.field() == 5)
      for (Message back(model.text(), "tokenizer.model: denormalizer_spec"); back.next();)
        if (back.field() == 2 && !back.text().empty())
          fail("tokenizer.model: expected no denormalizer_spec, found one (not supported)");
  }
  if (trainer.model_type != 1 && trainer.model_type != 2)
    fail("tokenizer.model: expected model_type 1 (unigram) or 2 (BPE), found {}", trainer.model_type);
  if (trainer.whitespace_suffix)
    fail("tokenizer.model: expected treat_whitespace_as_suffix false, found true (not supported)");
  if (!normalizer.escape_whitespaces)
    fail("tokenizer.model: expected escape_whitespaces true, found false (not supported)");
  data.model = trainer.model_type == 2 ? "llama" : "unigram";
  data.bos = find_piece(data, trainer.bos, TokenType::kControl);
  data.eos = find_piece(data, trainer.eos, TokenType::kControl);
  data.pad = find_piece(data, trainer.pad, TokenType::kControl);
  data.unk = find_piece(data, trainer.unk, TokenType::kUnknown);
  data.add_space_prefix = normalizer.add_dummy_prefix;
  data.strips_space = normalizer.add_dummy_prefix || normalizer.remove_extra_whitespaces;
  data.steps = steps_of(normalizer, data);
  return data;
}

}  // namespace pop
