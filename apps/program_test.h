// Runs the built program as a user does and gives what came back.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pop::app {

using Json = nlohmann::json;

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
  Json json() const { return Json::parse(out); }  // throws if it is not exactly one JSON value
};

// POP_PROGRAM with these arguments; standard input is `input`. With `interrupt`, SIGINT follows as soon as something was written
// to standard output.
Outcome pop(const std::vector<std::string>& arguments, const std::string& input = "", bool interrupt = false);

// The same; `signal`, if it is not 0, follows as soon as when(path of what was written to standard output) says so.
Outcome pop_signalled(const std::vector<std::string>& arguments, const std::string& input, int signal,
                      const std::function<bool(const std::string& out)>& when);

using Words = std::vector<std::string>;

// Its one JSON object; exit code 0 is expected.
Json run_json(Words words);

// COMMAND on the tiny model.
Words tiny(const std::string& command, Words more);

// A folder of this test's own, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  std::string write(const std::string& name, const std::string& bytes) const;
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

std::string read_bytes(const std::string& path);

// A tiny model whose first 256 tokens are the bytes: a token id is a byte.
inline const char* const kTiny = "tests/goldens/tiny-q4_1.gguf";
inline const char* const kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

}  // namespace pop::app
