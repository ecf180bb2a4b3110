// Chat templates: turns a list of messages into the prompt text a model was trained on, by running the Jinja template
// that comes with the model. The language is Jinja2 as Hugging Face transformers sets it up (immutable sandbox,
// trim_blocks, lstrip_blocks, break/continue, {% generation %}, raise_exception, strftime_now, tojson without HTML
// escaping); see docs of jinja2 3.1. What the interpreter cannot do is an error, never a different prompt; one known
// exception: a macro called before a top-level {% set x %} sees the x given by the caller, jinja2 sees it undefined.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pop {

namespace jinja {
class Template;
}

// Broken-down local time for strftime_now(); the library reads no clock and no time zone.
struct ChatTime {
  int year = 1970, month = 1, day = 1;  // 1-based month and day
  int hour = 0, minute = 0, second = 0;
};

// Bounds on what a (hostile) template may use in one render; passing one is an error.
struct ChatTemplateLimits {
  uint64_t steps = 20'000'000;           // expressions evaluated, items touched, 16-byte pieces of text built
  uint64_t bytes = uint64_t{256} << 20;  // live values and output together
};

// What transformers' apply_chat_template gives a template.
struct ChatPrompt {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // [{"role":..,"content":..,"tool_calls":..}]
  nlohmann::ordered_json tools;                                       // array of JSON schemas, or null
  bool add_generation_prompt = true;
  std::optional<std::string> bos_token, eos_token;                  // absent: undefined in the template
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // more variables, e.g. {"enable_thinking":false}
  ChatTime now;
};

class ChatTemplate {
 public:
  // Compiles. Throws Error "chat template line N: ..." for bad syntax, unknown tags, filters or tests.
  explicit ChatTemplate(std::string source, ChatTemplateLimits limits = {});

  // Renders with the members of `context` (an object) as variables. Throws Error "chat template line N: ..." for
  // whatever jinja2 would raise (raise_exception included), for what is not supported and for a passed limit.
  // Safe to call from several threads at once.
  std::string render(const nlohmann::ordered_json& context, const ChatTime& now = {}) const;
  std::string render(const ChatPrompt& prompt) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  ChatTemplateLimits limits_;
  std::shared_ptr<const jinja::Template> template_;
};

}  // namespace pop
