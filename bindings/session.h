// Session and Generation as Python sees them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "bindings/work.h"

namespace pop::python {

using Messages = std::vector<std::map<std::string, std::string>>;
// A text, token ids, or the messages of a chat.
using Prompt = std::variant<std::string, std::vector<int32_t>, Messages>;

// Throws ValueError on a message that has other keys than role and content.
std::vector<ChatMessage> chat_messages(const Messages& messages);
// Without the GIL. A text by the rule of the beginning-of-sequence token, messages by the model's template.
std::vector<int32_t> prompt_ids(const Engine& engine, const Prompt& prompt, bool special);

struct PySession {
  std::shared_ptr<SharedEngine> shared;
  std::unique_ptr<Session> session;  // after the engine, which it must not outlive
};

}  // namespace pop::python
