// The program that check.py drives: ids or pieces of many documents, as bytes to compare.
//   tokenize_file ids|plain-ids|splits VOCABULARY DOCUMENTS.json OUT.bin
// VOCABULARY is what reference.py writes (.json), a tokenizer.json, or a tokenizer.model of SentencePiece (.model...).
// OUT holds, per document, an int32 count and as many int32: token ids (special tokens parsed, or not), or the byte
// lengths of the pre-tokenizer's pieces. It also checks that decode gives the (normalised) text back where no byte
// lacks a token.
#include <fmt/core.h>

#include <fstream>

#include "text/test_vocabulary.h"

namespace {

std::vector<int32_t> piece_lengths(const pop::PreTokenizer& pre, const std::string& text) {
  std::vector<int32_t> out;
  const std::string normal = pre.normalise(text);
  for (const std::string_view piece : pre.split(normal)) out.push_back(static_cast<int32_t>(piece.size()));
  return out;
}

void check_round_trip(const pop::Tokenizer& tokenizer, const pop::PreTokenizer& pre, const std::string& text,
                      const std::vector<int32_t>& ids) {
  std::string expected = pre.normalise(text);
  std::erase_if(expected, [&](char c) { return tokenizer.missing_bytes().find(c) != std::string::npos; });
  if (tokenizer.decode(ids) != expected) pop::fail("decode does not give back the text \"{}\"", pop::printable(text));
}

void run(const std::string& what, const char* vocabulary, const char* documents, const char* out_path) {
  const pop::TokenizerData data = pop::read_vocabulary(vocabulary);
  const pop::Tokenizer tokenizer(data);
  const bool byte_level = !data.pre.empty();
  const pop::PreTokenizer pre(byte_level ? data.pre : "gpt-2");
  std::ofstream out(out_path, std::ios::binary);
  for (const auto& document : pop::read_json(documents)) {
    const auto text = document.get<std::string>();
    const auto values = what == "splits" ? piece_lengths(pre, text) : tokenizer.encode(text, what == "ids");
    if (what == "plain-ids" && byte_level) check_round_trip(tokenizer, pre, text, values);
    const auto count = static_cast<int32_t>(values.size());
    out.write(reinterpret_cast<const char*>(&count), sizeof count);
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(int32_t)));
  }
  if (!out.flush()) pop::fail("{}: cannot be written", out_path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: tokenize_file ids|plain-ids|splits VOCABULARY.json DOCUMENTS.json OUT.bin\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argv[4]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tokenize_file: {}\n", error.what());
    return 1;
  }
}
