// pop.cpp's public interface: load a model once, run any number of sessions on it, dense or pruned.
//   pop::Engine engine({.model = "model.gguf"});
//   auto session = engine.session({.method = "pop", .ratio = 0.2});
//   auto answer = session->generate(engine.encode("The capital of France is"), {.max_tokens = 32});
//
// Every failure throws pop::Exception (a std::runtime_error) with one line that names what was wrong. The library never
// prints, exits or reads the environment. An Engine runs one call at a time, of its sessions and their generations too: guard
// it with a mutex between threads.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"
#include "engine/results.h"

namespace pop {

using Exception = std::runtime_error;  // what the library throws derives from it

class Session;

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;

  const ModelInfo& info() const;
  // Between calls: another number of worker threads, at least 1. Changes no bit of any result.
  void set_threads(int threads);

  // Text. `special`: text that spells a special token becomes that token. `bos` as in the options is applied by `prompt`.
  std::vector<int32_t> encode(std::string_view text, bool special = false) const;
  std::vector<int32_t> prompt(std::string_view text, bool special = false) const;  // encode, with the BOS rule
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
  std::string token_text(int32_t id) const;  // "" where the model has no tokenizer
  bool ends_generation(int32_t id) const;
  // The model's own template over the messages, ids of a prompt that ends where the assistant speaks. Contents are encoded as
  // plain text: a user cannot forge a special token. Throws if the model has no template or the template refuses.
  std::vector<int32_t> chat_prompt(std::span<const ChatMessage> messages) const;
  std::string chat_text(std::span<const ChatMessage> messages) const;

  std::unique_ptr<Session> session(const PruneSettings& prune = {});

  // What a method would read per token, planned from the shapes by the formulas of docs/pruning.md: no weight is looked at.
  struct Planned {
    double ffn_sparsity = 0, level = 0;
    double weight_bytes_per_token = 0, weights_read_share = 0, selected_share = 0;
    RealisedRatio realised;  // what the ratio comes to by each of its definitions
  };
  Planned planned(const PruneSettings& prune) const;

  // Runs the sequences dense, one after another. Each is a prompt of its own.
  CalibrationResult calibrate(std::span<const std::vector<int32_t>> sequences, const CalibrationOptions& options = {});

  struct Impl;  // defined inside the library

 private:
  std::unique_ptr<Impl> impl_;
};

// An answer in the making, a token at a time. Of a session the last one that was started goes on: its next start, generate,
// reset or release ends the ones before. Lives no longer than its session.
class Generation {
 public:
  ~Generation();
  Generation(Generation&&) noexcept;
  // The next token (the first call computes the prompt before). False: the answer is complete, result() says why. Throws also
  // if the session has gone on to something else; whatever it throws, the answer ends there as "interrupted".
  bool step();
  // Ends the answer with the tokens that there are: "interrupted", if it was not complete.
  void stop();
  // Text, ids and prompt_tokens so far; all else, and a finish_reason, once the answer is complete.
  const GenerateResult& result() const;
  // [vocab], those that the last token was chosen from; empty before the first step. The next step overwrites them in place.
  std::span<const float> logits() const;

  struct Impl;  // defined inside the library
  explicit Generation(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// One conversation: its key-value cache and pruning state. Prompts that continue what was prefilled before reuse it; answers
// are prefilled again as part of the next prompt, so that a conversation's bits do not depend on how it came about.
class Session {
 public:
  ~Session();
  const PrunePlanInfo& plan() const;
  GenerateResult generate(std::span<const int32_t> prompt, const GenerateOptions& options = {});
  // The same, step by step; both are copied. Nothing is computed yet, but what is wrong with them is said here.
  Generation start(std::span<const int32_t> prompt, const GenerateOptions& options = {});
  SessionMemory memory() const;
  // Teacher-forced log-probabilities, up to `batch` requests in one forward; independent of this session's conversation.
  // Interrupted, it returns what there is: each result says so in finish_reason.
  std::vector<ScoreResult> score(std::span<const ScoreRequest> requests, int batch = 1, const RunHooks& hooks = {});
  // Greedy answers of exactly `tokens` tokens to several prompts, each with its own partition, one token of each per pass;
  // independent of this session's conversation. Interrupted, it returns what there is.
  BatchResult generate_batch(std::span<const std::vector<int32_t>> prompts, int tokens, const RunHooks& hooks = {});
  void reset();
  // Gives the memory of the conversation back: its cache, its packed weights. The next call allocates them anew.
  void release();

  struct Impl;  // defined inside the library
  explicit Session(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Names of the pruning methods (prune/registry.h has the details), of the instruction sets built in, and of those that run here.
std::vector<std::string> method_names();
std::vector<std::string> built_isa_names();
std::vector<std::string> available_isa_names();
std::vector<std::string> weight_type_names();  // for EngineOptions::load_as

BuildInfo build_info();

}  // namespace pop
