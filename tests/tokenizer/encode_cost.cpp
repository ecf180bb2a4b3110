// What cost_test.py counts the instructions of: encodes COUNT times one character with a small vocabulary.
//   encode_cost VOCABULARY.json PRE CHARACTER COUNT
#include <fmt/core.h>

#include "text/test_vocabulary.h"

// A name without mangling, so that callgrind can be told to count inside it only.
extern "C" [[gnu::noinline]] size_t measured_encode(const pop::Tokenizer* tokenizer, const std::string* text) {
  return tokenizer->encode(*text, true).size();
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: encode_cost VOCABULARY.json PRE CHARACTER COUNT\n");
    return 2;
  }
  try {
    pop::TokenizerData data = pop::read_vocabulary(argv[1]);
    data.pre = argv[2];  // byte-level BPE only
    const pop::Tokenizer tokenizer(data);
    const std::string text(std::stoul(argv[4]), argv[3][0]);
    fmt::print("{} tokens\n", measured_encode(&tokenizer, &text));
  } catch (const std::exception& error) {
    fmt::print(stderr, "encode_cost: {}\n", error.what());
    return 1;
  }
}
