// Reads a golden: NAME.json and NAME.bin in tests/goldens (format: tests/goldens/README.md).
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace pop::test {

class Golden {
 public:
  explicit Golden(const std::string& name) {
    std::ifstream json("tests/goldens/" + name + ".json"), bin("tests/goldens/" + name + ".bin", std::ios::binary);
    if (!json || !bin)
      throw std::runtime_error("golden " + name + " is missing: run the tests from the repository root");
    meta_ = nlohmann::json::parse(json);
    bytes_.assign(std::istreambuf_iterator<char>(bin), {});
    if (bytes_.size() != meta_.at("bytes").get<size_t>())
      throw std::runtime_error("golden " + name + ": .bin has another size");
  }
  const nlohmann::json& meta() const { return meta_; }

  // Values of an array, row-major. T: float, int32_t or uint8_t as the golden says.
  template <class T>
  std::vector<T> array(const std::string& name) const {
    const auto& entry = meta_.at("arrays").at(name);
    size_t count = 1;
    for (const size_t n : entry.at("shape")) count *= n;
    std::vector<T> out(count);
    const size_t offset = entry.at("offset");
    if (offset + count * sizeof(T) > bytes_.size()) throw std::runtime_error("golden array " + name + " is cut");
    if (count > 0) std::memcpy(out.data(), bytes_.data() + offset, count * sizeof(T));
    return out;
  }

 private:
  nlohmann::json meta_;
  std::vector<char> bytes_;
};

inline const char* const kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

// Where a golden's model lies; empty if it is the default model and was not fetched.
inline std::string model_path(const Golden& golden) {
  const std::string name = golden.meta().at("model");
  const std::string path = name.starts_with("tiny") ? "tests/goldens/" + name : "models/" + name;
  return std::ifstream(path) ? path : "";
}

}  // namespace pop::test

#define POP_SKIP_WITHOUT(path) \
  if ((path).empty()) GTEST_SKIP() << "the default model is not here: scripts/quickstart fetches it"
