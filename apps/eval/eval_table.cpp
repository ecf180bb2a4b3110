// pop eval table: results side by side.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "apps/eval/commands.h"
#include "apps/eval/report.h"
#include "apps/pop/args.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/error.h"

namespace pop::app {
namespace {

struct TableArgs {
  OutputArgs output;
  std::vector<std::string> files;
  std::string columns, format = "markdown", csv;
};

using Cells = std::vector<std::pair<std::string, std::string>>;  // column, text

// What a row is about, then what was found; a column that no result has is left out.
const char* const kColumns[] = {"method",
                                "ratio",
                                "ffn_sparsity",
                                "gamma",
                                "task",
                                "convention",
                                "mode",
                                "context",
                                "items",
                                "scored_tokens",
                                "weights_read_share",
                                "block_weights_read_share",
                                "selected_share",
                                "realised_ratio_active",
                                "realised_ratio_blocks",
                                "ppl",
                                "se",
                                "kl_mean",
                                "kl_ci95_low",
                                "kl_ci95_high",
                                "same_top_mean",
                                "ln_ppl_ratio_mean",
                                "acc",
                                "ci95_low",
                                "ci95_high",
                                "acc_norm",
                                "mean_difference",
                                "mcnemar_p",
                                "finish_reason"};

// One object per file, or several, one per line.
std::vector<Cells> read_results(const std::string& path) {
  std::vector<Cells> out;
  const std::string bytes = read_file(path);
  size_t number = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string line = bytes.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object())
      fail("{}:{}: expected a result (a JSON object on one line, as --json prints it), found '{}'",
           printable(path, 400), number, printable(line));
    out.push_back(flatten(json));
  }
  if (out.empty()) fail("{}: expected a result, found none", printable(path, 400));
  return out;
}

const std::string* find(const Cells& cells, const std::string& column) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const auto& cell) { return cell.first == column; });
  return found == cells.end() ? nullptr : &found->second;
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end == at) throw UsageError("--columns: expected names between single commas, found an empty one");
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<std::string> choose_columns(const TableArgs& args, const std::vector<Cells>& results) {
  std::vector<std::string> all;
  for (const Cells& cells : results)
    for (const auto& [column, text] : cells)
      if (std::find(all.begin(), all.end(), column) == all.end()) all.push_back(column);
  const auto known = [&](const std::string& name) { return std::find(all.begin(), all.end(), name) != all.end(); };
  std::vector<std::string> out;
  if (!args.columns.empty()) {
    out = split_names(args.columns);
    for (const std::string& name : out)
      if (!known(name)) fail("--columns: expected some of {}, found '{}'", fmt::join(all, ", "), printable(name));
    return out;
  }
  for (const char* name : kColumns)
    if (known(name)) out.push_back(name);
  return out.empty() ? all : out;
}

// Numbers with five significant digits; everything else as it is.
std::string shown(const std::string& text) {
  const Json value = Json::parse(text, nullptr, false);
  return value.is_number_float() ? fmt::format("{:.5g}", value.get<double>()) : text;
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : c == '\n' ? std::string(" ") : std::string(1, c);
  return out;
}

void print_markdown(const std::vector<std::vector<std::string>>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string line = "|";
    for (const std::string& cell : rows[i]) line += fmt::format(" {} |", markdown_cell(i == 0 ? cell : shown(cell)));
    fmt::print("{}\n", line);
    if (i > 0) continue;
    std::string rule = "|";
    for (size_t k = 0; k < rows[0].size(); ++k) rule += "---|";
    fmt::print("{}\n", rule);
  }
}

int eval_table(const TableArgs& args) {
  if (args.files.empty()) throw UsageError("eval table: expected files of results, FILE ...");
  std::vector<Cells> results;
  std::vector<std::string> names;
  for (const std::string& file : args.files)
    for (Cells& cells : read_results(file)) {
      results.push_back(std::move(cells));
      names.push_back(file);
    }
  const std::vector<std::string> columns = choose_columns(args, results);
  std::vector<std::vector<std::string>> rows = {{"file"}};
  rows[0].insert(rows[0].end(), columns.begin(), columns.end());
  for (size_t i = 0; i < results.size(); ++i) {
    rows.push_back({names[i]});
    for (const std::string& column : columns) {
      const std::string* text = find(results[i], column);
      rows.back().push_back(text ? *text : "");
    }
  }
  if (!args.csv.empty()) write_csv(args.csv, rows);
  if (args.format == "markdown") {
    print_markdown(rows);
  } else {
    for (const auto& row : rows) {
      std::string line;
      for (const std::string& cell : row) line += csv_field(cell) + ",";
      line.pop_back();
      fmt::print("{}\n", line);
    }
  }
  return kDone;
}

}  // namespace

void add_eval_table(CLI::App& root, Commands& commands) {
  auto args = std::make_shared<TableArgs>();
  CLI::App* app = root.add_subcommand("table");
  app->description(
      "Results side by side. Each file has what --json printed, one or more lines of it; a row per result. Nested "
      "fields are joined by _: kl_mean, kl_ci95_low.");
  app->add_option("files", args->files, "Results")->option_text("FILE ...");
  app->add_option("--columns", args->columns, "Names between commas [what the results are about, and their figures]")
      ->option_text("LIST");
  app->add_option("--format", args->format, "markdown or csv [markdown]")
      ->option_text("NAME")
      ->check(one_of({"markdown", "csv"}));
  app->add_option("--csv", args->csv, "Write the rows, all digits, to this file as well")->option_text("FILE");
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop eval table dense.json pop.json\n"
      "  pop eval table kl-*.json --columns method,ratio,weights_read_share,kl_mean --format csv\n");
  commands.push_back({app, [args] { return eval_table(*args); }});
}

}  // namespace pop::app
