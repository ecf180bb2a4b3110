// libFuzzer entry: any bytes as a tokenizer.json ('{' first) or as a tokenizer.model give an error, or a tokenizer that
// encodes to ids of its vocabulary and streams what it decodes.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target vocabulary_fuzz
//   build-fuzz/text/vocabulary_fuzz -max_len=65536 NEW_FOLDER tests/tokenizer/goldens/json tests/tokenizer/goldens/sentencepiece
#include <cstdlib>

#include "base/error.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

void use(const pop::Tokenizer& tokenizer) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode("Hello, world  a\xcc\x81\xff 12<s> </s>\n\xe4\xb8\xad", special);
    pop::StreamDecoder stream(tokenizer);
    std::string pieces;
    for (const int32_t id : ids) {
      expect(id >= 0 && id < tokenizer.vocab_size());
      expect(special || tokenizer.type(id) != pop::TokenType::kControl);
      pieces += stream.push(id);
    }
    expect(pieces + stream.flush() == tokenizer.decode(ids));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    use(pop::Tokenizer(bytes.starts_with('{') ? pop::read_tokenizer_json(bytes)
                                              : pop::read_sentencepiece_model(bytes)));
  } catch (const pop::Error&) {
  }
  return 0;
}
