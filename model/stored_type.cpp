#include "model/stored_type.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "tensor/convert_rows.h"

namespace pop {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

bool is_short(DType type) { return traits(type).block_bytes * 8 < 6 * traits(type).block_elems + 1; }

}  // namespace

DType stored_type(DType wanted, WeightUse use, int64_t cols) {
  if (use == WeightUse::Kept) return DType::F32;
  return fitting_type(use == WeightUse::Head && is_short(wanted) ? DType::Q6_K : wanted, cols);
}

std::vector<std::string> stored_type_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kDTypeCount; ++i)
    if (has_quantizer(DType(i))) names.push_back(lower(traits(DType(i)).name));
  return names;
}

DType stored_type_named(std::string_view name, std::string_view option) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (has_quantizer(DType(i)) && lower(traits(DType(i)).name) == lower(name)) return DType(i);
  fail("{}: expected one of {}, found '{}'", option, fmt::join(stored_type_names(), ", "), printable(name));
}

}  // namespace pop
