// Items of an evaluation: a task file (docs/data.md), JSON Lines, one object per line. Whatever is wrong with a line is said with
// file, line and field.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/pop/results.h"

namespace pop::app {

struct Item {
  int64_t id = 0;     // its place among the items from 0: lm-eval's doc_id
  std::string where;  // "FILE:LINE", for messages
  std::string hash;   // SHA-256 of the line
  Json json;          // an object
};

struct Items {
  std::string path, sha256;  // of the whole file's bytes
  std::string task;          // the header's name, else the file's
  Item header;               // what holds for all items (docs/data.md); an empty object where the file has none
  std::vector<Item> list;
  std::vector<int64_t> ids() const;
};

// Which items: --file, --limit, --items.
struct ItemArgs {
  std::string file, only;
  int64_t limit = 0;  // 0: all
};

void add_item_options(CLI::App& app, ItemArgs& args);

// A first line with "task" and "kind" is the header. The items chosen, in the order of the file. Throws Error: not readable, a line that is no object, an id that is not there.
Items read_items(const ItemArgs& args);

// A field that must be there, of its type. Throws Error naming file, line and field; `allow_empty`: "" is a text as well.
const std::string& text_field(const Item& item, const char* name, bool allow_empty = false);
bool bool_field(const Item& item, const char* name);
// A whole number in [low, high].
int64_t int_field(const Item& item, const char* name, int64_t low, int64_t high);
// A list of at least `least` texts, none of them empty.
std::vector<std::string> text_list(const Item& item, const char* name, size_t least = 1);

std::string sha256_text(std::string_view bytes);

// Throws Error "FILE:LINE: "NAME": expected WHAT, found TYPE".
[[noreturn]] void bad_field(const Item& item, const char* name, std::string_view expected);

}  // namespace pop::app
