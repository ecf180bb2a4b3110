// libFuzzer entry for chat templates: the input is a template, rendered on one fixed conversation.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json kContext = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "S\n"}, {"role": "user", "content": " Grüße <b> "},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1.5}}}]},
                 {"role": "tool", "content": [1, true, {"k": "v"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3, "l": [3, 1, 2], "s": "Hello, World"})");
  pop::ChatTemplateLimits limits;
  limits.steps = 20'000;
  limits.bytes = 4 << 20;
  try {
    pop::ChatTemplate(std::string(reinterpret_cast<const char*>(data), size), limits).render(kContext);
  } catch (const pop::Error&) {
  }
  return 0;
}
