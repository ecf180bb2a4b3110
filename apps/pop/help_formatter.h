// --help within 80 columns: description, usage, options by group with wrapped descriptions, commands, examples.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace pop::app {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* app) const override;
};

// Text broken at blanks so that no line is longer than `columns`; every line after the first starts with `indent` blanks.
std::string wrapped(std::string_view text, size_t indent, size_t columns = 80);

}  // namespace pop::app
