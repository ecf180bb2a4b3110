#include "apps/pop/help_formatter.h"

#include <fmt/format.h>

namespace pop::app {
namespace {

constexpr size_t kNameWidth = 28;

std::string entry(const std::string& name, const std::string& description) {
  const bool fits = name.size() + 2 < kNameWidth;
  std::string out = "  " + name;
  out += fits ? std::string(kNameWidth - name.size() - 2, ' ') : "\n" + std::string(kNameWidth, ' ');
  return out + wrapped(description, kNameWidth) + "\n";
}

}  // namespace

std::string HelpFormatter::make_usage(const CLI::App* app, std::string) const {
  const bool has_commands = !app->get_subcommands([](const CLI::App*) { return true; }).empty();
  std::string name = app->get_name();
  for (const CLI::App* above = app->get_parent(); above; above = above->get_parent())
    name = above->get_name() + " " + name;
  std::string out = "\nUsage: " + name;
  if (has_commands) out += " COMMAND";
  return out + " [options]\n";
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return wrapped(app->get_description(), 0) + "\n";
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = is_positional ? option->get_option_text() : option->get_name(false, true);
  if (!is_positional && !option->get_option_text().empty()) name += " " + option->get_option_text();
  return entry(name, option->get_description());
}

std::string HelpFormatter::make_subcommand(const CLI::App* app) const {
  const std::string& text = app->get_description();
  std::string sentence = text.substr(0, std::min(text.find(". "), text.find(": ")));
  if (sentence.ends_with('.')) sentence.pop_back();
  return entry(app->get_name(), sentence);
}

std::string wrapped(std::string_view text, size_t indent, size_t columns) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (column + word.size() > columns && column > indent) {
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    out += word;
    column += word.size();
    if (end < text.size()) {
      const bool newline = text[end] == '\n';
      out += newline ? "\n" + std::string(indent, ' ') : " ";
      column = newline ? indent : column + 1;
    }
    at = end + 1;
  }
  return out;
}

}  // namespace pop::app
