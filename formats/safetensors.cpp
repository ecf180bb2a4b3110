#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/named.h"

namespace pop {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's limit
constexpr size_t kMaxDims = 8;

struct StoredType {
  const char* name;
  uint64_t bytes;
  std::optional<DType> type{};
};
constexpr StoredType kTypes[] = {{"F32", 4, DType::F32},
                                 {"F16", 2, DType::F16},
                                 {"BF16", 2, DType::BF16},
                                 {"F64", 8},
                                 {"I64", 8},
                                 {"I32", 4},
                                 {"I16", 2},
                                 {"I8", 1},
                                 {"U64", 8},
                                 {"U32", 4},
                                 {"U16", 2},
                                 {"U8", 1},
                                 {"BOOL", 1},
                                 {"F8_E4M3", 1},
                                 {"F8_E5M2", 1},
                                 {"F8_E8M0", 1}};

// Takes the header apart as it is read, so that nothing is kept of what has no place in it.
class Header : public json::json_sax_t {
 public:
  struct Entry {
    std::string name, type;
    std::vector<uint64_t> shape, offsets;
    bool has_type = false, has_shape = false, has_offsets = false;
  };

  explicit Header(const std::string& file) : file_(file) {}
  std::vector<Entry> entries;

  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("a boolean"); }
  bool number_integer(number_integer_t) override { return misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return misplaced("a number that is no integer"); }
  bool binary(json::binary_t&) override { return misplaced("bytes"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::Shape && place_ != Place::Offsets) return misplaced("a number");
    std::vector<uint64_t>& list = place_ == Place::Shape ? entries.back().shape : entries.back().offsets;
    if (list.size() == (place_ == Place::Shape ? kMaxDims : 2)) return misplaced("one number more");
    list.push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::Metadata) return true;
    if (place_ != Place::Tensor || field_ != "dtype") return misplaced("a string");
    entries.back().type = value;
    return true;
  }
  bool start_object(std::size_t) override {
    if (place_ == Place::Before) {
      place_ = Place::Names;
    } else if (place_ == Place::Names) {
      place_ = field_ == "__metadata__" ? Place::Metadata : Place::Tensor;
      if (place_ == Place::Tensor) entries.push_back({.name = field_, .type = {}, .shape = {}, .offsets = {}});
    } else {
      return misplaced("an object");
    }
    return true;
  }
  bool key(string_t& value) override {
    if (place_ == Place::Tensor) {
      Entry& e = entries.back();
      bool* const seen = value == "dtype"          ? &e.has_type
                         : value == "shape"        ? &e.has_shape
                         : value == "data_offsets" ? &e.has_offsets
                                                   : nullptr;
      if (seen == nullptr || *seen)
        fail("{}: tensor '{}': field '{}' {}", file_, printable(e.name), printable(value),
             seen == nullptr ? "is none of dtype, shape, data_offsets" : "occurs twice");
      *seen = true;
    } else if (place_ == Place::Names && value == "__metadata__") {
      if (metadata_) fail("{}: header: '__metadata__' occurs twice", file_);
      metadata_ = true;
    }
    field_ = value;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::Tensor) {
      const Entry& e = entries.back();
      if (!e.has_type || !e.has_shape || !e.has_offsets)
        fail("{}: tensor '{}': expected dtype, shape and data_offsets, found less", file_, printable(e.name));
    }
    place_ = place_ == Place::Names ? Place::After : Place::Names;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::Tensor || field_ == "dtype") return misplaced("an array");
    place_ = field_ == "shape" ? Place::Shape : Place::Offsets;
    return true;
  }
  bool end_array() override {
    if (place_ == Place::Offsets && entries.back().offsets.size() != 2)
      return misplaced(fmt::format("{} numbers", entries.back().offsets.size()));
    place_ = Place::Tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    fail("{}: header: expected JSON, found at byte {}: {}", file_, position, printable(error.what(), 200));
  }

 private:
  enum class Place : uint8_t { Before, Names, Metadata, Tensor, Shape, Offsets, After };

  bool misplaced(std::string_view found) const {
    constexpr const char* kExpected[] = {"an object of tensors",
                                         "an object of dtype, shape and data_offsets",
                                         "strings alone",
                                         "a string and two arrays of integers >= 0",
                                         "at most 8 integers >= 0",
                                         "two integers >= 0",
                                         "nothing more"};
    const bool of_tensor = place_ == Place::Tensor || place_ == Place::Shape || place_ == Place::Offsets;
    fail("{}: {}: expected {}, found {}", file_,
         of_tensor                   ? fmt::format("tensor '{}': {}", printable(entries.back().name), printable(field_))
         : place_ == Place::Names    ? fmt::format("tensor '{}'", printable(field_))
         : place_ == Place::Metadata ? std::string("header: __metadata__")
                                     : std::string("header"),
         kExpected[size_t(place_)], found);
  }

  const std::string& file_;
  Place place_ = Place::Before;
  bool metadata_ = false;
  std::string field_;
};

// The entry's type, shape and bytes agree with each other and lie within `data`.
TensorInfo checked(const Header::Entry& entry, std::span<const uint8_t> data, const std::string& file) {
  const std::string what = fmt::format("tensor '{}'", printable(entry.name));
  const auto* type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const StoredType& t) { return entry.type == t.name; });
  if (type == std::end(kTypes))
    fail("{}: {}: dtype: expected F32, F16, BF16 or another of the format, found \"{}\"", file, what,
         printable(entry.type));
  TensorInfo info{.name = entry.name, .type_text = type->name, .type = type->type, .shape = {}};
  uint64_t bytes = type->bytes;
  for (const uint64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes) || dim > uint64_t(std::numeric_limits<int64_t>::max()))
      fail("{}: {}: its dimensions multiply to more than 2^64 bytes", file, what);
    info.shape.push_back(int64_t(dim));
  }
  const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (begin > end || end > data.size())
    fail(
        "{}: {}: expected bytes within the {} of the tensor data, found data_offsets {} to {}: the file is cut or "
        "damaged",
        file, what, data.size(), begin, end);
  if (end - begin != bytes)
    fail("{}: {}: expected {} bytes for {} of {}, found data_offsets {} to {}", file, what, bytes,
         shape_text(info.shape), info.type_text, begin, end);
  info.data = data.data() + begin;
  info.bytes = bytes;
  return info;
}

// Every byte belongs to one tensor.
void refuse_overlaps_and_holes(const std::vector<TensorInfo>& tensors, std::span<const uint8_t> data,
                               const std::string& file) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& info : tensors) order.push_back(&info);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->data, a->bytes) < std::pair(b->data, b->bytes);
  });
  const uint8_t* end = data.data();
  for (const TensorInfo* info : order) {
    if (info->data < end) fail("{}: tensor '{}' overlaps another", file, printable(info->name));
    if (info->data > end)
      fail("{}: expected no bytes between tensors, found {} before tensor '{}'", file, info->data - end,
           printable(info->name));
    end += info->bytes;
  }
  const uint8_t* const last = data.data() + data.size();
  if (end != last) fail("{}: expected the file to end with its last tensor, found {} more bytes", file, last - end);
}

}  // namespace

std::vector<TensorInfo> parse_safetensors(std::span<const uint8_t> bytes, const std::string& name) {
  if (bytes.size() < 8) fail("{}: expected a safetensors file, found only {} bytes", name, bytes.size());
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | bytes[size_t(i)];
  if (std::memcmp(bytes.data(), "version ", 8) == 0)
    fail("{}: expected a safetensors file, found a Git LFS pointer: the file itself was not downloaded", name);
  if (size > kMaxHeader || size > bytes.size() - 8)
    fail("{}: expected a header of at most {} bytes, found the length {}: no safetensors file, or a cut one", name,
         std::min<uint64_t>(kMaxHeader, bytes.size() - 8), size);
  const std::span<const uint8_t> header = bytes.subspan(8, size), data = bytes.subspan(8 + size);
  if (header.empty() || header[0] != '{') fail("{}: header: expected a JSON object, found something else", name);
  Header parsed(name);
  json::sax_parse(header.begin(), header.end(), &parsed);
  std::sort(parsed.entries.begin(), parsed.entries.end(),
            [](const Header::Entry& a, const Header::Entry& b) { return a.name < b.name; });
  std::vector<TensorInfo> tensors;
  tensors.reserve(parsed.entries.size());
  for (const Header::Entry& entry : parsed.entries) tensors.push_back(checked(entry, data, name));
  name_order(tensors, "tensor", name);  // throws at a name that occurs twice
  refuse_overlaps_and_holes(tensors, data, name);
  return tensors;
}

}  // namespace pop
