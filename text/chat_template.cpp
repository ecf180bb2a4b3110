#include "text/chat_template.h"

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace pop {

ChatTemplate::ChatTemplate(std::string source, ChatTemplateLimits limits)
    : source_(std::move(source)), limits_(limits), template_(jinja::parse_template(source_)) {}

std::string ChatTemplate::render(const nlohmann::ordered_json& context, const ChatTime& now) const {
  return jinja::Interpreter(limits_, now).run(*template_, context);
}

std::string ChatTemplate::render(const ChatPrompt& prompt) const {
  nlohmann::ordered_json context;
  context["messages"] = prompt.messages;
  context["tools"] = prompt.tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = prompt.add_generation_prompt;
  if (prompt.bos_token) context["bos_token"] = *prompt.bos_token;
  if (prompt.eos_token) context["eos_token"] = *prompt.eos_token;
  for (const auto& [name, value] : prompt.extra.items()) context[name] = value;
  return render(context, prompt.now);
}

}  // namespace pop
