#include "formats/gguf_parse.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace pop {
namespace {

constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, one letter, type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, one letter, ndims, one dim, type, offset
constexpr uint64_t kMaxKeyLength = 65535;                    // the format's limit
constexpr uint64_t kDefaultAlignment = 32, kMinAlignment = 8, kMaxAlignment = 65536;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 8;  // bounds the recursion; published files nest once at most

// What a start that is not a GGUF's usually is.
const char* guess_format(std::string_view start) {
  const std::string_view head = start.substr(0, 4);
  if (head == "FUGG") return "a big-endian GGUF file, which is not supported";
  if (head == "lmgg" || head == "fmgg" || head == "tjgg" || head == "algg")
    return "an old GGML file; convert it to GGUF";
  if (head == "PK\x03\x04") return "a ZIP archive (a PyTorch file?)";
  if (start.starts_with("version ")) return "a Git LFS pointer: the file itself was not downloaded";
  if (start.starts_with("<")) return "a web page: the download went wrong";
  if (start.size() > 8 && start[8] == '{') return "a safetensors file";
  return nullptr;
}

// Types of other engines, for messages.
struct ForeignType {
  uint32_t number;
  const char* name;
};
constexpr ForeignType kForeignTypes[] = {{9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
                                         {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {24, "I8"},     {25, "I16"},
                                         {26, "I32"},   {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},
                                         {35, "TQ2_0"}, {39, "MXFP4"}, {40, "NVFP4"}};

// "F32", "Q4_K", also types this engine cannot read ("IQ2_XXS"); "type 99" if nobody knows it.
std::string type_text(uint32_t ggml_type) {
  if (const std::optional<DType> type = dtype_from_ggml(ggml_type)) return traits(*type).name;
  for (const ForeignType& foreign : kForeignTypes) {
    if (foreign.number == ggml_type) return fmt::format("{} (type {})", foreign.name, ggml_type);
  }
  return fmt::format("type {}", ggml_type);
}

class Parser {
 public:
  Parser(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  GgufPart parse() {
    read_magic_and_version();
    const auto tensors = read<uint64_t>("the tensor count");
    const auto keys = read<uint64_t>("the metadata count");
    check_count(keys, kMinKeyBytes, "metadata entries");
    for (uint64_t i = 0; i < keys; ++i) read_key(i);
    part_.key_order = name_order(part_.keys, "metadata key", name_);
    check_count(tensors, kMinTensorBytes, "tensors");
    for (uint64_t i = 0; i < tensors; ++i) read_tensor(i);
    place_tensors();
    return std::move(part_);
  }

 private:
  uint64_t left() const { return bytes_.size() - at_; }

  // Throws unless `size` more bytes are there: the one gate every length from the file goes through.
  void need(uint64_t size, std::string_view what) const {
    if (size > left()) {
      fail("{}: the file ends in {}: expected {} bytes at byte {}, found {}", name_, what, size, at_, left());
    }
  }

  template <class T>
  T read(std::string_view what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string_view read_text(std::string_view what) {
    const auto size = read<uint64_t>(what);
    need(size, what);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }

  void check_count(uint64_t count, uint64_t min_bytes, std::string_view what) const {
    if (count > left() / min_bytes) {
      fail("{}: {} {} announced at byte {}, but the {} bytes left hold at most {}: the file is damaged or cut", name_,
           count, what, at_, left(), left() / min_bytes);
    }
  }

  void read_magic_and_version() {
    const std::string_view start(reinterpret_cast<const char*>(bytes_.data()), std::min<size_t>(bytes_.size(), 16));
    if (!start.starts_with("GGUF")) {
      const char* guess = guess_format(start);
      fail("{}: expected a GGUF file (beginning with 'GGUF'), found {}", name_,
           guess ? std::string(guess) : fmt::format("'{}'", printable(start.substr(0, 4))));
    }
    at_ = 4;
    part_.version = read<uint32_t>("the version");
    if (part_.version != 0 && (part_.version & 0xffff) == 0) {
      fail("{}: this is a big-endian GGUF file, which is not supported; convert it to little-endian", name_);
    }
    if (part_.version != 2 && part_.version != 3) {
      fail("{}: expected GGUF version 2 or 3, found version {}", name_, part_.version);
    }
  }

  GgufType read_type(std::string_view what) {
    const auto type = read<uint32_t>(what);
    if (type >= kGgufTypeCount) {
      fail("{}: {}: expected a value type from 0 to {}, found {}", name_, what, kGgufTypeCount - 1, type);
    }
    return static_cast<GgufType>(type);
  }

  // Steps over a value, checking all of it. Linear in the bytes: every element of every array takes at least one.
  void skip_value(GgufType type, std::string_view what, int depth) {
    if (type == GgufType::String) {
      read_text(what);
    } else if (type == GgufType::Array) {
      skip_array(what, depth + 1);
    } else {
      need(min_value_bytes(type), what);
      if (type == GgufType::Bool && bytes_[at_] > 1) {
        fail("{}: {}: expected a Bool of 0 or 1, found {}", name_, what, bytes_[at_]);
      }
      at_ += min_value_bytes(type);
    }
  }

  void skip_array(std::string_view what, int depth) {
    if (depth > kMaxArrayDepth) fail("{}: {}: arrays nested more than {} deep", name_, what, kMaxArrayDepth);
    const GgufType element = read_type(what);
    const auto count = read<uint64_t>(what);
    if (count > left() / min_value_bytes(element)) {
      fail("{}: {}: an array of {} {} announced, but only {} bytes are left in the file", name_, what, count,
           name_of(element), left());
    }
    if (element == GgufType::String || element == GgufType::Array || element == GgufType::Bool) {
      for (uint64_t i = 0; i < count; ++i) skip_value(element, what, depth);
    } else {
      at_ += count * min_value_bytes(element);
    }
  }

  void read_key(uint64_t index) {
    const std::string_view key = read_text("a metadata key");
    if (key.empty() || key.size() > kMaxKeyLength) {
      fail("{}: metadata entry {}: expected a key of 1 to {} bytes, found {}", name_, index, kMaxKeyLength, key.size());
    }
    const std::string what = fmt::format("metadata key '{}'", printable(key));
    const GgufType type = read_type(what);
    const size_t begin = at_;
    skip_value(type, what, 0);
    part_.keys.push_back({std::string(key), GgufValue(type, bytes_.subspan(begin, at_ - begin))});
  }

  void read_tensor(uint64_t index) {
    TensorInfo info;
    info.name = read_text("a tensor name");
    if (info.name.empty()) fail("{}: tensor {}: its name is empty", name_, index);
    const std::string what = fmt::format("tensor '{}'", printable(info.name));
    const auto dims = read<uint32_t>(what);
    if (dims < 1 || dims > kMaxDims) fail("{}: {}: expected 1 to {} dimensions, found {}", name_, what, kMaxDims, dims);
    need(dims * sizeof(uint64_t), what);
    info.shape.resize(dims);
    uint64_t product = 1;
    for (uint32_t i = dims; i-- > 0;) {
      const auto dim = read<uint64_t>(what);
      if (dim == 0) fail("{}: {}: one of its dimensions is 0", name_, what);
      if (__builtin_mul_overflow(product, dim, &product) || product > uint64_t(std::numeric_limits<int64_t>::max())) {
        fail("{}: {}: its dimensions multiply to more than 2^63 elements", name_, what);
      }
      info.shape[i] = static_cast<int64_t>(dim);
    }
    const auto type = read<uint32_t>(what);
    info.type = dtype_from_ggml(type);
    info.type_text = type_text(type);
    if (info.type) info.bytes = tensor_bytes(info, product, what);
    offsets_.push_back(read<uint64_t>(what));
    part_.tensors.push_back(std::move(info));
  }

  uint64_t tensor_bytes(const TensorInfo& info, uint64_t elements, const std::string& what) const {
    const DTypeTraits& t = traits(*info.type);
    if (info.shape.back() % t.block_elems != 0) {
      fail("{}: {}: expected rows of whole {} blocks ({} elements), found rows of {}", name_, what, t.name,
           t.block_elems, info.shape.back());
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements / uint64_t(t.block_elems), uint64_t(t.block_bytes), &bytes)) {
      fail("{}: {}: {} of {} take more than 2^64 bytes", name_, what, shape_text(info.shape), t.name);
    }
    return bytes;
  }

  uint64_t alignment() const {
    for (const GgufKey& key : part_.keys) {
      if (key.name != "general.alignment") continue;
      const uint64_t value = key.value.type() == GgufType::U32 ? key.value.as_u64().value_or(0) : 0;
      if (value < kMinAlignment || value > kMaxAlignment || (value & (value - 1)) != 0) {
        fail("{}: metadata key 'general.alignment': expected a U32, a power of two from {} to {}, found {} ({})", name_,
             kMinAlignment, kMaxAlignment, key.value.text(), key.value.type_text());
      }
      return value;
    }
    return kDefaultAlignment;
  }

  // Turns offsets into pointers: aligned, within the file, no two tensors over each other.
  void place_tensors() {
    const uint64_t align = alignment();
    if (part_.tensors.empty()) return;
    const uint64_t start = (at_ + align - 1) / align * align;
    if (start > bytes_.size()) fail("{}: the file ends before its tensor data, at byte {}", name_, bytes_.size());
    const std::span<const uint8_t> data = bytes_.subspan(start);
    std::vector<size_t> order(offsets_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    uint64_t end = 0;
    const TensorInfo* previous = nullptr;
    for (const size_t i : order) {
      TensorInfo& info = part_.tensors[i];
      const uint64_t offset = offsets_[i];
      const std::string what = fmt::format("tensor '{}'", printable(info.name));
      if (offset % align != 0)
        fail("{}: {}: expected an offset that is a multiple of {}, found {}", name_, what, align, offset);
      const uint64_t bytes = std::max<uint64_t>(info.bytes, 1);  // of an unknown type: at least one
      if (offset > data.size() || bytes > data.size() - offset) {
        fail(
            "{}: {}: expected {} bytes at offset {} of the tensor data, found only {} bytes of data: the file is cut "
            "or damaged",
            name_, what, bytes, offset, data.size());
      }
      if (offset < end) fail("{}: {} overlaps tensor '{}'", name_, what, printable(previous->name));
      info.data = data.data() + offset;
      end = offset + bytes;
      previous = &info;
    }
  }

  std::span<const uint8_t> bytes_;
  const std::string& name_;
  uint64_t at_ = 0;
  std::vector<uint64_t> offsets_;  // from the start of the data, one per tensor
  GgufPart part_;
};

}  // namespace

GgufPart parse_gguf(std::span<const uint8_t> bytes, const std::string& name) { return Parser(bytes, name).parse(); }

uint64_t min_value_bytes(GgufType type) {
  switch (type) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool: return 1;
    case GgufType::U16:
    case GgufType::I16: return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32: return 4;
    case GgufType::String:
    case GgufType::U64:
    case GgufType::I64:
    case GgufType::F64: return 8;
    case GgufType::Array: return 12;
  }
  fail("GGUF value type number {}: no such type", static_cast<uint32_t>(type));
}

}  // namespace pop
