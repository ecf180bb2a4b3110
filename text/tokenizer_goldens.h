// For tests only: the goldens of tests/tokenizer/make_goldens.py, made by Hugging Face tokenizers.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "text/test_vocabulary.h"

namespace pop {

inline nlohmann::json golden(const std::string& name) { return read_json("tests/tokenizer/goldens/" + name); }

// "count:hash", the hash being the first 16 digits of the SHA-256 of the little-endian int32 numbers.
inline std::string hashed(const std::vector<int32_t>& numbers) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(numbers.data());
  const std::string hash = sha256_hex(std::span(bytes, numbers.size() * sizeof(int32_t)));
  return std::to_string(numbers.size()) + ":" + hash.substr(0, 16);
}

// `expected` is the list itself or its hash.
inline void expect_numbers(const std::vector<int32_t>& numbers, const nlohmann::json& expected,
                           const std::string& where) {
  if (expected.is_string()) {
    EXPECT_EQ(hashed(numbers), expected.get<std::string>()) << where;
  } else {
    EXPECT_EQ(numbers, expected.get<std::vector<int32_t>>()) << where;
  }
}

// A tokenizer is not made of damaged data; the error says `part`.
inline void expect_refused(TokenizerData data, const std::function<void(TokenizerData&)>& damage,
                           const std::string& part) {
  damage(data);
  try {
    Tokenizer tokenizer(data);
    FAIL() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// Ids of all golden documents with and without parsing special tokens, and that decode is the inverse.
inline void expect_golden_ids(const Tokenizer& tokenizer, const nlohmann::json& goldens, const std::string& name) {
  const auto documents = golden("texts.json").get<std::vector<std::string>>();
  const PreTokenizer pre(name);
  ASSERT_EQ(goldens.at("parsed").size(), documents.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    const std::string where = name + ", document " + std::to_string(i);
    const auto parsed = tokenizer.encode(documents[i], true);
    const auto plain = tokenizer.encode(documents[i], false);
    const auto& plain_golden = goldens.at("plain").at(i);
    expect_numbers(parsed, goldens.at("parsed").at(i), where + ", special tokens parsed");
    expect_numbers(plain, plain_golden == "=" ? goldens.at("parsed").at(i) : plain_golden, where + ", plain");
    std::string text = pre.normalise(documents[i]);
    std::erase_if(text, [&](char c) { return tokenizer.missing_bytes().find(c) != std::string::npos; });
    EXPECT_EQ(tokenizer.decode(plain), text) << where;
    EXPECT_EQ(tokenizer.decode(parsed), text) << where;
  }
}

}  // namespace pop
