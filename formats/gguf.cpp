#include "formats/gguf.h"

#include <unistd.h>

#include <charconv>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/gguf_parse.h"

namespace pop {
namespace {

// PREFIX-00002-of-00003.gguf
struct SplitName {
  std::string prefix;
  uint64_t index = 0, count = 0;  // index from 1

  std::string part(uint64_t i) const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i, count); }
};

std::optional<uint64_t> number(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

std::optional<SplitName> split_name(const std::string& path) {
  constexpr std::string_view kShape = "-00000-of-00000.gguf";
  if (path.size() < kShape.size()) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kShape.size());
  const auto index = number(tail.substr(1, 5)), count = number(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !index || !count)
    return std::nullopt;
  return SplitName{path.substr(0, path.size() - kShape.size()), *index, *count};
}

// A name such as MODEL.gguf.part1of2: a file cut by bytes, which only joining the pieces makes whole.
bool is_piece_name(std::string_view path) {
  const size_t part = path.rfind(".part"), of = path.rfind("of");
  if (part == path.npos || of == path.npos || of < part + 5) return false;
  return number(path.substr(part + 5, of - part - 5)) && number(path.substr(of + 2));
}

GgufPart parse_file(const MappedFile& file) {
  try {
    return parse_gguf(file.bytes(), file.path());
  } catch (const Error& error) {
    if (!is_piece_name(file.path())) throw;
    fail("{}; by its name it is one piece of a file cut in pieces: join all pieces into one file first", error.what());
  }
}

std::string missing_parts(const SplitName& name) {
  std::string missing;
  uint64_t found_missing = 0;
  for (uint64_t i = 1; i <= name.count; ++i) {
    if (access(name.part(i).c_str(), F_OK) == 0) continue;
    if (++found_missing <= 4) missing += (missing.empty() ? "" : ", ") + name.part(i);
  }
  return found_missing > 4 ? fmt::format("{} and {} more", missing, found_missing - 4) : missing;
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  std::vector<MappedFile> files;  // empty if opened from memory
  int parts = 1;
  GgufPart part;                     // the first part; its tensors: those of all parts
  std::vector<size_t> tensor_order;  // of part.tensors, by name

  void open_other_parts();
  void check_split_keys(const GgufPart& p, const std::string& file, uint64_t index, uint64_t count) const;
  uint64_t split_number(const GgufPart& p, const std::string& file, std::string_view key, uint64_t fallback) const;
};

uint64_t GgufFile::Impl::split_number(const GgufPart& p, const std::string& file, std::string_view key,
                                      uint64_t fallback) const {
  const GgufKey* found = find_named(p.keys, p.key_order, key);
  if (found == nullptr) return fallback;
  const std::optional<uint64_t> value = found->value.as_u64();
  if (!value) fail("{}: metadata key '{}': expected an integer >= 0, found {}", file, key, found->value.text());
  return *value;
}

void GgufFile::Impl::check_split_keys(const GgufPart& p, const std::string& file, uint64_t index,
                                      uint64_t count) const {
  const uint64_t said_index = split_number(p, file, "split.no", 0) + 1,
                 said_count = split_number(p, file, "split.count", 1);
  if (said_index != index || said_count != count) {
    fail("{}: expected part {} of {} by its name, found part {} of {} by its metadata", file, index, count, said_index,
         said_count);
  }
}

// Called with the first file parsed: finds out whether it is one of several, and opens the others.
void GgufFile::Impl::open_other_parts() {
  const std::optional<SplitName> name = split_name(path);
  const uint64_t count = std::max<uint64_t>(split_number(part, path, "split.count", 1), 1);
  if (count > 1 && !name) {
    fail("{}: part {} of {} of a split model, whose files must be named NAME-00001-of-{:05}.gguf and so on", path,
         split_number(part, path, "split.no", 0) + 1, count, count);
  }
  if (!name || (name->count <= 1 && count <= 1)) return;
  check_split_keys(part, path, name->index, name->count);
  const std::string missing = missing_parts(*name);
  if (name->index != 1) {
    fail("{}: this is part {} of {} of a split model; open the first part, {}{}", path, name->index, name->count,
         name->part(1), missing.empty() ? "" : fmt::format(" (missing: {})", missing));
  }
  if (!missing.empty()) fail("{}: a split model of {} parts; missing: {}", path, name->count, missing);
  for (uint64_t i = 2; i <= name->count; ++i) {
    MappedFile file(name->part(i));
    GgufPart other = parse_file(file);
    check_split_keys(other, file.path(), i, name->count);
    std::move(other.tensors.begin(), other.tensors.end(), std::back_inserter(part.tensors));
    files.push_back(std::move(file));
  }
  parts = static_cast<int>(name->count);
  const uint64_t expected = split_number(part, path, "split.tensors.count", part.tensors.size());
  if (part.tensors.size() != expected) {
    fail("{}: expected {} tensors in all parts (split.tensors.count), found {}", path, expected, part.tensors.size());
  }
}

bool is_split_part_name(const std::string& path) {
  const std::optional<SplitName> name = split_name(path);
  return name && name->count > 1;
}

GgufFile::GgufFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  MappedFile file(path);
  impl_->path = path;
  impl_->part = parse_file(file);
  impl_->files.push_back(std::move(file));
  impl_->open_other_parts();
  impl_->tensor_order = name_order(impl_->part.tensors, "tensor", path);
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GgufFile GgufFile::from_bytes(std::span<const uint8_t> bytes, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->path = name;
  impl->part = parse_gguf(bytes, name);
  if (impl->split_number(impl->part, name, "split.count", 1) > 1)
    fail("{}: a split model must be opened by its path", name);
  impl->tensor_order = name_order(impl->part.tensors, "tensor", name);
  return GgufFile(std::move(impl));
}

GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;

const std::string& GgufFile::path() const { return impl_->path; }
uint32_t GgufFile::version() const { return impl_->part.version; }
int GgufFile::parts() const { return impl_->parts; }
std::span<const MappedFile> GgufFile::files() const { return impl_->files; }

std::span<const GgufKey> GgufFile::keys() const { return impl_->part.keys; }

const GgufValue* GgufFile::find_key(std::string_view key) const {
  const GgufKey* found = find_named(impl_->part.keys, impl_->part.key_order, key);
  return found ? &found->value : nullptr;
}

std::span<const TensorInfo> GgufFile::tensors() const { return impl_->part.tensors; }

const TensorInfo* GgufFile::find(std::string_view name) const {
  return find_named(impl_->part.tensors, impl_->tensor_order, name);
}

}  // namespace pop
