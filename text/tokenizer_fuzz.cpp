// libFuzzer entry: any bytes become ids of the vocabulary and the same bytes again, whole and token by token.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target tokenizer_fuzz
//   build-fuzz/text/tokenizer_fuzz -max_len=4096 NEW_FOLDER
#include <cstdlib>
#include <string>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

// GPT-2's byte alphabet (printable bytes stand for themselves, the others follow from U+0100 on), a few merges, one token
// of each other kind. The first byte of the input chooses the pre-tokenizer.
pop::TokenizerData vocabulary(const char* pre) {
  pop::TokenizerData data;
  data.model = "gpt2";
  data.pre = pre;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    std::string token;
    pop::utf8_append(token, printable ? byte : next++);
    data.tokens.push_back(token);
  }
  for (const char* merge : {"a b", "ab a", "\u0120 a", "0 0", "00 00", "\u010a \u010a", "\u00c3 \u00a9"}) {
    data.merges.emplace_back(merge);
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    data.tokens.push_back(joined);
  }
  data.token_types.assign(data.tokens.size(), 1);
  for (const char* token : {"<s>", "</s>", "[X]"}) data.tokens.emplace_back(token);
  data.token_types.insert(data.token_types.end(), {3, 3, 4});
  data.bos = int32_t(data.tokens.size()) - 3;
  data.eos = data.bos + 1;
  return data;
}

void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const pop::Tokenizer kTokenizers[] = {
      pop::Tokenizer(vocabulary("smollm")),     pop::Tokenizer(vocabulary("gpt-2")),
      pop::Tokenizer(vocabulary("llama-bpe")),  pop::Tokenizer(vocabulary("qwen2")),
      pop::Tokenizer(vocabulary("default")),    pop::Tokenizer(vocabulary("tekken")),
      pop::Tokenizer(vocabulary("deepseek-v3"))};
  if (size == 0) return 0;
  const pop::Tokenizer& tokenizer = kTokenizers[data[0] % std::size(kTokenizers)];
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  for (const bool special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, special);
    const std::string back = tokenizer.decode(ids);
    if (!tokenizer.normalises()) expect(back == text);
    pop::StreamDecoder stream(tokenizer);
    std::string pieces;
    for (const int32_t id : ids) pieces += stream.push(id);
    expect(pieces + stream.flush() == back);
  }
  return 0;
}
